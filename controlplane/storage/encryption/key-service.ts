/** Implements a client of a key management service (KMS v2): over gRPC on a unix socket, with answers that may be hostile. */
import { randomUUID } from 'node:crypto';
import { PlainError } from '../../../api/component/plain-error.ts';
import { openChannel } from '../../../api/grpc/grpc-channel.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { KmsOptions } from './encryption-config.ts';
import { bytesField, bytesOf, mapField, mapOf, readFields, textOf, type Fields } from './protobuf-fields.ts';

/** The error for a service that cannot be reached, or whose answer cannot be used. */
export class KeyServiceError extends PlainError {
  override readonly name = 'KeyServiceError';

  constructor(why: string, options?: ErrorOptions) {
    super(`the key management service cannot be used: ${why}`, options);
  }
}

/** What the service returns for a plaintext, as its decryption needs it. */
export interface Wrapped {
  readonly ciphertext: Buffer;
  readonly keyId: string;
  readonly annotations: ReadonlyMap<string, Buffer>;
}

/**
 * The three methods of the service. Each rejects if the call fails, or if the answer is not a message of the protocol. The
 * caller checks the values.
 */
export interface KeyService {
  status(): Promise<{ readonly healthz: string; readonly keyId: string }>;
  encrypt(plaintext: Buffer): Promise<Wrapped>;
  decrypt(wrapped: Wrapped): Promise<Buffer>;
  close(): void;
}

const SERVICE = '/v2.KeyManagementService/';
const MAX_ANSWER_BYTES = 128 * 1024;

/** Connects over a unix socket, with the first call. */
export async function connectKeyService({ endpoint, timeoutMs }: KmsOptions): Promise<KeyService> {
  const target = endpoint.replace(/^unix:\/\//, 'unix:');
  const channel = await openChannel({ target, largestMessageBytes: MAX_ANSWER_BYTES });
  const call = async (method: string, request: Buffer): Promise<Fields> => {
    try {
      return readFields(await channel.call(SERVICE + method, request, { timeoutMs }));
    } catch (cause) {
      throw new KeyServiceError(errorMessage(cause), { cause });
    }
  };
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
    close: () => channel.close(),
  };
}
