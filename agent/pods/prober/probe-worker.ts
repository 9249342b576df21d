/**
 * Runs one probe of one container. The worker lives as long as its pod is known, and follows the container's id, so that a
 * new container starts without results.
 */
import { capitalized } from '../../../api/meta/capitalized.ts';
import { byName } from '../../runtime/kuberuntime/by-name.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import type { PodEventRecorder } from '../../base/model/pod-events.ts';
import type { Container, ContainerStatusJson, Pod, PodStatus } from '../../base/model/pod.ts';
import type { ProbeKind, ProbeResult } from '../../runtime/kuberuntime/probe-results.ts';
import { formatPod } from '../../runtime/kuberuntime/pod-containers.ts';
import { type Probe, type ProbeExecution, runProbe } from './probe-run.ts';
import type { ProbeOutcome } from './probes.ts';

/** A result of a probe for the store, which reports it if it differs from the last one. */
export interface ProbeChange {
  readonly podUid: string;
  readonly containerId: string;
  readonly kind: ProbeKind;
  readonly result: ProbeResult;
}

/** A run of a probe, as metrics count it. They do not count probes that could not be executed. */
export interface FinishedProbe {
  readonly pod: Pod;
  readonly container: string;
  readonly kind: ProbeKind;
  readonly result: 'successful' | 'failed';
  readonly tookMs: number;
}

/** What all workers share. */
export interface ProbeOptions extends ProbeExecution {
  readonly clock: Clock;
  readonly events: PodEventRecorder;
  /** Returns the agent's current status of the pod: container ids, states, addresses. */
  readonly status: (podUid: string) => PodStatus | undefined;
  /** Returns a number from 0 to below 1. */
  readonly random: () => number;
  readonly logger: Pick<Logger, 'error'>;
  /** Gets each finished probe, for metrics. */
  readonly observe?: (probe: FinishedProbe) => void;
}

/** Stores the results of probes and reports their changes. */
export interface ProbeResultStore {
  put(change: ProbeChange): void;
  forget(kind: ProbeKind, containerId: string): void;
}

interface ProbeWorkerOptions extends ProbeOptions {
  readonly pod: Pod;
  readonly container: Container;
  readonly kind: ProbeKind;
  readonly probe: Probe;
  readonly results: ProbeResultStore;
}

/** Owns the schedule and the results of one probe. */
export class ProbeWorker {
  readonly podUid: string;
  readonly kind: ProbeKind;
  readonly #options: ProbeWorkerOptions;
  #timer: Timer | undefined;
  #stopped = false;
  #probing = false;
  #containerId = '';
  /** The probe waits for a new container, because this one failed its liveness or startup probe. */
  #onHold = false;
  #streak: { result: ProbeResult; count: number } = { result: 'unknown', count: 0 };

  constructor(options: ProbeWorkerOptions) {
    this.#options = options;
    this.podUid = options.pod.metadata.uid;
    this.kind = options.kind;
  }

  /**
   * Starts probing. If a regular container of the pod runs already, the first probe follows at a random time within the period,
   * so that a restarted agent does not probe all containers at once.
   */
  start(): void {
    const status = this.#options.status(this.podUid);
    const isRunning = status?.containerStatuses?.some((container) => container.state?.running !== undefined) === true;
    this.#schedule(isRunning ? this.#options.random() * this.#periodMs() : 0);
  }

  /** Stops probing and forgets the result. */
  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
    if (this.#containerId !== '') this.#options.results.forget(this.kind, this.#containerId);
  }

  /** Probes now, unless the probe of this container has succeeded or failed already, is running or was stopped. */
  probeSoon(): void {
    if (this.#probing || this.#stopped || this.#streak.count > 0) return;
    this.#timer?.cancel();
    this.#schedule(0);
  }

  #periodMs(): number {
    return (this.#options.probe.periodSeconds ?? 10) * 1000;
  }

  #schedule(delayMs: number): void {
    if (this.#stopped) return;
    this.#timer = this.#options.clock.after(delayMs, () => {
      this.#probing = true;
      const fromMs = this.#options.clock.monotonic();
      const next = (again: boolean): void => {
        this.#probing = false;
        // The duration of a probe is part of its period.
        const tookMs = this.#options.clock.monotonic() - fromMs;
        if (again) this.#schedule(Math.max(0, this.#periodMs() - tookMs));
      };
      this.#probe().then(next, (error: unknown) => {
        const { logger, pod, container, kind } = this.#options;
        const fields = { pod: formatPod(pod), container: container.name, probe: kind, err: error };
        logger.error(fields, 'A probe failed unexpectedly, retrying');
        next(true);
      });
    });
  }

  /** Probes once if the probe is due. Resolves to whether the worker continues. */
  async #probe(): Promise<boolean> {
    const { kind, probe, container, clock, pod } = this.#options;
    const status = this.#options.status(this.podUid);
    if (status === undefined) return true;
    if (status.phase === 'Failed' || status.phase === 'Succeeded') return false;
    const found =
      byName(status.containerStatuses ?? []).get(container.name) ??
      byName(status.initContainerStatuses ?? []).get(container.name);
    const id = found?.containerID ?? '';
    if (found === undefined || id === '') return true;
    if (id !== this.#containerId) this.#follow(id);
    if (this.#onHold) return true;
    if (found.state?.running === undefined) {
      if (this.#containerId !== '') this.#publish('failure');
      return (
        found.state?.terminated === undefined ||
        container.restartPolicy === 'Always' ||
        pod.spec.restartPolicy !== 'Never'
      );
    }
    const hasRunForMs = clock.now() - Date.parse(found.state.running.startedAt ?? '');
    if (hasRunForMs < (probe.initialDelaySeconds ?? 0) * 1000) return true;
    // The startup probe runs until it has succeeded, the liveness and readiness probes afterwards.
    if (found.started === true ? kind === 'startup' : kind !== 'startup') return true;
    const fromMs = clock.monotonic();
    const outcome = await runProbe(this.#options, this.#containerId, status.podIP ?? '', () => this.#stopped);
    if (this.#stopped || this.#containerId !== id) return !this.#stopped;
    if (outcome.result !== 'errored') {
      const result = outcome.result === 'failure' ? 'failed' : 'successful';
      const tookMs = clock.monotonic() - fromMs;
      this.#options.observe?.({ pod, container: container.name, kind, result, tookMs });
    }
    this.#count(outcome);
    return true;
  }

  /**
   * Follows a new container. At first it counts as alive, but neither as ready nor as started. A container that has run since
   * before the agent's start counts as ready and started if the API server has it so.
   */
  #follow(id: string): void {
    if (this.#containerId !== '') this.#options.results.forget(this.kind, this.#containerId);
    this.#containerId = id;
    this.#onHold = false;
    this.#streak = { result: 'unknown', count: 0 };
    const published = publishedStatus(this.#options.pod, id);
    if (this.kind === 'liveness') this.#publish('success');
    else if (this.kind === 'readiness') this.#publish(published?.ready === true ? 'success' : 'failure');
    else this.#publish(published?.started === true ? 'success' : 'unknown');
  }

  #publish(result: ProbeResult): void {
    this.#options.results.put({ podUid: this.podUid, containerId: this.#containerId, kind: this.kind, result });
  }

  /**
   * Counts an outcome, and publishes the result when its threshold of consecutive outcomes is reached. An errored probe is
   * not counted.
   */
  #count(outcome: ProbeOutcome): void {
    const { probe, kind, events, pod, container } = this.#options;
    if (outcome.result === 'errored') {
      const title = capitalized(kind);
      events.event(
        pod,
        'Warning',
        'Unhealthy',
        `${title} probe errored and resulted in ${outcome.state} state: ${outcome.output}`,
        {
          fieldPath: fieldPath(pod, container),
        },
      );
      return;
    }
    const result: ProbeResult = outcome.result === 'failure' ? 'failure' : 'success';
    this.#streak = this.#streak.result === result ? { result, count: this.#streak.count + 1 } : { result, count: 1 };
    this.#recordEvent(outcome);
    const threshold = result === 'failure' ? (probe.failureThreshold ?? 3) : (probe.successThreshold ?? 1);
    if (this.#streak.count < threshold) return;
    this.#publish(result);
    // The container will be replaced, so it is not probed any more.
    if ((kind === 'liveness' || kind === 'startup') && result === 'failure') this.#onHold = true;
  }

  #recordEvent(outcome: ProbeOutcome): void {
    const { kind, events, pod, container } = this.#options;
    const title = capitalized(kind);
    const at = { fieldPath: fieldPath(pod, container) };
    if (outcome.result === 'failure')
      events.event(pod, 'Warning', 'Unhealthy', `${title} probe failed: ${outcome.output}`, at);
    if (outcome.result === 'warning')
      events.event(pod, 'Warning', 'ProbeWarning', `${title} probe warning: ${outcome.output}`, at);
  }
}

function fieldPath(pod: Pod, container: Container): string {
  const isInit = pod.spec.initContainers?.some((candidate) => candidate.name === container.name) === true;
  return `spec.${isInit ? 'initContainers' : 'containers'}{${container.name}}`;
}

/** Returns the status that the API server has of the container with this id, or `undefined` if it has none. */
function publishedStatus(pod: Pod, id: string): ContainerStatusJson | undefined {
  if (id === '') return undefined;
  return [...(pod.status?.containerStatuses ?? []), ...(pod.status?.initContainerStatuses ?? [])].find(
    (container) => container.containerID === id,
  );
}
