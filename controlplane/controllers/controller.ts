/**
 * Implements the environment and the reconcile loop of controllers: event handlers add keys to a work queue, and workers
 * reconcile one key at a time from the newest state.
 */
import type { KubeObject } from '../../api/meta/object.ts';
import { isConflict, isNotFound, isStatusError } from '../../api/meta/status-error.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { LoopTurns } from '../../api/machinery/loop-turns.ts';
import { periodically } from '../../api/machinery/periodic.ts';
import type { EventRecorder } from '../../api/client/event-report.ts';
import type { Informer, Informers } from '../../api/client/informer.ts';
import type { TypedClient } from '../../api/client/typed-client.ts';
import { type QueueObserver, runWorkers, WorkQueue } from '../../api/machinery/work-queue.ts';
import type { ResourceCatalog } from '../model/rest.ts';
import type { ControllerOptions } from './controller-options.ts';

/** What `start.ts` passes to a controller. */
export interface ControllerEnvironment {
  /** The controller's name, as in `--controllers`. */
  readonly name: string;
  /** Acts as the controller's own service account, or as kube-controller-manager if it has none. */
  readonly client: TypedClient;
  /** The informers, which all controllers share. Their objects are never changed. */
  readonly informers: Informers;
  readonly recorder: EventRecorder;
  readonly clock: Clock;
  readonly turns?: LoopTurns;
  readonly logger: Logger;
  readonly catalog: ResourceCatalog;
  readonly options: ControllerOptions;
  /** Creates the observer of one of the controller's queues. */
  readonly observeQueue?: () => QueueObserver;
}

/** Runs until the signal aborts and all running work has ended. */
export type RunController = (environment: ControllerEnvironment, signal: AbortSignal) => Promise<void>;

interface LoopOptions {
  readonly workers?: number;
  /** The delay after a first failure, and the longest delay. */
  readonly baseDelayMs?: number;
  readonly maxDelayMs?: number;
  readonly reconcile: (key: string, signal: AbortSignal) => Promise<void>;
}

/** What must be synced before the loop starts, such as an informer. */
interface Cache {
  synced(signal?: AbortSignal): Promise<void>;
}

type LoopEnvironment = Pick<ControllerEnvironment, 'clock' | 'logger' | 'turns' | 'observeQueue'>;

/**
 * Runs workers on a queue of keys. A key that fails is retried with a backoff. No two workers reconcile the same key at once.
 */
export class ReconcileLoop {
  readonly queue: WorkQueue;
  readonly #environment: LoopEnvironment;
  readonly #options: LoopOptions;

  constructor(environment: LoopEnvironment, options: LoopOptions) {
    this.#environment = environment;
    this.#options = options;
    const { baseDelayMs, maxDelayMs } = options;
    this.queue = new WorkQueue({
      clock: environment.clock,
      ...(environment.observeQueue === undefined ? {} : { observer: environment.observeQueue() }),
      ...(baseDelayMs === undefined ? {} : { baseDelayMs }),
      ...(maxDelayMs === undefined ? {} : { maxDelayMs }),
    });
  }

  readonly enqueue = (object: KubeObject): void => void this.queue.add(keyOf(object));

  /** Adds the key of every object that is added, updated or deleted. */
  follow<T extends KubeObject>(informer: Informer<T>): void {
    informer.addHandler({ add: this.enqueue, update: (_, current) => this.enqueue(current), delete: this.enqueue });
  }

  /** Waits for the informers, then reconciles until the signal aborts. */
  async run(signal: AbortSignal, ...caches: readonly Cache[]): Promise<void> {
    try {
      await Promise.all(caches.map((cache) => cache.synced(signal)));
    } catch (error) {
      if (signal.aborted) return;
      throw error;
    }
    const { logger, turns } = this.#environment;
    await runWorkers({
      queue: this.queue,
      workers: this.#options.workers ?? 1,
      signal,
      ...(turns === undefined ? {} : { turns }),
      reconcile: this.#options.reconcile,
      onError: (error, key, failures) => {
        // Another client wrote or deleted the object first. The next reconciliation gets the newest state.
        if (isConflict(error) || (isNotFound(error) && failures < 3))
          logger.debug({ key, failures, err: error }, 'The object was written or deleted meanwhile; trying again');
        else if (isStatusError(error))
          logger.warn({ key, failures, err: error }, 'An object could not be reconciled; trying again');
        else logger.error({ key, failures, err: error }, 'An object could not be reconciled; trying again');
      },
    });
  }
}

/** Returns the key of an object in work queues: `namespace/name`, or the name of a cluster-scoped object. */
export function keyOf(object: KubeObject): string {
  const { namespace = '', name = '' } = object.metadata;
  return namespace === '' ? name : `${namespace}/${name}`;
}

/** Splits a key of `keyOf`: the namespace is '' for cluster-scoped objects. */
export function splitKey(key: string): { readonly namespace: string; readonly name: string } {
  const slash = key.indexOf('/');
  return slash < 0 ? { namespace: '', name: key } : { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

/** Resolves when the signal aborts. */
export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

/** Calls the function repeatedly, with a pause in between, until the signal aborts. Failures are logged. */
export async function every(
  environment: Pick<ControllerEnvironment, 'clock' | 'logger'>,
  periodMs: number,
  signal: AbortSignal,
  turn: () => Promise<void>,
): Promise<void> {
  const { clock, logger } = environment;
  const onError = (error: unknown): void =>
    logger.warn({ err: error }, 'A periodic task of a controller failed; it is tried again');
  await periodically(turn, { clock, periodMs, signal, onError });
}
