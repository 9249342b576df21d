/**
 * Encrypts with a key management service (KMS v2 over gRPC). Each value has its own key, which is derived from a seed
 * that only the service can decrypt. The seed is created at start and whenever the service's key changes, so that no
 * write waits for the service.
 *
 * A seed is used only after the service has decrypted its own ciphertext to it: a service that answers wrongly costs a
 * failed health check, but never a value that cannot be decrypted, or a seed in clear text beside the value.
 */
import { quoteText } from '../../../api/meta/quote.ts';
import { createHmac, randomBytes } from 'node:crypto';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { KeyServiceError, type KeyService, type Wrapped } from './key-service.ts';
import { type EncryptionProvider, gcmOpen, gcmSeal } from './provider.ts';
import { bytesField, bytesOf, enumField, mapField, mapOf, readFields, textOf, type Fields } from './protobuf-fields.ts';

interface KmsProviderOptions {
  readonly name: string;
  readonly service: KeyService;
  readonly clock: Clock;
  readonly logger: Logger;
}

const SEED_BYTES = 32;
const INFO_BYTES = 32;
const CHECK_EVERY_MS = 60_000;
/** The time for which a successful call of the service answers health checks. */
const GOOD_FOR_MS = 20_000;
/** The value of `encryptedDEKSourceType` for a seed from which keys are derived. */
const SEED_TYPE = 1;

interface Seed extends Wrapped {
  readonly seed: Buffer;
}

/**
 * Creates the provider that encrypts with seeds of a key management service. Resolves when the first seed is usable; rejects
 * and closes the service if there is none.
 */
export async function kmsProvider(options: KmsProviderOptions): Promise<EncryptionProvider> {
  const { service, clock, logger } = options;
  /** The decrypted seeds by their ciphertext in base64. */
  const opened = new Map<string, Buffer>();
  const remember = (seed: Seed): Seed => {
    opened.set(seed.ciphertext.toString('base64'), seed.seed);
    return seed;
  };
  let current = remember(
    await newSeed(service).catch((error: unknown) => {
      service.close();
      throw error;
    }),
  );
  let timer: Timer | undefined;
  let isClosed = false;
  const check = async (): Promise<void> => {
    const { healthz, keyId } = await service.status();
    if (healthz !== 'ok') throw new KeyServiceError(`it reported ${quote(healthz)}`);
    if (keyId === '') throw new KeyServiceError('it reported an empty key ID');
    if (keyId === current.keyId) return;
    const next = await newSeed(service);
    if (next.keyId !== keyId)
      throw new KeyServiceError(`it encrypts with the key ${quote(next.keyId)} and reports ${quote(keyId)}`);
    current = remember(next);
  };
  const arm = (): void => {
    if (isClosed) return;
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
    seal: (value, context) => sealWith(current, value, context),
    open(sealed, context) {
      const fields = readFields(sealed);
      const seed = opened.get(wrappedOf(fields).ciphertext.toString('base64'));
      if (seed === undefined) throw new Error('the key of the value has not been decrypted');
      return openWith(seed, fields, context);
    },
    async unlock(values) {
      for (const sealed of values) {
        const wrapped = wrappedOf(readFields(sealed));
        if (opened.has(wrapped.ciphertext.toString('base64'))) continue;
        const seed = await service.decrypt(wrapped);
        if (seed.length !== SEED_BYTES)
          throw new KeyServiceError(`it decrypted a seed of ${SEED_BYTES} bytes to ${seed.length} bytes`);
        remember({ ...wrapped, seed });
      }
    },
    close() {
      isClosed = true;
      timer?.cancel();
      service.close();
    },
  };
}

/** The maximum sizes of what the service may add to every value, as in kube-apiserver. */
const MAX_CIPHERTEXT_BYTES = 1024;
const MAX_KEY_ID_BYTES = 1024;
const MAX_ANNOTATIONS_BYTES = 32 * 1024;

async function newSeed(service: KeyService): Promise<Seed> {
  const seed = randomBytes(SEED_BYTES);
  const wrapped = await service.encrypt(seed);
  const { ciphertext, keyId, annotations } = wrapped;
  if (ciphertext.length === 0 || ciphertext.length > MAX_CIPHERTEXT_BYTES)
    throw new KeyServiceError(`it encrypted a seed to ${ciphertext.length} bytes`);
  if (ciphertext.includes(seed)) throw new KeyServiceError('its ciphertext contains the clear text');
  const keyIdBytes = Buffer.byteLength(keyId);
  if (keyIdBytes === 0 || keyIdBytes > MAX_KEY_ID_BYTES)
    throw new KeyServiceError(`it named a key ID of ${keyIdBytes} bytes`);
  if (sizeOf(annotations) > MAX_ANNOTATIONS_BYTES)
    throw new KeyServiceError(`its annotations have ${sizeOf(annotations)} bytes`);
  if ([...annotations.values()].some((value) => value.includes(seed)))
    throw new KeyServiceError('its annotations contain the clear text');
  if (!seed.equals(await service.decrypt(wrapped)))
    throw new KeyServiceError('it does not decrypt its own ciphertext to what it encrypted');
  return { seed, ...wrapped };
}

const sizeOf = (annotations: ReadonlyMap<string, Buffer>): number =>
  [...annotations].reduce((sum, [key, value]) => sum + Buffer.byteLength(key) + value.length, 0);

const quote = (text: string): string => quoteText(text.slice(0, 100));

function sealWith({ seed, keyId, ciphertext, annotations }: Seed, value: Buffer, context: string): Buffer {
  const info = randomBytes(INFO_BYTES);
  const data = Buffer.concat([info, gcmSeal(derive(seed, info), value, context)]);
  return Buffer.concat([
    bytesField(1, data),
    bytesField(2, keyId),
    bytesField(3, ciphertext),
    mapField(4, annotations),
    enumField(5, SEED_TYPE),
  ]);
}

function openWith(seed: Buffer, fields: Fields, context: string): Buffer {
  const data = bytesOf(fields, 1);
  const isSeed = bytesOf(fields, 5)[0] === SEED_TYPE;
  if (!isSeed) return gcmOpen(seed, data, context);
  return gcmOpen(derive(seed, data.subarray(0, INFO_BYTES)), data.subarray(INFO_BYTES), context);
}

const wrappedOf = (fields: Fields): Wrapped => ({
  ciphertext: bytesOf(fields, 3),
  keyId: textOf(fields, 2),
  annotations: mapOf(fields, 4),
});

/** Derives one block by HKDF-Expand (RFC 5869). */
const derive = (seed: Buffer, info: Buffer): Buffer =>
  createHmac('sha256', seed)
    .update(info)
    .update(Buffer.from([1]))
    .digest();
