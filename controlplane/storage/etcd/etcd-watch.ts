/**
 * Follows all changes of an etcd cluster with one watch of every key. A watch that breaks is opened again after the last
 * applied revision, so that nothing is missing.
 *
 * All keys are watched, and not only the keys of the API server, because then every revision has an event. So the state is
 * complete up to each applied revision.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import { EVENT_DELETE } from './etcd-interface.ts';
import type { EtcdServers, EtcdWatchResponse } from './etcd-servers.ts';

/** A change of one key. */
export interface EtcdEvent {
  readonly key: string;
  /** `undefined` if the key was deleted. */
  readonly value: Buffer | undefined;
  readonly createRevision: number;
  readonly revision: number;
}

interface EtcdWatchOptions {
  readonly servers: EtcdServers;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** Returns the newest revision that was applied. */
  applied(): number;
  /** Throws if etcd shows an older state than what was applied. Called before each watch. */
  verify(): Promise<void>;
  /** Applies all events of one or more revisions. The next ones wait for the promise. */
  apply(events: readonly EtcdEvent[]): Promise<void> | undefined;
  /** Loads the state again, because etcd no longer has the changes after the applied revision. */
  reload(): Promise<void>;
}

/**
 * The error of a watch in which a revision is missing. Some releases of etcd drop a deletion at the compacted revision from a
 * watch that begins there.
 */
export class RevisionGapError extends Error {
  override readonly name = 'RevisionGapError';
}

/** Throws `RevisionGapError` unless each revision above `applied` has an event. */
export function assertComplete(events: readonly EtcdEvent[], applied: number): void {
  let last = applied;
  for (const { revision } of events) {
    if (revision > last + 1) throw new RevisionGapError(`etcd has sent revision ${revision} after ${last}`);
    last = Math.max(last, revision);
  }
}

const EVERY_KEY = Buffer.alloc(1);
const REOPEN = { firstMs: 50, longestMs: 2000 };

/** Watches all keys until the signal aborts, and reloads them if their changes were compacted or a revision is missing. */
export async function followEtcd(options: EtcdWatchOptions): Promise<void> {
  const { clock, logger, signal } = options;
  const backoff = new Backoff({ ...REOPEN });
  let mustReload = false;
  while (!signal.aborted) {
    const before = options.applied();
    try {
      await options.verify();
      if (mustReload || (await watchOnce(options)) === 'compacted') await options.reload();
      mustReload = false;
    } catch (error) {
      if (signal.aborted) return;
      logger.warn({ err: error, revision: options.applied() }, 'The watch of etcd broke and is opened again');
      mustReload = error instanceof RevisionGapError;
    }
    if (options.applied() > before) backoff.reset();
    await pause(clock, backoff.next(), signal);
  }
}

/** Resolves to the reason why the watch ended. Throws the error that broke it, or with which a change could not be applied. */
async function watchOnce(options: EtcdWatchOptions): Promise<'ended' | 'compacted'> {
  const { servers, signal, applied } = options;
  const stop = new AbortController();
  const onAbort = (): void => stop.abort();
  signal.addEventListener('abort', onAbort, { once: true });
  let end: 'ended' | 'compacted' = 'ended';
  const events = new EventQueue(options, (error) => {
    failure ??= error;
    stop.abort();
  });
  let failure: unknown;
  const onMessage = (response: EtcdWatchResponse): void => {
    if (response.canceled) {
      if (response.compactRevision > 0) end = 'compacted';
      else failure ??= new Error(`etcd cancelled the watch: ${response.cancelReason}`);
      stop.abort();
    } else events.take(response);
  };
  const request = { key: EVERY_KEY, rangeEnd: EVERY_KEY, startRevision: applied() + 1 };
  try {
    await servers.watch(request, onMessage, stop.signal);
  } finally {
    signal.removeEventListener('abort', onAbort);
    await events.drained();
  }
  if (failure !== undefined) throw failure as Error;
  return end;
}

/** Joins the fragments of responses and applies them one after another. */
class EventQueue {
  readonly #options: EtcdWatchOptions;
  readonly #failed: (error: unknown) => void;
  #fragments: EtcdEvent[] = [];
  #running: Promise<void> | undefined;
  #isFailed = false;

  constructor(options: EtcdWatchOptions, failed: (error: unknown) => void) {
    this.#options = options;
    this.#failed = failed;
  }

  take({ events, fragment }: EtcdWatchResponse): void {
    for (const { type, kv } of events) {
      if (kv === null) continue;
      this.#fragments.push({
        key: kv.key.toString(),
        value: type === EVENT_DELETE ? undefined : kv.value,
        createRevision: kv.createRevision,
        revision: kv.modRevision,
      });
    }
    if (fragment || this.#fragments.length === 0) return;
    const whole = this.#fragments;
    this.#fragments = [];
    const work = this.#running === undefined ? this.#apply(whole) : this.#running.then(() => this.#apply(whole));
    const running = work?.then(() => {
      if (this.#running === running) this.#running = undefined;
    });
    this.#running = running;
  }

  /** Resolves when everything that was taken is applied or given up. */
  async drained(): Promise<void> {
    await this.#running;
  }

  #apply(events: readonly EtcdEvent[]): Promise<void> | undefined {
    if (this.#isFailed) return undefined;
    try {
      const applied = this.#options.apply(events);
      return applied?.catch((error: unknown) => this.#fail(error));
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  }

  #fail(error: unknown): void {
    this.#isFailed = true;
    this.#failed(error);
  }
}
