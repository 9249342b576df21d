/**
 * Wraps a watch cache for one state of a definition. When the definition changes, the watches of the previous state end, and
 * clients list and watch again.
 */
import type { WatchCache } from '../../storage/watch-cache.ts';
import { tooOld } from '../../storage/version-errors.ts';

/** A cache whose watches can be ended together. */
export interface LeasedCache {
  readonly cache: WatchCache;
  /** Ends all watches that were opened through this lease. */
  end(): void;
}

/**
 * Wraps a cache. Watches that would begin before the revision `since` are refused, because what happened before was not the
 * state of this definition.
 */
export function leaseCache(cache: WatchCache, since: number): LeasedCache {
  const running = new Map<object, () => void>();
  return {
    cache: {
      resource: cache.resource,
      revision: () => cache.revision(),
      get: (namespace, name) => cache.get(namespace, name),
      list: (options) => cache.list(options),
      listInSlices: (options, signal) => cache.listInSlices(options, signal),
      count: (namespace) => cache.count(namespace),
      entryOf: (stored) => cache.entryOf(stored),
      deletedEntry: (entry, revision) => cache.deletedEntry(entry, revision),
      waitFor: (revision, options) => cache.waitFor(revision, options),
      keyOf: (namespace, name) => cache.keyOf(namespace, name),
      close: () => cache.close(),
      watch(options, sink) {
        const { afterRevision } = options;
        if (afterRevision !== undefined && afterRevision < since) throw tooOld(afterRevision, since);
        const key = {};
        const handle = cache.watch(options, {
          isPatient: sink.isPatient === true,
          onEvents: (events) => sink.onEvents(events),
          onEnd() {
            running.delete(key);
            sink.onEnd();
          },
        });
        running.set(key, () => {
          handle.close();
          sink.onEnd();
        });
        return {
          resume: () => handle.resume(),
          bookmark: () => handle.bookmark(),
          close() {
            running.delete(key);
            handle.close();
          },
        };
      },
    },
    end() {
      for (const [key, stop] of [...running]) {
        running.delete(key);
        stop();
      }
    },
  };
}
