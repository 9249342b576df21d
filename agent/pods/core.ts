/**
 * The heart of the agent: takes pods from their sources, hands them to the workers, feeds those with what happens (the
 * runtime, probes, time), keeps house, and answers what the agent's server and the node's status ask.
 *
 * One sync loop: every change of the set of pods passes `#onUpdate`, in order.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { newBadRequest, newNotFound, newStatusError } from '../../api/meta/status-error.ts';
import type {
  ContainerStatusJson,
  LogOptions,
  MirrorPods,
  NodeConditionSource,
  Pod,
  PodConfig,
  PodDeletionSafety,
  PodHost,
  PodStatus,
  PodUpdate,
  ProbeManager,
  StatusManager,
  VolumeManager,
} from '../model/core-types.ts';
import type { PodCgroups } from '../host/cgroups/pod-cgroups.ts';
import type { KubeRuntime } from '../runtime/kuberuntime/kube-runtime.ts';
import { collectContainers, type CollectOptions } from '../runtime/kuberuntime/container-gc.ts';
import { allContainers, formatPod } from '../runtime/kuberuntime/pod-containers.ts';
import { findContainer, readRuntimeStatus, type RuntimePodStatus } from '../runtime/kuberuntime/runtime-status.ts';
import { chooseLog, whyNoLog } from '../runtime/logs/choose-log.ts';
import { readLog } from '../runtime/logs/log-reader.ts';
import type { Pleg } from '../runtime/pleg/pleg.ts';
import type { PodAllocations } from './workers/pod-allocation.ts';
import { isMirrorPod, isStaticPod, type PodManager } from './workers/pod-manager.ts';
import type { PodSync } from './workers/pod-sync.ts';
import { isEnded, type PodWorkers } from './workers/pod-workers.ts';
import type { PodAdmission, Refusal } from './workers/pod-admission.ts';
import {
  type ContainerId,
  type ImageInfo,
  type Runtime,
  RuntimeError,
  type SandboxId,
  type StreamIo,
} from '../runtime/runtime.ts';
import type { RuntimeState } from '../runtime/runtime-state.ts';

const HOUSEKEEPING_MS = 2_000;
const CONTAINER_GC_MS = 60_000;
const RESIZE_RETRY_MS = 30_000;
const PODS = { group: '', resource: 'pods' };

/** Asked when a pod has passed admission, before anything of it is made. */
export interface ResourceAdmission {
  /** `undefined`: the pod asks for nothing of the kind. */
  admit(pod: Pod): Promise<Refusal | undefined> | undefined;
  /** The pod has ended. */
  release(podUid: string): void;
}

export interface CoreDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly runtime: Runtime;
  readonly runtimeState: RuntimeState;
  readonly kubeRuntime: KubeRuntime;
  readonly pods: PodManager;
  readonly workers: PodWorkers;
  readonly sync: PodSync;
  readonly pleg: Pleg;
  readonly podConfig: PodConfig;
  readonly volumes: VolumeManager;
  readonly probes: ProbeManager;
  readonly statuses: StatusManager;
  readonly cgroups: PodCgroups;
  readonly mirrors: MirrorPods | undefined;
  readonly admission: PodAdmission;
  readonly allocations: PodAllocations;
  /** Gives what is given by account: processors, memory of NUMA nodes, devices. */
  readonly resources?: ResourceAdmission;
  readonly podLogsDirectory: string;
  readonly podsDirectory: string;
  readonly containerLogsDirectory: string | undefined;
  /** Which dead containers are kept; the newest of each otherwise. */
  readonly deadContainers?: Pick<CollectOptions, 'keptPerContainer' | 'keptInTotal' | 'minAgeMs'>;
  readonly pressure: (kind: 'memory' | 'disk' | 'pid') => boolean;
  /** Counted: running though nobody wanted it, or wanted again under its old uid. */
  readonly observe?: (event: 'orphaned' | 'restarted', pod: Pod) => void;
}

export class AgentCore implements PodHost, NodeConditionSource, PodDeletionSafety {
  readonly #deps: CoreDeps;
  #lastGcMs = 0;
  /** Cgroups of unwanted pods wait for the next turn to be removed. */
  #cgroupsAreLeft = false;
  #lastCollectedMs = 0;
  #lastResizeMs = 0;
  /** Pods whose resources are being given, each in its newest form; `undefined` of one that was removed meanwhile. */
  readonly #admitting = new Map<string, Pod | undefined>();

  constructor(deps: CoreDeps) {
    this.#deps = deps;
    deps.probes.onChange(({ podUid, containerId, kind, result }) => {
      if (kind === 'readiness') deps.statuses.setContainerReadiness(podUid, containerId, result === 'success');
      if (kind === 'startup') deps.statuses.setContainerStartup(podUid, containerId, result === 'success');
      // A liveness success changes nothing.
      if (kind !== 'liveness' || result === 'failure') deps.workers.wake(podUid);
    });
  }

  /** Runs until the signal aborts; containers are left running. */
  async run(signal: AbortSignal): Promise<void> {
    const { podConfig, pleg, runtimeState, statuses, workers } = this.#deps;
    await Promise.all([
      podConfig.run(signal, (update) => this.#onUpdate(update)),
      pleg.run(signal),
      runtimeState.run(signal),
      statuses.run(signal),
      this.#keepHouse(signal),
    ]);
    await workers.close();
  }

  /** Every source of pods has answered once. */
  sourcesReady(): boolean {
    return this.#deps.podConfig.allSourcesReady();
  }

  #onUpdate(update: PodUpdate): void {
    for (const pod of update.pods) {
      try {
        this.#apply(update.type, pod);
      } catch (error) {
        this.#deps.logger.error({ err: error, pod: formatPod(pod) }, 'A change of a pod could not be taken up');
      }
    }
  }

  #apply(type: PodUpdate['type'], pod: Pod): void {
    const { pods, workers } = this.#deps;
    if (type === 'remove') pods.remove(pod);
    else pods.set(pod);
    if (isMirrorPod(pod)) {
      // A mirror that came, changed or went: its static pod sees to it.
      const owner = pods.podOfMirror(pod);
      if (owner !== undefined) workers.wake(owner.metadata.uid);
      else if (type !== 'remove') this.#inBackground(this.#dropMirror(pod), pod, 'Deleting a mirror pod');
      return;
    }
    switch (type) {
      case 'add':
        // A manifest that came back has the uid that it had.
        if (!isStaticPod(pod) || !workers.isBack(pod.metadata.uid)) this.#admit(pod);
        break;
      case 'update':
      case 'delete':
        if (this.#admitting.has(pod.metadata.uid)) this.#admitting.set(pod.metadata.uid, pod);
        else workers.update(pod);
        break;
      case 'reconcile':
        this.#deps.statuses.reconcile(pod);
        // Only the status differs from ours; readiness gates are read from it.
        if ((pod.spec.readinessGates ?? []).length > 0) workers.update(pod);
        break;
      case 'remove':
        if (this.#admitting.has(pod.metadata.uid)) this.#admitting.set(pod.metadata.uid, undefined);
        this.#inBackground(this.#end(pod), pod, 'Terminating a removed pod');
        break;
    }
  }

  #admit(pod: Pod): void {
    const { admission, allocations, resources, workers } = this.#deps;
    const isEnding = isEnded(pod.status) || pod.metadata.deletionTimestamp !== undefined;
    const isNew = !isEnding && pod.status?.startTime === undefined;
    if (isNew) {
      const others = this.activePods().filter((other) => other.metadata.uid !== pod.metadata.uid);
      const refusal = admission.admit(
        pod,
        others.map((other) => allocations.allocated(other)),
      );
      if (refusal !== undefined) {
        this.#reject(pod, refusal);
        return;
      }
    }
    // One that ran before has its resources already: it is only made sure.
    const given = isEnding ? undefined : resources?.admit(pod);
    if (given === undefined) workers.update(pod);
    else this.#inBackground(this.#startWhenGiven(pod, given, { isNew }), pod, 'Admitting a pod');
  }

  async #startWhenGiven(
    pod: Pod,
    given: Promise<Refusal | undefined>,
    { isNew }: { readonly isNew: boolean },
  ): Promise<void> {
    const { uid } = pod.metadata;
    this.#admitting.set(uid, pod);
    const refusal = await given.catch(unexpectedRefusal);
    const newest = this.#admitting.get(uid);
    this.#admitting.delete(uid);
    if (newest === undefined) this.#deps.resources?.release(uid);
    else if (refusal !== undefined && isNew) this.#reject(newest, refusal);
    else this.#deps.workers.update(newest);
  }

  #reject(pod: Pod, { reason, message }: Refusal): void {
    this.#inBackground(this.#deps.sync.reject(pod, reason, message), pod, 'Reporting the refusal of a pod');
  }

  #inBackground(work: Promise<unknown>, pod: Pod, what: string): void {
    background(work, { logger: this.#deps.logger, what, fields: { pod: formatPod(pod) } });
  }

  async #end(pod: Pod): Promise<void> {
    const { pods, workers } = this.#deps;
    await workers.kill(pod, { gracePeriodSeconds: undefined, status: undefined });
    // The mirror of a pod that has meanwhile taken its place stays.
    const mirror = isStaticPod(pod) ? pods.mirrorOf(pod) : undefined;
    if (mirror !== undefined && pods.podOfMirror(mirror) === undefined) await this.#dropMirror(mirror);
  }

  async #dropMirror(mirror: Pod): Promise<void> {
    if (!this.#deps.podConfig.allSourcesReady()) return;
    try {
      await this.#deps.mirrors?.delete(mirror);
    } catch (error) {
      this.#deps.logger.debug(
        { err: error, pod: formatPod(mirror) },
        'A mirror pod without its static pod could not be deleted yet',
      );
    }
  }

  async #keepHouse(signal: AbortSignal): Promise<void> {
    const { clock, logger, podConfig } = this.#deps;
    while (!signal.aborted) {
      try {
        if (podConfig.allSourcesReady()) await this.#housekeeping();
        else await this.#collectOften();
      } catch (error) {
        logger.error({ err: error }, 'Housekeeping failed; it is tried again');
      }
      await clock.sleep(HOUSEKEEPING_MS, signal).catch(() => undefined);
    }
  }

  async #housekeeping(): Promise<void> {
    const { allocations, cgroups, clock, kubeRuntime, pods, probes, statuses, volumes, workers } = this.#deps;
    for (const mirror of pods.mirrors()) if (pods.podOfMirror(mirror) === undefined) await this.#dropMirror(mirror);
    // Up to the collection nothing is awaited: what is wanted stays true.
    const wanted = new Set(pods.list().map((pod) => pod.metadata.uid));
    // Wanted again after its worker ended with the pod being removed: a static file that came back.
    for (const pod of pods.list())
      if (
        workers.state(pod.metadata.uid) === undefined &&
        !this.#admitting.has(pod.metadata.uid) &&
        !isEnded(pod.status) &&
        statuses.get(pod.metadata.uid)?.phase !== 'Failed'
      ) {
        this.#deps.observe?.('restarted', pod);
        this.#admit(pod);
      }
    const forgotten = workers.forget(wanted);
    // Of what starts anew nothing is remembered; the next look takes it up.
    const known = this.#knownPods().difference(new Set(forgotten));
    probes.cleanup(known);
    allocations.forget(known);
    // Room may have come for resizes that wait.
    if (forgotten.length > 0 || clock.monotonic() - this.#lastResizeMs >= RESIZE_RETRY_MS) {
      this.#lastResizeMs = clock.monotonic();
      for (const uid of allocations.deferred()) workers.wake(uid);
    }
    statuses.removeOrphans(new Set([...known, ...pods.mirrors().map((mirror) => mirror.metadata.uid)]));
    const isDue = this.#lastGcMs === 0 || clock.monotonic() - this.#lastGcMs >= CONTAINER_GC_MS;
    if (forgotten.length === 0 && !isDue && !this.#cgroupsAreLeft) return;
    this.#lastGcMs = clock.monotonic();
    kubeRuntime.collect();
    await this.collectContainers();
    // Each asks anew after it has looked: a pod may have come meanwhile, and what it has is not an orphan's.
    await this.#endOrphans();
    await volumes.cleanOrphans(() => this.#knownPods());
    this.#cgroupsAreLeft = await cgroups.cleanOrphans(() => this.#knownPods());
  }

  /** Pods that are wanted, and those that have not ended yet. True until the next `await`. */
  #knownPods(): ReadonlySet<string> {
    const { pods, workers } = this.#deps;
    return new Set([...pods.list().map((pod) => pod.metadata.uid), ...workers.known().keys()]);
  }

  /** While a source is silent only what pods that are known leave behind may go. */
  async #collectOften(): Promise<void> {
    const { clock } = this.#deps;
    if (clock.monotonic() - this.#lastCollectedMs < CONTAINER_GC_MS) return;
    this.#lastCollectedMs = clock.monotonic();
    await this.collectContainers();
  }

  /** Dead containers beyond what is kept, everything of pods that are gone; `terminatedPods`: of ended ones that are still wanted as well. */
  async collectContainers({ terminatedPods = false }: { readonly terminatedPods?: boolean } = {}): Promise<void> {
    const { pods, podConfig, runtime, podLogsDirectory, podsDirectory, logger, workers, clock } = this.#deps;
    const { containerLogsDirectory, deadContainers } = this.#deps;
    await collectContainers({
      runtime,
      logger,
      podLogsDirectory,
      podsDirectory,
      ...(containerLogsDirectory === undefined ? {} : { containerLogsDirectory }),
      nowMs: clock.now(),
      ...deadContainers,
      podExists: (uid) =>
        !podConfig.allSourcesReady() ||
        (pods.byUid(uid) !== undefined && !(terminatedPods && workers.isFinished(uid))) ||
        (workers.state(uid) !== undefined && !workers.isFinished(uid)),
    });
  }

  /** Pods that run though nobody wants them: from before a restart, when their source had them last. */
  async #endOrphans(): Promise<void> {
    const { logger, runtime, workers } = this.#deps;
    for (const pod of await this.runningPods()) {
      if (this.#knownPods().has(pod.metadata.uid)) continue;
      logger.info({ pod: formatPod(pod) }, 'Ending a running pod that is in no source');
      this.#deps.observe?.('orphaned', pod);
      const status = await readRuntimeStatus(runtime, {
        uid: pod.metadata.uid,
        name: pod.metadata.name,
        namespace: pod.metadata.namespace,
      });
      // Its specification, and with it its own grace period, is gone.
      if (status.sandboxes.length > 0)
        this.#inBackground(
          workers.kill(pod, { gracePeriodSeconds: 1, status: undefined }),
          pod,
          'Terminating an orphaned pod',
        );
    }
  }

  /* ---- For status ---- */

  podCouldHaveRunningContainers(pod: Pod): boolean {
    return this.#deps.workers.couldHaveRunningContainers(pod.metadata.uid);
  }

  podIsFinished(pod: Pod): boolean {
    const state = this.#deps.workers.state(pod.metadata.uid);
    return state === undefined || state.kind === 'finished';
  }

  /* ---- For the node's status ---- */

  runtimeErrors(): readonly string[] {
    const pleg = this.#deps.pleg.health();
    return [...this.#deps.runtimeState.runtimeErrors(), ...(pleg === '' ? [] : [`PLEG is not healthy: ${pleg}`])];
  }

  networkErrors(): readonly string[] {
    const problem = this.#deps.runtimeState.networkProblem();
    return problem === '' ? [] : [problem];
  }

  pressure(kind: 'memory' | 'disk' | 'pid'): boolean {
    return this.#deps.pressure(kind);
  }

  images(): Promise<readonly ImageInfo[]> {
    return this.#deps.runtime.listImages();
  }

  activePods(): readonly Pod[] {
    return this.#deps.pods
      .list()
      .filter((pod) => this.#admitting.has(pod.metadata.uid) || (!this.podIsFinished(pod) && !isEnded(pod.status)));
  }

  /* ---- For the server ---- */

  pods(): readonly Pod[] {
    return this.#deps.pods.list().map((pod) => this.#withStatus(pod));
  }

  async runningPods(): Promise<readonly Pod[]> {
    const byUid = new Map<string, Pod>();
    const sandboxes = await this.#deps.runtime.listSandboxes();
    const containers = await this.#deps.runtime.listContainers();
    for (const sandbox of sandboxes) {
      const members = containers.filter(
        (container) => container.sandboxId === sandbox.id && container.state === 'running',
      );
      if ((sandbox.state !== 'ready' && members.length === 0) || byUid.has(sandbox.pod.uid)) continue;
      byUid.set(sandbox.pod.uid, {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: sandbox.pod.name, namespace: sandbox.pod.namespace, uid: sandbox.pod.uid },
        spec: {
          containers: members.map((container) => ({ name: container.name, image: container.image, resources: {} })),
        },
        status: {},
      } as unknown as Pod);
    }
    return [...byUid.values()];
  }

  podByName(namespace: string, name: string): Pod | undefined {
    const pod = this.#deps.pods.byName(namespace, name);
    return pod === undefined ? undefined : this.#withStatus(pod);
  }

  podByUid(uid: string): Pod | undefined {
    const pod = this.#deps.pods.byAnyUid(uid);
    return pod === undefined ? undefined : this.#withStatus(pod);
  }

  async logs(
    namespace: string,
    podName: string,
    container: string,
    options: LogOptions,
    out: NodeJS.WritableStream,
    signal: AbortSignal,
  ): Promise<void> {
    const pod = this.#deps.pods.byName(namespace, podName);
    if (pod === undefined) throw newStatusError(404, 'NotFound', `pod "${podName}" does not exist`);
    const runtime = await this.#runtimeStatus(pod);
    if (!allContainers(pod).some((entry) => entry.container.name === container)) {
      throw newStatusError(404, 'NotFound', `container "${container}" not found in pod "${podName}"`);
    }
    const status = this.#containerStatus(pod, container);
    const attempts = runtime.containers.filter((entry) => entry.name === container);
    const chosen = chooseLog(attempts, status, options);
    if (chosen === undefined) {
      if (options.previous)
        throw newBadRequest(`previous terminated container "${container}" in pod "${podName}" not found`);
      throw newBadRequest(`container "${container}" in pod "${podName}" is waiting to start: ${whyNoLog(status)}`);
    }
    // The header of the answer, before the first line: a silent container is followed as well.
    out.write('');
    const isRunning = async (): Promise<boolean> => {
      try {
        return (await this.#deps.runtime.containerStatus(chosen.id)).state === 'running';
      } catch (error) {
        // A runtime that is away says nothing of its containers: they run on.
        return !(error instanceof RuntimeError && error.code === 'not-found');
      }
    };
    try {
      await readLog(chosen.logPath, options, out, { clock: this.#deps.clock, isRunning }, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      // Nothing was written yet, or the file is gone; the answer has begun, as with the kubelet.
      if (chosen.state !== 'running') out.write(`unable to retrieve container logs for ${chosen.id}`);
    }
  }

  async resolveContainer(namespace: string, podName: string, uid: string, container: string): Promise<ContainerId> {
    const pod = this.#require(namespace, podName, uid);
    const found = findContainer(await this.#runtimeStatus(pod), container);
    if (found === undefined || found.state !== 'running')
      throw newStatusError(500, 'InternalError', `container not found ("${container}")`);
    return found.id;
  }

  async resolveSandbox(namespace: string, podName: string, uid: string): Promise<SandboxId> {
    const pod = this.#require(namespace, podName, uid);
    const ready = (await this.#runtimeStatus(pod)).sandboxes.find((sandbox) => sandbox.state === 'ready');
    if (ready === undefined) throw newNotFound(PODS, podName);
    return ready.id;
  }

  exec(id: ContainerId, command: readonly string[], io: StreamIo): Promise<number> {
    return this.#deps.runtime.exec(id, command, io);
  }

  attach(id: ContainerId, io: StreamIo): Promise<void> {
    return this.#deps.runtime.attach(id, io);
  }

  portForward(id: SandboxId, port: number, signal: AbortSignal): Promise<NodeJS.ReadWriteStream> {
    return this.#deps.runtime.portForward(id, port, signal);
  }

  syncLoopHealth(): string {
    return this.#deps.pleg.health();
  }

  #withStatus(pod: Pod): Pod {
    const status = this.#deps.statuses.get(pod.metadata.uid);
    return status === undefined ? pod : { ...pod, status };
  }

  #require(namespace: string, name: string, uid: string): Pod {
    const pod = uid === '' ? this.#deps.pods.byName(namespace, name) : this.#deps.pods.byAnyUid(uid);
    if (pod === undefined || pod.metadata.name !== name || pod.metadata.namespace !== namespace)
      throw newStatusError(404, 'NotFound', 'pod does not exist');
    return pod;
  }

  #runtimeStatus(pod: Pod): Promise<RuntimePodStatus> {
    return readRuntimeStatus(this.#deps.runtime, {
      uid: pod.metadata.uid,
      name: pod.metadata.name,
      namespace: pod.metadata.namespace,
    });
  }

  #containerStatus(pod: Pod, name: string): ContainerStatusJson | undefined {
    const status: PodStatus | undefined = this.#deps.statuses.get(pod.metadata.uid) ?? pod.status;
    return [
      ...(status?.containerStatuses ?? []),
      ...(status?.initContainerStatuses ?? []),
      ...(status?.ephemeralContainerStatuses ?? []),
    ].find((entry) => entry.name === name);
  }
}

/** A failure of the managers themselves is a refusal: a pod that stayed under admission would never start nor end. */
function unexpectedRefusal(error: unknown): Refusal {
  const why = error instanceof Error ? error.message : String(error);
  return { reason: 'UnexpectedAdmissionError', message: `Allocate failed due to ${why}, which is unexpected` };
}
