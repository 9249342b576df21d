/**
 * Implements the providers that encrypt values with keys from the configuration (AES-GCM, AES-CBC, secretbox), and the identity
 * provider.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { NONCE_BYTES, openBox, sealBox } from './secretbox.ts';

/** Encrypts and decrypts the values of the storage. */
export interface EncryptionProvider {
  /** The prefix of the provider's values; empty for values that are stored unencrypted. */
  readonly prefix: string;
  /**
   * Encrypts a value. Returns it without the prefix. `context` is the storage key. Providers that authenticate it (`aesgcm`
   * and `kms`) refuse an encrypted value that was moved to another key; `aescbc` and `secretbox` ignore it.
   */
  seal(value: Buffer, context: string): Buffer;
  /** Throws if the value cannot be decrypted. `aescbc` has no checksum, and may return other bytes for a changed value. */
  open(sealed: Buffer, context: string): Buffer;
  /** Fetches the keys that `open` needs. */
  unlock?(sealed: Iterable<Buffer>): Promise<void>;
  /** Throws if the provider's key management service is not usable. Absent if the key is in the configuration. */
  checkKeyService?(): Promise<void>;
  close?(): void;
}

/** A key of the configuration. Its name is part of the prefix of the values that it encrypts. */
export interface NamedKey {
  readonly name: string;
  readonly secret: Buffer;
}

/** Stores values as they are. */
export const identityProvider: EncryptionProvider = { prefix: '', seal: (value) => value, open: (value) => value };

const GCM_NONCE_BYTES = 12;
const GCM_TAG_BYTES = 16;

/** Returns the nonce, the ciphertext and the tag. */
export function gcmSeal(key: Buffer, value: Buffer, context: string): Buffer {
  const nonce = randomBytes(GCM_NONCE_BYTES);
  const cipher = createCipheriv(gcmName(key), key, nonce);
  cipher.setAAD(Buffer.from(context));
  return Buffer.concat([nonce, cipher.update(value), cipher.final(), cipher.getAuthTag()]);
}

/** Decrypts a nonce, the ciphertext and its tag with AES-GCM. `context` is the associated data. Throws if they were changed. */
export function gcmOpen(key: Buffer, sealed: Buffer, context: string): Buffer {
  if (sealed.length < GCM_NONCE_BYTES + GCM_TAG_BYTES) throw new Error('the encrypted value is truncated');
  const decipher = createDecipheriv(gcmName(key), key, sealed.subarray(0, GCM_NONCE_BYTES), {
    authTagLength: GCM_TAG_BYTES,
  });
  decipher.setAAD(Buffer.from(context));
  decipher.setAuthTag(sealed.subarray(-GCM_TAG_BYTES));
  return Buffer.concat([decipher.update(sealed.subarray(GCM_NONCE_BYTES, -GCM_TAG_BYTES)), decipher.final()]);
}

const gcmName = (key: Buffer) => `aes-${(key.length * 8) as 128 | 192 | 256}-gcm` as const;

const CBC_IV_BYTES = 16;

function cbcSeal(key: Buffer, value: Buffer): Buffer {
  const iv = randomBytes(CBC_IV_BYTES);
  const cipher = createCipheriv(`aes-${key.length * 8}-cbc`, key, iv);
  return Buffer.concat([iv, cipher.update(value), cipher.final()]);
}

function cbcOpen(key: Buffer, sealed: Buffer): Buffer {
  const decipher = createDecipheriv(`aes-${key.length * 8}-cbc`, key, sealed.subarray(0, CBC_IV_BYTES));
  return Buffer.concat([decipher.update(sealed.subarray(CBC_IV_BYTES)), decipher.final()]);
}

interface Cipher {
  readonly keyBytes: readonly number[];
  seal(key: Buffer, value: Buffer, context: string): Buffer;
  open(key: Buffer, sealed: Buffer, context: string): Buffer;
}

const CIPHERS: ReadonlyMap<string, Cipher> = new Map(
  Object.entries({
    aesgcm: { keyBytes: [16, 24, 32], seal: gcmSeal, open: gcmOpen },
    aescbc: { keyBytes: [16, 24, 32], seal: cbcSeal, open: cbcOpen },
    secretbox: {
      keyBytes: [32],
      seal(key, value) {
        const nonce = randomBytes(NONCE_BYTES);
        return Buffer.concat([nonce, sealBox(key, nonce, value)]);
      },
      open(key, sealed) {
        const opened = openBox(key, sealed.subarray(0, NONCE_BYTES), sealed.subarray(NONCE_BYTES));
        if (opened === undefined) throw new Error('the value was not encrypted with this key');
        return opened;
      },
    },
  }),
);

/** The providers with keys in the configuration, as the file names them. */
export const CIPHER_NAMES: readonly string[] = [...CIPHERS.keys()];

/** Creates one provider for each key. The first one encrypts. Throws for invalid keys. */
export function keyProviders(cipherName: string, keys: readonly NamedKey[]): EncryptionProvider[] {
  const cipher = CIPHERS.get(cipherName);
  if (cipher === undefined) throw new Error(`"${cipherName}" is not a provider`);
  return keys.map(({ name, secret }) => {
    if (!cipher.keyBytes.includes(secret.length))
      throw new Error(`${cipherName} key "${name}" must have ${cipher.keyBytes.join(', ')} bytes`);
    return {
      prefix: `k8s:enc:${cipherName}:v1:${name}:`,
      seal: (value, context) => cipher.seal(secret, value, context),
      open: (sealed, context) => cipher.open(secret, sealed, context),
    };
  });
}
