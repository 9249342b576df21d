/** What may stand between values in memory and values on disk: encryption at rest. Readers and watchers never notice. */

export interface KeptValue {
  readonly key: string;
  readonly value: Buffer;
}

export interface ValueTransformer {
  /** As it is kept. Throws where it cannot be protected; nothing is written then. */
  seal(key: string, value: Buffer): Buffer;
  /** Called once with everything that was kept, before any of it is opened: keys are fetched here. */
  unlock(values: Iterable<KeptValue>): Promise<void>;
  /** Throws with the key's name where the value cannot be opened. */
  open(key: string, kept: Buffer): Buffer;
}

const MARK = Buffer.from('k8s:enc:');

export const isSealed = (kept: Buffer): boolean =>
  kept.length >= MARK.length && kept.compare(MARK, 0, MARK.length, 0, MARK.length) === 0;

/** Without a configuration: what is sealed stays unreadable, and the start says so. */
export const plainValues: ValueTransformer = {
  seal: (_key, value) => value,
  unlock: () => Promise.resolve(),
  open(key, kept) {
    if (isSealed(kept)) throw new Error(`${key} is encrypted: give --encryption-provider-config`);
    return kept;
  },
};
