/**
 * Wraps a client, so that it writes only while a condition holds, for the work of a leader: what still runs after the end of
 * its term can no longer change the cluster. Reads always pass.
 */
import { newServiceUnavailable } from '../meta/status-error.ts';
import type { Client } from './client.ts';

/** Writes reject with 503 while `mayWrite` is false. The condition is read when a write begins. */
export function fencedClient(client: Client, mayWrite: () => boolean): Client {
  const fenced =
    <Arguments extends unknown[], T>(write: (...args: Arguments) => Promise<T>) =>
    async (...args: Arguments): Promise<T> => {
      if (!mayWrite()) throw newServiceUnavailable('this process is no longer the leader');
      return write(...args);
    };
  return {
    get: (...args) => client.get(...args),
    list: (...args) => client.list(...args),
    watch: (...args) => client.watch(...args),
    create: fenced((...args) => client.create(...args)),
    update: fenced((...args) => client.update(...args)),
    patch: fenced((...args) => client.patch(...args)),
    delete: fenced((...args) => client.delete(...args)),
    deleteCollection: fenced((...args) => client.deleteCollection(...args)),
  };
}
