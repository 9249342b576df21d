/**
 * Shuts the node down gracefully. When the host shuts down, the node becomes NotReady and admits no pods, and its pods
 * terminate by priority, the lowest first, each group within its period.
 */
import { dirname } from 'node:path';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { readOwnFile } from '../../base/files/regular-file.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';
import type { Pod } from '../../base/model/pod.ts';
import { formatPod } from '../../runtime/kuberuntime/pod-containers.ts';
import type { Refusal } from '../../base/model/refusal.ts';
import type { PodKiller } from '../../pods/workers/kill-pod.ts';
import type { InhibitorLock, Logind } from './logind.ts';
import {
  graceSeconds,
  groupByPriority,
  type ShutdownGroup,
  type ShutdownPeriod,
  totalSeconds,
} from './shutdown-order.ts';

/** The file in the root directory with the state of a graceful shutdown. */
export const SHUTDOWN_STATE_FILE = 'graceful_node_shutdown_state';

/** What the shutdown reads and does. Periods are those of the configuration, the lowest priority first. */
export interface NodeShutdownOptions {
  /** The periods of the shutdown. If empty, the login manager is not used. */
  readonly periods: readonly ShutdownPeriod[];
  readonly logind: Logind;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly activePods: () => readonly Pod[];
  readonly killer: PodKiller;
  /** Records an event about the node. */
  readonly nodeEvent: (reason: string, message: string) => void;
  /** Called when the status of the node must change. */
  readonly nodeChanged: () => void;
  /** The file with the times of the last shutdown, for the next start and for `orchlet stop`. */
  readonly stateFile: string;
  /** Called with the times of the last shutdown in epoch seconds; 0 if it has not started or ended. */
  readonly onTimes: (times: { readonly startSeconds: number; readonly endSeconds: number }) => void;
}

interface Times {
  readonly startTime?: string;
  readonly endTime?: string;
}

const REASON = 'Terminated';
const MESSAGE = 'Pod was terminated in response to imminent node shutdown.';
const REFUSAL: Refusal = { reason: 'NodeShutdown', message: 'Pod was rejected as the node is shutting down.' };
const RETRY_MS = 1000;
const MAX_RETRY_MS = 60_000;
/** How often the delay is read again after the configuration of the login manager has changed, and the pause before each. */
const DELAY_READS = { most: 10, pauseMs: 200 };
/** The periods for `orchlet stop --pods` if none are configured. */
const DEFAULT_STOP_PERIODS: readonly ShutdownPeriod[] = [
  { priority: 0, seconds: 30 },
  { priority: 2_000_000_000, seconds: 10 },
];

/** Owns the lock and the order of the shutdown. */
export class NodeShutdown {
  readonly #options: NodeShutdownOptions;
  #isShuttingDown = false;
  /** The number of shutdowns and cancellations so far. */
  #events = 0;
  #lock: InhibitorLock | undefined;

  constructor(options: NodeShutdownOptions) {
    this.#options = options;
  }

  /** Returns whether the host is shutting down or `stopPods` was called, so that no pod may start. */
  isShuttingDown(): boolean {
    return this.#isShuttingDown;
  }

  /** Returns why a pod is not admitted during the shutdown; `undefined` without a shutdown. */
  refusal(): Refusal | undefined {
    return this.#isShuttingDown ? REFUSAL : undefined;
  }

  /** Monitors shutdowns of the host until the signal aborts. Resolves early if no grace period is set. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, periods } = this.#options;
    await this.#reportLast();
    if (periods.length === 0) return;
    const backoff = new Backoff({ firstMs: RETRY_MS, longestMs: MAX_RETRY_MS });
    while (!signal.aborted) {
      try {
        await this.#watch(signal, () => backoff.reset());
      } catch (error) {
        if (signal.aborted) break;
        logger.warn(
          { err: errorMessage(error) },
          'Cannot monitor shutdowns of the host, which therefore do not wait for pods; retrying',
        );
      }
      await pause(clock, backoff.next(), signal);
    }
    await this.#release();
  }

  /**
   * Terminates the pods as in a shutdown of the host, because an operator stops the node. Without configured periods, pods have
   * 30 seconds and critical pods 10.
   */
  async stopPods(): Promise<void> {
    this.#setShuttingDown(true);
    await this.#terminatePods(this.#options.periods.length > 0 ? this.#options.periods : DEFAULT_STOP_PERIODS);
  }

  async #watch(signal: AbortSignal, onListening: () => void): Promise<void> {
    const { logind, logger, periods } = this.#options;
    const wantedMs = totalSeconds(periods) * 1000;
    if ((await logind.inhibitDelayMs()) < wantedMs) {
      await logind.raiseInhibitDelay(wantedMs);
      const delayMs = await this.#raised(wantedMs, signal);
      if (delayMs < wantedMs)
        throw new Error(
          `the login manager allows a delay of ${delayMs / 1000} s and not the ${wantedMs / 1000} s of shutdownGracePeriod: set InhibitDelayMaxSec in /etc/systemd/logind.conf`,
        );
    }
    this.#lock ??= await logind.inhibit();
    const onShutdown = (goingDown: boolean): void =>
      background(this.#onShutdown(goingDown), { logger, what: 'Preparing for the shutdown of the host', signal });
    const { ended } = await logind.listen(onShutdown, signal);
    onListening();
    logger.debug({ seconds: wantedMs / 1000 }, 'A shutdown of the host waits for pods');
    await ended;
  }

  /** Waits up to two seconds until the login manager has read its configuration. Resolves to its maximum delay. */
  async #raised(wantedMs: number, signal: AbortSignal): Promise<number> {
    const { clock, logind } = this.#options;
    for (let attempt = 0; ; attempt += 1) {
      const delayMs = await logind.inhibitDelayMs();
      if (delayMs >= wantedMs || attempt === DELAY_READS.most) return delayMs;
      await clock.sleep(DELAY_READS.pauseMs, signal);
    }
  }

  async #onShutdown(goingDown: boolean): Promise<void> {
    const { nodeEvent, logger, logind, periods } = this.#options;
    if (goingDown === this.#isShuttingDown) return;
    const event = (this.#events += 1);
    // A later event decides about the lock: after a cancellation the lock stays, although the pods still terminate.
    const releaseUnlessLater = async (): Promise<void> => {
      if (event === this.#events) await this.#release();
    };
    const kind = goingDown ? 'event' : 'cancellation';
    logger.info(
      {},
      goingDown ? 'The host shuts down, terminating pods first' : 'The shutdown of the host is cancelled',
    );
    nodeEvent('Shutdown', `Shutdown manager detected shutdown ${kind}`);
    this.#setShuttingDown(goingDown);
    try {
      if (goingDown) {
        await this.#terminatePods(periods);
        await releaseUnlessLater();
      } else {
        this.#lock ??= await logind.inhibit();
      }
    } catch (error) {
      logger.error({ err: error }, 'Cannot delay a shutdown of the host');
      await releaseUnlessLater();
    }
  }

  #setShuttingDown(isShuttingDown: boolean): void {
    this.#isShuttingDown = isShuttingDown;
    this.#options.nodeChanged();
  }

  async #release(): Promise<void> {
    const lock = this.#lock;
    this.#lock = undefined;
    await lock?.release();
  }

  async #terminatePods(periods: readonly ShutdownPeriod[]): Promise<void> {
    const { activePods, clock, logger } = this.#options;
    const startTime = new Date(clock.now()).toISOString();
    await this.#keepTimes({ startTime });
    for (const group of groupByPriority(periods, activePods())) {
      logger.info({ priority: group.priority, pods: group.pods.length, seconds: group.seconds }, 'Terminating pods');
      const ended = Promise.all(group.pods.map((pod) => this.#terminate(pod, group)));
      const late = Promise.withResolvers<'late'>();
      const timer = clock.after(group.seconds * 1000, () => late.resolve('late'));
      const outcome = await Promise.race([ended, late.promise]);
      timer.cancel();
      if (outcome === 'late') logger.warn({ priority: group.priority }, 'Not all pods terminated in time');
    }
    await this.#keepTimes({ startTime, endTime: new Date(clock.now()).toISOString() });
  }

  /**
   * Terminates a pod and waits until its volumes are unmounted, because a CSI driver that unmounts them may be in the next
   * group.
   */
  async #terminate(pod: Pod, group: ShutdownGroup): Promise<void> {
    const { killer } = this.#options;
    try {
      await killer.kill(pod, {
        gracePeriodSeconds: graceSeconds(pod, group),
        status: { reason: REASON, message: MESSAGE, disruption: MESSAGE },
      });
      await killer.cleanedUp(pod, { withinMs: group.seconds * 1000 });
    } catch (error) {
      this.#options.logger.warn({ err: error, pod: formatPod(pod) }, 'A pod did not terminate before the shutdown');
    }
  }

  async #keepTimes(times: Times): Promise<void> {
    const { logger, onTimes, stateFile } = this.#options;
    onTimes(inSeconds(times));
    try {
      await makeFolder(dirname(stateFile), 0o750);
      await replaceFile(stateFile, JSON.stringify(times), { mode: 0o644 });
    } catch (error) {
      logger.warn({ err: error }, 'Cannot store the times of the shutdown');
    }
  }

  async #reportLast(): Promise<void> {
    const { logger, onTimes, stateFile } = this.#options;
    try {
      onTimes(inSeconds(JSON.parse(await readOwnFile(stateFile)) as Times));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        logger.warn({ err: error }, 'Cannot read the times of the last shutdown');
    }
  }
}

function inSeconds({ startTime, endTime }: Times): { readonly startSeconds: number; readonly endSeconds: number } {
  const seconds = (time: string | undefined): number => (time === undefined ? 0 : Date.parse(time) / 1000);
  return { startSeconds: seconds(startTime), endSeconds: seconds(endTime) };
}
