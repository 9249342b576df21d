/**
 * Encrypts with a key management service (KMS v2 over gRPC). Each value has its own key, which is derived from a seed
 * that only the service can decrypt. The seed is created at start and whenever the service's key changes, so that no
 * write waits for the service.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import type { KmsOptions } from './encryption-config.ts';
import { type EncryptionProvider, gcmOpen, gcmSeal } from './provider.ts';
import { bytesField, bytesOf, enumField, mapField, mapOf, readFields, textOf, type Fields } from './protobuf-fields.ts';

export interface Wrapped {
  readonly ciphertext: Buffer;
  readonly keyId: string;
  readonly annotations: ReadonlyMap<string, Buffer>;
}

export interface KeyService {
  status(): Promise<{ readonly healthz: string; readonly keyId: string }>;
  encrypt(plaintext: Buffer): Promise<Wrapped>;
  decrypt(wrapped: Wrapped): Promise<Buffer>;
  close(): void;
}

export interface KmsProviderOptions {
  readonly name: string;
  readonly service: KeyService;
  readonly clock: Clock;
  readonly logger: Logger;
}

const SEED_BYTES = 32;
const INFO_BYTES = 32;
const CHECK_EVERY_MS = 60_000;
const GOOD_FOR_MS = 20_000;
/** The value of `encryptedDEKSourceType` for a seed from which keys are derived. */
const SEED_TYPE = 1;

interface Seed extends Wrapped {
  readonly seed: Buffer;
}

export async function kmsProvider(options: KmsProviderOptions): Promise<EncryptionProvider> {
  const { service, clock, logger } = options;
  const opened = new Map<string, Buffer>();
  const remember = (seed: Seed): Seed => {
    opened.set(seed.ciphertext.toString('base64'), seed.seed);
    return seed;
  };
  const make = async (): Promise<Seed> => {
    const seed = randomBytes(SEED_BYTES);
    return remember({ seed, ...(await service.encrypt(seed)) });
  };
  let current = await make();
  let timer: Timer | undefined;
  const check = async (): Promise<void> => {
    const { healthz, keyId } = await service.status();
    if (healthz !== 'ok') throw new Error(`the key management service reported ${quoteText(healthz)}`);
    if (keyId !== current.keyId) current = await make();
  };
  const arm = (): void => {
    timer = clock.after(CHECK_EVERY_MS, () => {
      check()
        .catch((error: unknown) =>
          logger.warn({ err: error, kms: options.name }, 'Cannot reach the key management service'),
        )
        .finally(arm);
    });
  };
  arm();
  let lastGoodMs = Number.NEGATIVE_INFINITY;
  return {
    // Health checks are frequent, so a recent successful response is reused.
    async checkKeyService() {
      if (clock.monotonic() - lastGoodMs < GOOD_FOR_MS) return;
      await check();
      lastGoodMs = clock.monotonic();
    },
    prefix: `k8s:enc:kms:v2:${options.name}:`,
    seal(value, context) {
      const info = randomBytes(INFO_BYTES);
      const data = Buffer.concat([info, gcmSeal(derive(current.seed, info), value, context)]);
      return Buffer.concat([
        bytesField(1, data),
        bytesField(2, current.keyId),
        bytesField(3, current.ciphertext),
        mapField(4, current.annotations),
        enumField(5, SEED_TYPE),
      ]);
    },
    open(sealed, context) {
      const fields = readFields(sealed);
      const seed = opened.get(wrappedOf(fields).ciphertext.toString('base64'));
      if (seed === undefined) throw new Error('the key of the value has not been decrypted');
      const data = bytesOf(fields, 1);
      const isSeed = bytesOf(fields, 5)[0] === SEED_TYPE;
      if (!isSeed) return gcmOpen(seed, data, context);
      return gcmOpen(derive(seed, data.subarray(0, INFO_BYTES)), data.subarray(INFO_BYTES), context);
    },
    async unlock(values) {
      for (const sealed of values) {
        const wrapped = wrappedOf(readFields(sealed));
        if (!opened.has(wrapped.ciphertext.toString('base64')))
          remember({ ...wrapped, seed: await service.decrypt(wrapped) });
      }
    },
    close() {
      timer?.cancel();
      timer = undefined;
      service.close();
    },
  };
}

const wrappedOf = (fields: Fields): Wrapped => ({
  ciphertext: bytesOf(fields, 3),
  keyId: textOf(fields, 2),
  annotations: mapOf(fields, 4),
});

/** HKDF-Expand (RFC 5869) for one block. */
const derive = (seed: Buffer, info: Buffer): Buffer =>
  createHmac('sha256', seed)
    .update(info)
    .update(Buffer.from([1]))
    .digest();

const SERVICE = '/v2.KeyManagementService/';

/** Connects over a unix socket. gRPC is loaded here because few clusters need it. */
export async function connectKeyService({ endpoint, timeoutMs }: KmsOptions, clock: Clock): Promise<KeyService> {
  const { default: grpc } = await import('@grpc/grpc-js');
  const { Client, credentials } = grpc;
  const client = new Client(endpoint.replace(/^unix:\/\//, 'unix:'), credentials.createInsecure());
  const call = (method: string, request: Buffer): Promise<Fields> =>
    new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        SERVICE + method,
        (message: Buffer) => message,
        (bytes: Buffer) => bytes,
        request,
        { deadline: clock.now() + timeoutMs },
        (error, answer) => {
          if (error !== null) reject(error);
          else resolve(readFields(answer ?? Buffer.alloc(0)));
        },
      );
    });
  return {
    async status() {
      const fields = await call('Status', Buffer.alloc(0));
      return { healthz: textOf(fields, 2), keyId: textOf(fields, 3) };
    },
    async encrypt(plaintext) {
      const fields = await call('Encrypt', Buffer.concat([bytesField(1, plaintext), bytesField(2, randomUUID())]));
      return { ciphertext: bytesOf(fields, 1), keyId: textOf(fields, 2), annotations: mapOf(fields, 3) };
    },
    async decrypt({ ciphertext, keyId, annotations }) {
      const fields = await call(
        'Decrypt',
        Buffer.concat([
          bytesField(1, ciphertext),
          bytesField(2, randomUUID()),
          bytesField(3, keyId),
          mapField(4, annotations),
        ]),
      );
      return bytesOf(fields, 1);
    },
    close: () => client.close(),
  };
}
