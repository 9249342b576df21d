/**
 * Defines a transformation between values in memory and values on disk: encryption at rest. Readers and watches do not notice
 * it.
 */

/** A value in its stored form. */
export interface ValueAtRest {
  readonly key: string;
  readonly value: Buffer;
}

/** Encrypts and decrypts; a storage without one stores values as they are. */
export interface ValueTransformer {
  /**
   * Returns the stored form. Throws if the value cannot be encrypted, and then nothing is written. `context` is authenticated
   * with the value by providers that authenticate: the key by default, and in etcd the key of kube-apiserver.
   */
  seal(key: string, value: Buffer, context?: string): Buffer;
  /** Fetches the keys that decrypt the values. It is called before `open`. */
  unlock(values: Iterable<ValueAtRest>): Promise<void>;
  /** Throws an error with the key if the value cannot be decrypted. */
  open(key: string, stored: Buffer, context?: string): Buffer;
}

const MARK = Buffer.from('k8s:enc:');

/** Whether the stored form begins with the mark of encrypted values. */
export const isSealed = (stored: Buffer): boolean =>
  stored.length >= MARK.length && stored.compare(MARK, 0, MARK.length, 0, MARK.length) === 0;

/** Used without a configuration. Encrypted values then cannot be read, and the start reports it. */
export const plainValues: ValueTransformer = {
  seal: (_key, value) => value,
  unlock: () => Promise.resolve(),
  open(key, stored) {
    if (isSealed(stored)) throw new Error(`${key} is encrypted: give --encryption-provider-config`);
    return stored;
  },
};
