/** A key management service (KMS v2) as a client sees it: over gRPC on a unix socket, with answers that may be hostile. */
import { randomUUID } from 'node:crypto';
import { PlainError } from '../../api/component/plain-error.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { KmsOptions } from './encryption-config.ts';
import { bytesField, bytesOf, mapField, mapOf, readFields, textOf, type Fields } from './protobuf-fields.ts';

/** The service cannot be reached, or its answer cannot be used. */
export class KeyServiceError extends PlainError {
  override readonly name = 'KeyServiceError';

  constructor(why: string, options?: ErrorOptions) {
    super(`the key management service cannot be used: ${why}`, options);
  }
}

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

const SERVICE = '/v2.KeyManagementService/';
const MAX_ANSWER_BYTES = 128 * 1024;

/** Connects over a unix socket. gRPC is loaded here because few clusters need it. */
export async function connectKeyService({ endpoint, timeoutMs }: KmsOptions, clock: Clock): Promise<KeyService> {
  const { default: grpc } = await import('@grpc/grpc-js');
  const { Client, credentials } = grpc;
  const client = new Client(endpoint.replace(/^unix:\/\//, 'unix:'), credentials.createInsecure(), {
    'grpc.max_receive_message_length': MAX_ANSWER_BYTES,
  });
  const call = (method: string, request: Buffer): Promise<Fields> =>
    new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        SERVICE + method,
        (message: Buffer) => message,
        (bytes: Buffer) => bytes,
        request,
        { deadline: clock.now() + timeoutMs },
        (error, answer) => {
          // A throw in this callback would end the process.
          try {
            if (error !== null) throw error;
            resolve(readFields(answer ?? Buffer.alloc(0)));
          } catch (cause) {
            reject(new KeyServiceError(cause instanceof Error ? cause.message : String(cause), { cause }));
          }
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
