/** Runs the probes of all pods by a worker for each probe of each container, keeps results and reports when one changes. */
import type { Container, Pod, PodStatus } from '../../base/model/pod.ts';
import type { ProbeKind, ProbeResult, ProbeResults } from '../../runtime/kuberuntime/probe-results.ts';
import type { Probe } from './probe-run.ts';
import { type ProbeChange, type ProbeOptions, type ProbeResultStore, ProbeWorker } from './probe-worker.ts';

/** Owns the probes of all pods. */
export interface ProbeManager extends ProbeResults {
  /** Starts the probes of the pod's containers and sidecars that have not been started yet. */
  addPod(pod: Pod): void;
  removePod(podUid: string): void;
  /** Stops the liveness and startup probes of a terminating pod. Its readiness probes continue. */
  stopLivenessAndStartup(podUid: string): void;
  /**
   * Runs probes without a result at once: the startup probes of running containers that have not started, and the readiness
   * probes of those that have started and are not ready.
   */
  probeSoon(podUid: string, status: PodStatus): void;
  /** Registers a listener for changed results. */
  onChange(listener: (change: ProbeChange) => void): void;
  /** Stops the probes of pods that are not in the set, and forgets their results. */
  cleanup(podUids: ReadonlySet<string>): void;
  close(): Promise<void>;
}

const KINDS: readonly ProbeKind[] = ['startup', 'readiness', 'liveness'];

/** Creates a prober without pods. */
export function createProbeManager(options: ProbeOptions): ProbeManager {
  return new Prober(options);
}

class Prober implements ProbeManager, ProbeResultStore {
  readonly #options: ProbeOptions;
  readonly #workers = new Map<string, ProbeWorker>();
  readonly #results = new Map<string, ProbeResult>();
  readonly #listeners: ((change: ProbeChange) => void)[] = [];

  constructor(options: ProbeOptions) {
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

  cleanup(podUids: ReadonlySet<string>): void {
    this.#stop((worker) => !podUids.has(worker.podUid));
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

  put(change: ProbeChange): void {
    const key = `${change.kind}/${change.containerId}`;
    if (this.#results.get(key) === change.result) return;
    this.#results.set(key, change.result);
    for (const listener of this.#listeners) listener(change);
  }

  forget(kind: ProbeKind, containerId: string): void {
    this.#results.delete(`${kind}/${containerId}`);
  }

  onChange(listener: (change: ProbeChange) => void): void {
    this.#listeners.push(listener);
  }

  probeSoon(podUid: string, status: PodStatus): void {
    for (const { name, state, started, ready } of [
      ...(status.containerStatuses ?? []),
      ...(status.initContainerStatuses ?? []),
    ]) {
      if (state?.running === undefined || ready) continue;
      this.#workers.get(`${podUid}/${name}/${started === true ? 'readiness' : 'startup'}`)?.probeSoon();
    }
  }

  async close(): Promise<void> {
    this.#stop(() => true);
  }
}

function probeOf(container: Container, kind: ProbeKind): Probe | undefined {
  if (kind === 'liveness') return container.livenessProbe;
  return kind === 'readiness' ? container.readinessProbe : container.startupProbe;
}
