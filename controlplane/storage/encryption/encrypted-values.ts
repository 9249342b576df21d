/**
 * Implements the storage's value transformer for an encryption configuration. It selects the providers of a storage
 * key, and finds the provider that encrypted a value.
 */
import { type ValueAtRest, type ValueTransformer, isSealed } from '../value-transformer.ts';
import type { ResourceProviders } from './encryption-config.ts';
import type { EncryptionProvider } from './provider.ts';

/** A value transformer that encrypts what the configuration names, and reads what one of its providers has encrypted. */
export interface EncryptedValues extends ValueTransformer {
  /** Whether values under the key are encrypted. */
  isEncrypted(key: string): boolean;
  /** One check for each provider with a key management service. A check throws if the service is not usable. */
  readonly keyServices: readonly (() => Promise<void>)[];
  close(): void;
}

/**
 * Returns the transformer that encrypts and decrypts stored values by the rows. The first row that covers a resource
 * determines its providers; a resource without a row is stored as it is.
 */
export function encryptedValues(rows: readonly ResourceProviders[]): EncryptedValues {
  const all = rows.flatMap((row) => row.providers);
  const byResource = new Map<string, readonly EncryptionProvider[]>();
  const providersOf = (key: string): readonly EncryptionProvider[] => {
    const [, group = '', resource = ''] = key.split('/', 3);
    const name = group === 'core' ? resource : `${resource}.${group}`;
    let found = byResource.get(name);
    if (found === undefined) {
      const row = rows.find(({ resources }) => resources.some((pattern) => covers(pattern, resource, group)));
      found = row?.providers ?? [];
      byResource.set(name, found);
    }
    return found;
  };
  const openerOf = (key: string, stored: Buffer): EncryptionProvider | undefined => {
    const ofResource = providersOf(key);
    if (!isSealed(stored)) return ofResource.length === 0 ? undefined : ofResource.find(({ prefix }) => prefix === '');
    // A value that was encrypted under another row of the configuration stays readable while the configuration contains
    // its provider.
    return [...ofResource, ...all].find(({ prefix }) => prefix !== '' && startsWith(stored, prefix));
  };
  return {
    keyServices: all.flatMap(({ checkKeyService }) => checkKeyService ?? []),
    isEncrypted: (key) => (providersOf(key)[0]?.prefix ?? '') !== '',
    seal(key, value, context = key) {
      const [writer] = providersOf(key);
      if (writer === undefined || writer.prefix === '') return value;
      return Buffer.concat([Buffer.from(writer.prefix), writer.seal(value, context)]);
    },
    async unlock(values: Iterable<ValueAtRest>) {
      const sealed = new Map<EncryptionProvider, Buffer[]>();
      for (const { key, value } of values) {
        const opener = openerOf(key, value);
        if (opener?.unlock === undefined) continue;
        const list = sealed.get(opener) ?? [];
        list.push(value.subarray(opener.prefix.length));
        sealed.set(opener, list);
      }
      for (const [opener, list] of sealed) await opener.unlock?.(list);
    },
    open(key, stored, context = key) {
      const opener = openerOf(key, stored);
      if (opener === undefined) {
        if (!isSealed(stored) && providersOf(key).length === 0) return stored;
        const why = isSealed(stored)
          ? 'no configured provider matches its prefix'
          : 'it is not encrypted, and identity is not a configured provider';
        throw new Error(`${key} cannot be read: ${why}`);
      }
      try {
        return opener.open(stored.subarray(opener.prefix.length), context);
      } catch (error) {
        throw new Error(`${key} cannot be decrypted`, { cause: error });
      }
    },
    close() {
      for (const provider of all) provider.close?.();
    },
  };
}

const startsWith = (stored: Buffer, prefix: string): boolean =>
  stored.subarray(0, prefix.length).toString('latin1') === prefix;

function covers(pattern: string, resource: string, group: string): boolean {
  if (pattern === '*.*') return true;
  const dot = pattern.indexOf('.');
  const [name, wanted] = dot < 0 ? [pattern, ''] : [pattern.slice(0, dot), pattern.slice(dot + 1)];
  return (name === '*' || name === resource) && wanted === (group === 'core' ? '' : group);
}
