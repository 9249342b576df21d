/** The prober: has a worker for each probe of each container, keeps their results, and sets `ready` and `started` from them. */
import type { Container, Pod, PodStatus, ProbeKind, ProbeManager, ProbeResult } from '../../model/core-types.ts';
import {
  containerBefore,
  type Probe,
  type ProbeChange,
  type ProbeOptions,
  type ProbeResults,
  ProbeWorker,
} from './probe-worker.ts';

const KINDS: readonly ProbeKind[] = ['startup', 'readiness', 'liveness'];

export function createProbeManager(options: ProbeOptions): ProbeManager {
  return new Prober(options);
}

class Prober implements ProbeManager, ProbeResults {
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
        // A postStart hook does not count: the pod's worker reads the container again only after the hook has run.
        const started = running && (spec.startupProbe === undefined || this.#hasStarted(pod, id));
        container.started = started;
        if (!started) {
          container.ready = false;
          if (running) this.#workers.get(`${pod.metadata.uid}/${container.name}/startup`)?.hurry();
        } else if (spec.readinessProbe === undefined) container.ready = true;
        else {
          const result = this.result('readiness', id);
          container.ready = result === undefined ? containerBefore(pod, id)?.ready === true : result === 'success';
          if (!container.ready) this.#workers.get(`${pod.metadata.uid}/${container.name}/readiness`)?.hurry();
        }
      }
    }
  }

  /** Takes the value of the API server if there is no result yet because the agent has restarted. */
  #hasStarted(pod: Pod, id: string): boolean {
    const result = this.result('startup', id);
    return result === undefined || result === 'unknown'
      ? containerBefore(pod, id)?.started === true
      : result === 'success';
  }

  async close(): Promise<void> {
    this.#stop(() => true);
  }
}

function probeOf(container: Container, kind: ProbeKind): Probe | undefined {
  if (kind === 'liveness') return container.livenessProbe;
  return kind === 'readiness' ? container.readinessProbe : container.startupProbe;
}
