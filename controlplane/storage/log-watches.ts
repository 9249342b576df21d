/**
 * The watches of a revision log. A commit is split by resource (the first two segments of keys) once; each watch of a
 * resource gets that part, watches of other prefixes filter.
 */
import { keyOf, revisionOf } from './event-history.ts';
import { StorageError, type StorageEvent, type StorageWatch, type WatchObserver } from './storage.ts';

interface LogWatch {
  readonly prefix: string;
  /** Only later events are shown; a watch may begin at a revision that is yet to come. */
  readonly afterRevision: number;
  readonly observer: WatchObserver;
  /** Takes the watch out of the delivery. */
  remove(): void;
}

export class LogWatches {
  /** By prefix where that is exactly a resource. */
  readonly #ofResource = new Map<string, Set<LogWatch>>();
  readonly #others = new Set<LogWatch>();
  readonly #failed: (error: unknown, prefix: string) => void;

  /** `failed` is called with what an observer throws. */
  constructor(failed: (error: unknown, prefix: string) => void) {
    this.#failed = failed;
  }

  /** `past`: events above `afterRevision`; delivered before it returns. */
  add(prefix: string, afterRevision: number, past: readonly StorageEvent[], observer: WatchObserver): StorageWatch {
    const set = this.#setOf(prefix);
    const remove = (): void => {
      set.delete(watch);
      // A watch that is closed twice must not take away the set of later watches.
      if (set.size === 0 && this.#ofResource.get(prefix) === set) this.#ofResource.delete(prefix);
    };
    const watch: LogWatch = { prefix, afterRevision, observer, remove };
    set.add(watch);
    const mine = past.filter((event) => keyOf(event).startsWith(prefix));
    this.#guard(watch, () => send(watch, mine));
    return { close: remove };
  }

  deliver(events: readonly StorageEvent[]): void {
    if (this.#ofResource.size > 0) {
      for (const [prefix, part] of byResource(events)) {
        for (const watch of this.#ofResource.get(prefix) ?? []) this.#guard(watch, () => send(watch, part));
      }
    }
    for (const watch of this.#others) {
      const part = events.filter((event) => keyOf(event).startsWith(watch.prefix));
      this.#guard(watch, () => send(watch, part));
    }
  }

  compacted(revision: number): void {
    for (const watch of [...this.#all()]) this.#guard(watch, () => watch.observer.onCompacted?.(revision));
  }

  end(error: StorageError | undefined): void {
    const watches = [...this.#all()];
    this.#ofResource.clear();
    this.#others.clear();
    for (const watch of watches) this.#end(watch, error);
  }

  /** What an observer throws ends its own watch and nothing else. */
  #guard(watch: LogWatch, notify: () => void): void {
    try {
      notify();
    } catch (error) {
      watch.remove();
      this.#failed(error, watch.prefix);
      this.#end(watch, new StorageError('unusable', 'the watch failed', { cause: error }));
    }
  }

  #end(watch: LogWatch, error: StorageError | undefined): void {
    try {
      watch.observer.onEnd(error);
    } catch (cause) {
      this.#failed(cause, watch.prefix);
    }
  }

  *#all(): Generator<LogWatch, void, undefined> {
    for (const set of this.#ofResource.values()) yield* set;
    yield* this.#others;
  }

  #setOf(prefix: string): Set<LogWatch> {
    if (resourcePrefixOf(prefix) !== prefix) return this.#others;
    let set = this.#ofResource.get(prefix);
    if (set === undefined) this.#ofResource.set(prefix, (set = new Set()));
    return set;
  }
}

function send(watch: LogWatch, events: readonly StorageEvent[]): void {
  const first = events[0];
  if (first === undefined) return;
  if (revisionOf(first) > watch.afterRevision) {
    watch.observer.onEvents(events);
    return;
  }
  // A watch from a revision that was not there yet when it began.
  const later = events.filter((event) => revisionOf(event) > watch.afterRevision);
  if (later.length > 0) watch.observer.onEvents(later);
}

function byResource(events: readonly StorageEvent[]): Map<string, StorageEvent[]> {
  const parts = new Map<string, StorageEvent[]>();
  for (const event of events) {
    const prefix = resourcePrefixOf(keyOf(event));
    const part = parts.get(prefix);
    if (part === undefined) parts.set(prefix, [event]);
    else part.push(event);
  }
  return parts;
}

/** `/<group>/<resource>/` of a key; `''` when it has less. */
function resourcePrefixOf(key: string): string {
  const end = key.indexOf('/', key.indexOf('/', 1) + 1);
  return end <= 0 ? '' : key.slice(0, end + 1);
}
