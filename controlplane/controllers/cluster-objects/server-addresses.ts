/**
 * Stores which API servers run, like kube-apiserver's lease reconciler and under its keys (`/registry/masterleases/<address>`):
 * each server writes its address again and again, and the storage removes the address of a server that no longer does.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import { encodeObject, parseObject } from '../../storage/object-bytes.ts';
import { SERVER_ADDRESSES } from '../../storage/etcd/keys.ts';
import { isStorageError, type Storage } from '../../storage/storage.ts';
import type { StoredValue } from '../../storage/resource-versions.ts';

/** How long an address stays after its last renewal, as in kube-apiserver. */
const LIFE_MS = 15_000;
/** How often a server writes its address, in milliseconds, as in kube-apiserver. */
export const RENEW_MS = 10_000;

/** The registry of running API servers. */
export interface ServerAddresses {
  /** Writes this server's address. A former address that differs is removed. */
  renew(address: string): Promise<void>;
  /** The addresses of all running servers, sorted as text. That of this server is among them after a `renew`. */
  all(): Promise<readonly string[]>;
  /** Removes the address of this server. */
  remove(): Promise<void>;
  /** Calls the listener when a server comes or goes, until the returned function is called or the watch ends. */
  onChange(changed: () => void): () => void;
}

/** Keeps the state of one server; nothing is written before the first `renew`. */
export function serverAddresses(storage: Storage, clock: Clock): ServerAddresses {
  let ownAddress: string | undefined;
  const remove = async (): Promise<void> => {
    if (ownAddress === undefined) return;
    const key = `${SERVER_ADDRESSES}${ownAddress}`;
    ownAddress = undefined;
    const current = await newest(storage, key);
    if (current !== undefined) await ignoringRaces(storage.delete(key, current.revision));
  };
  return {
    async renew(address) {
      if (ownAddress !== address) await remove();
      ownAddress = address;
      const key = `${SERVER_ADDRESSES}${address}`;
      const current = await newest(storage, key);
      const value = valueOf(address, current);
      const options = { expiresAtMs: clock.now() + LIFE_MS };
      // Another process with the same address may have written it at the same time, which is as good.
      if (current === undefined) await ignoringRaces(storage.create(key, value, options));
      else await ignoringRaces(storage.update(key, value, current.revision, options));
    },
    async all() {
      await storage.catchUp?.();
      const { items } = await storage.list(SERVER_ADDRESSES);
      return items.map(({ key }) => key.slice(SERVER_ADDRESSES.length)).toSorted();
    },
    remove,
    onChange(changed) {
      const watch = storage.watch(
        { prefix: SERVER_ADDRESSES, afterRevision: storage.revision() },
        {
          onEvents(events) {
            if (events.some(({ current, previous }) => current === undefined || previous === undefined)) changed();
          },
          // `keepKubernetesService` checks the addresses periodically as well.
          onEnd: () => undefined,
        },
      );
      return () => watch.close();
    },
  };
}

async function newest(storage: Storage, key: string): Promise<StoredValue | undefined> {
  await storage.catchUp?.();
  return storage.get(key);
}

/** Increments the generation, as kube-apiserver does, so that each renewal changes the value. */
function valueOf(address: string, current: StoredValue | undefined): Buffer {
  const generation = current === undefined ? 0 : (parseObject(current.value).metadata.generation ?? 0);
  return encodeObject({
    kind: 'Endpoints',
    apiVersion: 'v1',
    metadata: { generation: generation + 1 },
    subsets: [{ addresses: [{ ip: address }] }],
  });
}

async function ignoringRaces(write: Promise<unknown>): Promise<void> {
  try {
    await write;
  } catch (error) {
    const isRace = (['exists', 'conflict', 'not-found'] as const).some((code) => isStorageError(error, code));
    if (!isRace) throw error;
  }
}
