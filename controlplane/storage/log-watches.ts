/**
 * Delivers commits to the watches of a storage. A commit is split once by resource (the first two segments of keys). Each watch
 * of a resource receives that part, and watches of other prefixes filter.
 */
import { StorageError, type StorageWatch, type WatchObserver } from './storage.ts';
import type { VersionChange } from './resource-versions.ts';
import { resourceOf } from './version-store.ts';

interface LogWatch {
  readonly prefix: string;
  /** The revision after which events are shown. It may be a future revision. */
  readonly afterRevision: number;
  readonly observer: WatchObserver;
  /** Removes the watch from the delivery. */
  remove(): void;
}

/** A watch whose observer throws is closed; the others get their events. */
export class LogWatches {
  /** The watches by prefix, if the prefix is exactly a resource. */
  readonly #ofResource = new Map<string, Set<LogWatch>>();
  readonly #others = new Set<LogWatch>();
  readonly #failed: (error: unknown, prefix: string) => void;

  /** `failed` is called with the error that an observer throws. */
  constructor(failed: (error: unknown, prefix: string) => void) {
    this.#failed = failed;
  }

  /** Adds a watch. `past` has the events of `prefix` above `afterRevision`, which are delivered before this returns. */
  add(prefix: string, afterRevision: number, past: readonly VersionChange[], observer: WatchObserver): StorageWatch {
    const set = this.#setOf(prefix);
    const remove = (): void => {
      set.delete(watch);
      // Closing a watch twice must not remove the set of later watches.
      if (set.size === 0 && this.#ofResource.get(prefix) === set) this.#ofResource.delete(prefix);
    };
    const watch: LogWatch = { prefix, afterRevision, observer, remove };
    set.add(watch);
    this.#guard(watch, () => send(watch, past));
    return { close: remove };
  }

  /** Sends to each watch its part of the events. */
  deliver(events: readonly VersionChange[]): void {
    if (this.#ofResource.size > 0) {
      for (const [prefix, part] of byResource(events)) {
        for (const watch of this.#ofResource.get(prefix) ?? []) this.#guard(watch, () => send(watch, part));
      }
    }
    for (const watch of this.#others) {
      const part = events.filter((event) => event.key.startsWith(watch.prefix));
      this.#guard(watch, () => send(watch, part));
    }
  }

  /** Notifies of a revision without changes. Watches of exactly one resource are left out. */
  proceeded(): void {
    for (const watch of this.#others) this.#guard(watch, () => watch.observer.onRevision?.());
  }

  /** Notifies all watches that changes up to `revision` could not be followed. */
  gap(revision: number): void {
    for (const watch of [...this.#all()]) this.#guard(watch, () => watch.observer.onGap?.(revision));
  }

  /** Notifies all watches that revisions up to this one were compacted. */
  compacted(revision: number): void {
    for (const watch of [...this.#all()]) this.#guard(watch, () => watch.observer.onCompacted?.(revision));
  }

  end(error: StorageError | undefined): void {
    const watches = [...this.#all()];
    this.#ofResource.clear();
    this.#others.clear();
    for (const watch of watches) this.#end(watch, error);
  }

  /** Closes the watch whose observer throws, and no other. */
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
    if (resourceOf(prefix) !== prefix) return this.#others;
    let set = this.#ofResource.get(prefix);
    if (set === undefined) this.#ofResource.set(prefix, (set = new Set()));
    return set;
  }
}

function send(watch: LogWatch, events: readonly VersionChange[]): void {
  const first = events[0];
  if (first === undefined) return;
  if (first.revision > watch.afterRevision) {
    watch.observer.onEvents(events);
    return;
  }
  // The watch begins at a revision that was in the future when it was opened.
  const later = events.filter((event) => event.revision > watch.afterRevision);
  if (later.length > 0) watch.observer.onEvents(later);
}

function byResource(events: readonly VersionChange[]): Map<string, VersionChange[]> {
  const parts = new Map<string, VersionChange[]>();
  for (const event of events) {
    const prefix = resourceOf(event.key);
    const part = parts.get(prefix);
    if (part === undefined) parts.set(prefix, [event]);
    else part.push(event);
  }
  return parts;
}
