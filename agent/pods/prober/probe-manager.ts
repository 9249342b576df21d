/**
 * The prober: one worker a probe of a container, its results, and what they make of `ready` and `started`.
 *
 * A worker lives as long as its pod is known; it follows the container's id, so that a new container starts from the
 * beginning. Startup holds liveness and readiness back until it has succeeded.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import type {
  Container,
  ContainerStatusJson,
  Pod,
  PodEventRecorder,
  PodStatus,
  ProbeKind,
  ProbeManager,
  ProbeResult,
} from '../../model/core-types.ts';
import type { ContainerId } from '../../runtime/runtime.ts';
import { expand } from '../../runtime/kuberuntime/environment.ts';
import { formatPod } from '../../runtime/kuberuntime/pod-containers.ts';
import { probeExec, probeGrpc, probeHttp, probeTcp, type ProbeOutcome } from './probes.ts';

type Probe = NonNullable<Container['livenessProbe']>;
type Change = Parameters<Parameters<ProbeManager['onChange']>[0]>[0];

export interface ProbeManagerOptions {
  readonly clock: Clock;
  readonly events: PodEventRecorder;
  /** What the agent says of the pod now: container ids, states, addresses. */
  readonly status: (podUid: string) => PodStatus | undefined;
  readonly exec: (
    id: ContainerId,
    command: readonly string[],
    timeoutMs: number,
  ) => Promise<{ readonly exitCode: number; readonly output: string }>;
  readonly isTimeout: (error: unknown) => boolean;
  /** 0 to 1. */
  readonly random: () => number;
  readonly logger: Pick<Logger, 'error'>;
  readonly observe?: (probe: {
    readonly pod: Pod;
    readonly container: string;
    readonly kind: ProbeKind;
    readonly result: string;
    readonly tookMs: number;
  }) => void;
}

const MOST_TRIES = 3;
const KINDS: readonly ProbeKind[] = ['startup', 'readiness', 'liveness'];

export function createProbeManager(options: ProbeManagerOptions): ProbeManager {
  return new Prober(options);
}

class Prober implements ProbeManager {
  readonly #options: ProbeManagerOptions;
  readonly #workers = new Map<string, ProbeWorker>();
  readonly #results = new Map<string, ProbeResult>();
  readonly #listeners: ((change: Change) => void)[] = [];

  constructor(options: ProbeManagerOptions) {
    this.#options = options;
  }

  addPod(pod: Pod): void {
    const sidecars = (pod.spec.initContainers ?? []).filter((container) => container.restartPolicy === 'Always');
    for (const container of [...pod.spec.containers, ...sidecars]) {
      for (const kind of KINDS) {
        const probe = probeOf(container, kind);
        const key = `${pod.metadata.uid}/${container.name}/${kind}`;
        if (probe === undefined || this.#workers.has(key)) continue;
        const worker = new ProbeWorker({ ...this.#options, pod, container, kind, probe, results: this });
        this.#workers.set(key, worker);
        worker.start();
      }
    }
  }

  removePod(podUid: string): void {
    this.#stop((worker) => worker.podUid === podUid);
  }

  stopLivenessAndStartup(podUid: string): void {
    this.#stop((worker) => worker.podUid === podUid && worker.kind !== 'readiness');
  }

  cleanup(desired: ReadonlySet<string>): void {
    this.#stop((worker) => !desired.has(worker.podUid));
  }

  #stop(which: (worker: ProbeWorker) => boolean): void {
    for (const [key, worker] of this.#workers) {
      if (!which(worker)) continue;
      worker.stop();
      this.#workers.delete(key);
    }
  }

  result(kind: ProbeKind, containerId: string): ProbeResult | undefined {
    return this.#results.get(`${kind}/${containerId}`);
  }

  /** For workers. */
  put(change: Change): void {
    const key = `${change.kind}/${change.containerId}`;
    if (this.#results.get(key) === change.result) return;
    this.#results.set(key, change.result);
    for (const listener of this.#listeners) listener(change);
  }

  forget(kind: ProbeKind, containerId: string): void {
    this.#results.delete(`${kind}/${containerId}`);
  }

  onChange(listener: (change: Change) => void): void {
    this.#listeners.push(listener);
  }

  updatePodStatus(pod: Pod, status: PodStatus): void {
    for (const [specs, statuses] of [
      [pod.spec.containers, status.containerStatuses],
      [pod.spec.initContainers ?? [], status.initContainerStatuses],
    ] as const) {
      for (const container of statuses ?? []) {
        const spec = specs.find((candidate) => candidate.name === container.name);
        if (spec === undefined) continue;
        const isInit = specs !== pod.spec.containers;
        const isSidecar = isInit && spec.restartPolicy === 'Always';
        if (isInit && !isSidecar) {
          container.ready = container.state?.terminated?.exitCode === 0;
          container.started = container.state?.running !== undefined;
          continue;
        }
        const id = container.containerID ?? '';
        const running = container.state?.running !== undefined;
        // A postStart hook has no part in it: a look at the container waits for the sync in which the hook runs.
        const started = running && (spec.startupProbe === undefined || this.#hasStarted(pod, id));
        container.started = started;
        if (!started) {
          container.ready = false;
          if (running) this.#workers.get(`${pod.metadata.uid}/${container.name}/startup`)?.hurry();
        } else if (spec.readinessProbe === undefined) container.ready = true;
        else {
          const result = this.result('readiness', id);
          container.ready = result === undefined ? before(pod, id)?.ready === true : result === 'success';
          if (!container.ready) this.#workers.get(`${pod.metadata.uid}/${container.name}/readiness`)?.hurry();
        }
      }
    }
  }

  /** Without a result yet (the agent was restarted) the API server's word is taken. */
  #hasStarted(pod: Pod, id: string): boolean {
    const result = this.result('startup', id);
    return result === undefined || result === 'unknown' ? before(pod, id)?.started === true : result === 'success';
  }

  async close(): Promise<void> {
    this.#stop(() => true);
  }
}

/** What the API server has of a container that runs on from before the agent's start. */
function before(pod: Pod, id: string): ContainerStatusJson | undefined {
  if (id === '') return undefined;
  return [...(pod.status?.containerStatuses ?? []), ...(pod.status?.initContainerStatuses ?? [])].find(
    (container) => container.containerID === id,
  );
}

function probeOf(container: Container, kind: ProbeKind): Probe | undefined {
  if (kind === 'liveness') return container.livenessProbe;
  return kind === 'readiness' ? container.readinessProbe : container.startupProbe;
}

interface WorkerOptions extends ProbeManagerOptions {
  readonly pod: Pod;
  readonly container: Container;
  readonly kind: ProbeKind;
  readonly probe: Probe;
  readonly results: Prober;
}

class ProbeWorker {
  readonly podUid: string;
  readonly kind: ProbeKind;
  readonly #options: WorkerOptions;
  #timer: Timer | undefined;
  #stopped = false;
  #probing = false;
  #containerId = '';
  #held = false;
  #streak: { result: ProbeResult; count: number } = { result: 'unknown', count: 0 };

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.podUid = options.pod.metadata.uid;
    this.kind = options.kind;
  }

  /** The first look is spread over the period, so that a restarted agent does not probe everything at once. */
  start(): void {
    const status = this.#options.status(this.podUid);
    const started = status?.containerStatuses?.some((container) => container.state?.running !== undefined) === true;
    this.#schedule(started ? this.#options.random() * this.#periodMs() : 0);
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
    if (this.#containerId !== '') this.#options.results.forget(this.kind, this.#containerId);
  }

  /** Look now: a readiness result is waited for. */
  hurry(): void {
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
        // The time that a probe took is part of its period.
        const tookMs = this.#options.clock.monotonic() - fromMs;
        if (again) this.#schedule(Math.max(0, this.#periodMs() - tookMs));
      };
      this.#look().then(next, (error: unknown) => {
        const { logger, pod, container, kind } = this.#options;
        const fields = { pod: formatPod(pod), container: container.name, probe: kind, err: error };
        logger.error(fields, 'A probe failed unexpectedly; it is tried again');
        next(true);
      });
    });
  }

  /** One look; resolves to whether there will be another. */
  async #look(): Promise<boolean> {
    const { kind, probe, container, clock, pod } = this.#options;
    const status = this.#options.status(this.podUid);
    if (status === undefined) return true;
    if (status.phase === 'Failed' || status.phase === 'Succeeded') return false;
    const found = [...(status.containerStatuses ?? []), ...(status.initContainerStatuses ?? [])].find(
      (candidate) => candidate.name === container.name,
    );
    const id = found?.containerID ?? '';
    if (found === undefined || id === '') return true;
    if (id !== this.#containerId) this.#follow(id);
    if (this.#held) return true;
    if (found.state?.running === undefined) {
      if (this.#containerId !== '') this.#publish('failure');
      return (
        found.state?.terminated === undefined ||
        container.restartPolicy === 'Always' ||
        pod.spec.restartPolicy !== 'Never'
      );
    }
    const runsSinceMs = clock.now() - Date.parse(found.state.running.startedAt ?? '');
    if (runsSinceMs < (probe.initialDelaySeconds ?? 0) * 1000) return true;
    // Before startup has succeeded only startup is asked, after it only the others.
    if (found.started === true ? kind === 'startup' : kind !== 'startup') return true;
    const fromMs = clock.monotonic();
    const outcome = await this.#runWithRetries(status.podIP ?? '');
    if (this.#stopped || this.#containerId !== id) return !this.#stopped;
    this.#options.observe?.({
      pod,
      container: container.name,
      kind,
      result: outcome.result === 'success' ? 'successful' : outcome.result === 'failure' ? 'failed' : outcome.result,
      tookMs: clock.monotonic() - fromMs,
    });
    this.#count(outcome);
    return true;
  }

  /** A new container: it starts ready to be killed by nothing, and not ready. */
  #follow(id: string): void {
    if (this.#containerId !== '') this.#options.results.forget(this.kind, this.#containerId);
    this.#containerId = id;
    this.#held = false;
    this.#streak = { result: 'unknown', count: 0 };
    const kept = before(this.#options.pod, id);
    if (this.kind === 'liveness') this.#publish('success');
    else if (this.kind === 'readiness') this.#publish(kept?.ready === true ? 'success' : 'failure');
    else this.#publish(kept?.started === true ? 'success' : 'unknown');
  }

  #publish(result: ProbeResult): void {
    this.#options.results.put({ podUid: this.podUid, containerId: this.#containerId, kind: this.kind, result });
  }

  #count(outcome: ProbeOutcome): void {
    const { probe, kind, events, pod, container } = this.#options;
    if (outcome.result === 'unknown') {
      const title = kind.charAt(0).toUpperCase() + kind.slice(1);
      events.event(
        pod,
        'Warning',
        'Unhealthy',
        `${title} probe errored and resulted in unknown state: ${outcome.output}`,
        {
          fieldPath: fieldPath(pod, container),
        },
      );
      return;
    }
    const result: ProbeResult = outcome.result === 'failure' ? 'failure' : 'success';
    this.#streak = this.#streak.result === result ? { result, count: this.#streak.count + 1 } : { result, count: 1 };
    this.#tell(outcome);
    const threshold = result === 'failure' ? (probe.failureThreshold ?? 3) : (probe.successThreshold ?? 1);
    if (this.#streak.count < threshold) return;
    this.#publish(result);
    // The container is about to be replaced: nothing more is asked of this one.
    if ((kind === 'liveness' || kind === 'startup') && result === 'failure') this.#held = true;
  }

  #tell(outcome: ProbeOutcome): void {
    const { kind, events, pod, container } = this.#options;
    const title = kind.charAt(0).toUpperCase() + kind.slice(1);
    const at = { fieldPath: fieldPath(pod, container) };
    if (outcome.result === 'failure')
      events.event(pod, 'Warning', 'Unhealthy', `${title} probe failed: ${outcome.output}`, at);
    if (outcome.result === 'warning')
      events.event(pod, 'Warning', 'ProbeWarning', `${title} probe warning: ${outcome.output}`, at);
  }

  /** What could not be asked at all is asked again at once, as it may have been an accident. */
  async #runWithRetries(podIp: string): Promise<ProbeOutcome> {
    let outcome = await this.#runSafely(podIp);
    for (let again = 1; again < MOST_TRIES && outcome.result === 'unknown' && !this.#stopped; again++)
      outcome = await this.#runSafely(podIp);
    return outcome;
  }

  /** A probe that cannot be run, for a port out of range say, has an unknown result. */
  async #runSafely(podIp: string): Promise<ProbeOutcome> {
    try {
      return await this.#run(podIp);
    } catch (error) {
      return { result: 'unknown', output: error instanceof Error ? error.message : String(error) };
    }
  }

  async #run(podIp: string): Promise<ProbeOutcome> {
    const { probe, container, exec, isTimeout } = this.#options;
    const timeoutMs = (probe.timeoutSeconds ?? 1) * 1000;
    if (probe.exec !== undefined) {
      const command = expandCommand(probe.exec.command ?? [], container);
      const id = this.#containerId.replace(/^[^:]+:\/\//, '') as ContainerId;
      return probeExec(command, () => exec(id, command, timeoutMs), timeoutMs, isTimeout);
    }
    if (probe.httpGet !== undefined) {
      const port = resolvePort(probe.httpGet.port as string | number, container);
      if (port === undefined) return noSuchPort(probe.httpGet.port as string | number);
      return probeHttp({
        scheme: probe.httpGet.scheme === 'HTTPS' ? 'https' : 'http',
        host: probe.httpGet.host || podIp,
        port,
        path:
          probe.httpGet.path === undefined || probe.httpGet.path === ''
            ? '/'
            : probe.httpGet.path.replace(/^(?!\/)/, '/'),
        headers: (probe.httpGet.httpHeaders ?? []).map(({ name, value }) => ({ name, value })),
        timeoutMs,
      });
    }
    if (probe.tcpSocket !== undefined) {
      const port = resolvePort(probe.tcpSocket.port as string | number, container);
      if (port === undefined) return noSuchPort(probe.tcpSocket.port as string | number);
      return probeTcp(probe.tcpSocket.host || podIp, port, timeoutMs);
    }
    if (probe.grpc !== undefined) return probeGrpc(podIp, probe.grpc.port, probe.grpc.service ?? '', timeoutMs);
    return { result: 'unknown', output: `missing probe handler for ${container.name}` };
  }
}

function noSuchPort(port: string | number): ProbeOutcome {
  return { result: 'unknown', output: `strconv.Atoi: parsing ${JSON.stringify(String(port))}: invalid syntax` };
}

/** `$(NAME)` stands for what the container's own list of variables says by value. */
function expandCommand(command: readonly string[], container: Container): string[] {
  const values = new Map<string, string>();
  const lookup = (name: string): string | undefined => values.get(name);
  for (const { name, value } of container.env ?? []) values.set(name, expand(value ?? '', lookup));
  return command.map((word) => expand(word, lookup));
}

function fieldPath(pod: Pod, container: Container): string {
  const isInit = pod.spec.initContainers?.some((candidate) => candidate.name === container.name) === true;
  return `spec.${isInit ? 'initContainers' : 'containers'}{${container.name}}`;
}

/** A number, or the name of a container's port. */
export function resolvePort(port: string | number, container: Container): number | undefined {
  if (typeof port === 'number') return port;
  const named = container.ports?.find((candidate) => candidate.name === port)?.containerPort;
  if (named !== undefined) return named;
  return /^\d+$/.test(port) ? Number(port) : undefined;
}
