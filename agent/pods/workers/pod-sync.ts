/**
 * The three steps of a pod's life that the pod workers take: sync (status, volumes, containers), terminate (containers), clean
 * up (volumes, cgroup). Each step is idempotent, because a restarted agent repeats it on what it finds.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { type Clock, untilAborted } from '../../../api/machinery/clock.ts';
import type { PodEventRecorder } from '../../base/model/pod-events.ts';
import type { ContainerStatusJson, Pod, PodStatus } from '../../base/model/pod.ts';
import type { ReferencedObjects } from '../../base/model/referenced-objects.ts';
import { VolumeError, VolumeLimitExceeded } from '../../runtime/container-volumes.ts';
import type { ServiceLister } from '../../runtime/kuberuntime/environment.ts';
import { type MirrorPods, publishedStatus } from '../../sources/mirror-pods.ts';
import type { VolumeManager } from '../../volumes/pod-volumes.ts';
import type { ProbeManager } from '../prober/probe-manager.ts';
import type { StatusManager } from '../status/status-manager.ts';
import { lesser } from './lesser.ts';
import type { NodeInfo } from './node-info.ts';
import type { PodCgroups } from '../../host/cgroups/pod-cgroups.ts';
import { missingPullSecrets } from '../../runtime/images/pull-credentials.ts';
import type { PodEnd } from '../../runtime/kuberuntime/api-conditions.ts';
import { apiPodStatus } from '../../runtime/kuberuntime/api-status.ts';
import type { KubeRuntime } from '../../runtime/kuberuntime/kube-runtime.ts';
import { formatPod } from '../../runtime/kuberuntime/pod-containers.ts';
import { memoryProblem } from '../../runtime/kuberuntime/resize.ts';
import { qosClass } from '../../runtime/kuberuntime/resources.ts';
import { readRuntimeStatus, type RuntimePodStatus } from '../../runtime/kuberuntime/runtime-status.ts';
import { terminationMessage } from '../../runtime/kuberuntime/termination-message.ts';
import type { ContainerStatus, Runtime } from '../../runtime/runtime.ts';
import type { Refusal } from '../../base/model/refusal.ts';
import type { PodAllocations } from './pod-allocation.ts';
import { isStaticPod } from '../../base/model/pod-kinds.ts';
import type { PodManager } from './pod-manager.ts';
import { type Ending, isEnded, type PodSyncer, type SyncOutcome } from './pod-workers.ts';

/** The parts of the agent that the steps use. */
export interface PodSyncOptions {
  readonly runtime: Runtime;
  readonly runtimeName: string;
  readonly kubeRuntime: KubeRuntime;
  readonly pods: PodManager;
  readonly volumes: VolumeManager;
  readonly probes: ProbeManager;
  readonly statuses: StatusManager;
  readonly objects: ReferencedObjects;
  readonly services: Pick<ServiceLister, 'synced'>;
  readonly cgroups: PodCgroups;
  readonly mirrors: MirrorPods | undefined;
  readonly node: NodeInfo;
  readonly allocations: PodAllocations;
  readonly events: PodEventRecorder;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The exclusively allocated CPUs, memory and devices. */
  readonly resources?: {
    release(podUid: string): void;
    /** Prepares the pod's resource claims. Throws the error that keeps the pod from starting. */
    prepare(pod: Pod): Promise<void>;
    /** Returns the health of the devices of a container, or `undefined` if it has none. */
    deviceHealth(pod: Pod, container: string): ContainerStatusJson['allocatedResourcesStatus'];
  };
  /** Called for each container that has terminated, once by this process. */
  readonly onContainerEnded?: (pod: Pod, container: ContainerStatus) => void;
  /** Called for a pod that is rejected after its admission. */
  readonly onRejected?: (pod: Pod, reason: string) => void;
  /** Returns why the network of pods is not ready, and '' if it is ready. */
  readonly networkProblem: () => string;
}

const NETWORK_RETRY_MS = 1_000;
const SERVICES_RETRY_MS = 200;
const MOUNT_RETRY_MS = 1_000;
const CLAIMS_RETRY_MS = 5_000;
const MIRROR_RETRY_MS = 10_000;

const DEADLINE = {
  reason: 'DeadlineExceeded',
  message: 'Pod was active on the node longer than the specified deadline',
};

/** Executes the steps. */
export class PodSync implements PodSyncer {
  readonly #options: PodSyncOptions;
  /**
   * Termination messages by pod uid and container id. Each is read once, because a terminated container does not change it.
   */
  readonly #messages = new Map<string, Map<string, string>>();

  /** The pods whose final status is set. A changed pod is another object. */
  readonly #terminated = new WeakSet<Pod>();

  constructor(options: PodSyncOptions) {
    this.#options = options;
  }

  async sync(desired: Pod, signal: AbortSignal): Promise<SyncOutcome> {
    const { statuses, clock, events, kubeRuntime, cgroups, probes, volumes, objects, allocations } = this.#options;
    // 1. Read the runtime, decide on the pod's allocation and report the status.
    const runtime = await readRuntimeStatus(this.#options.runtime, identity(desired));
    // A restarted agent does not know the limits of the pod's cgroup: they are those of the allocation before this decision.
    cgroups.assume(allocations.allocated(desired));
    const pod = allocations.decide(desired);
    const containersLeft = kubeRuntime.resizing(pod, runtime).length;
    const left = containersLeft + (cgroups.isBehind(pod) ? 1 : 0);
    if (left === 0) allocations.actuated(desired, { left });
    const deadlineMs = this.#deadlineMs(pod);
    const status = await this.#apiStatus(pod, runtime, { terminal: false });
    if (status.reason === DEADLINE.reason && statuses.get(pod.metadata.uid)?.reason !== DEADLINE.reason)
      events.event(pod, 'Normal', DEADLINE.reason, DEADLINE.message);
    statuses.set(pod, status);
    // 2. Terminate the pod if it has ended by itself or exceeds its deadline.
    if (isEnded(status)) return { ended: true, errors: [], retryAtMs: undefined };
    // 3. Without a pod network, start only pods on the host's network.
    const problem = this.#options.networkProblem();
    if (problem !== '' && pod.spec.hostNetwork !== true) {
      events.event(pod, 'Warning', 'NetworkNotReady', `network is not ready: ${problem}`);
      const error = new Error(`network is not ready: ${problem}`);
      return { ended: false, errors: [error], retryAtMs: clock.now() + NETWORK_RETRY_MS };
    }
    // A pod without services in its environment would not find the API server. Static pods may run without an API server.
    if (!isStaticPod(pod) && !this.#options.services.synced()) {
      const error = new Error('services have not yet been read at least once, cannot construct envvars');
      return { ended: false, errors: [error], retryAtMs: clock.now() + SERVICES_RETRY_MS };
    }
    // 4. Watch the objects that the pod refers to, and ensure its cgroup and mirror pod.
    objects.registerPod(pod);
    const refusedResize = left > 0 ? await this.#loweredMemoryProblem(pod, runtime) : undefined;
    const ensuringFromMs = clock.monotonic();
    await cgroups.ensure(pod, { keepRoom: containersLeft > 0 || refusedResize !== undefined });
    const ensureMs = clock.monotonic() - ensuringFromMs;
    const mirrorAtMs = await this.#ensureMirror(pod);
    // 5. Mount the volumes.
    try {
      await volumes.mount(pod, signal);
    } catch (error) {
      if (signal.aborted) return { ended: false, errors: [], retryAtMs: undefined };
      return this.#notMounted(pod, error as Error);
    }
    // 6. Prepare the resource claims.
    try {
      await this.#options.resources?.prepare(pod);
    } catch (error) {
      const message = `Failed to prepare dynamic resources: prepare dynamic resources: ${(error as Error).message}`;
      events.event(pod, 'Warning', 'FailedPrepareDynamicResources', message);
      return { ended: false, errors: [error as Error], retryAtMs: clock.now() + CLAIMS_RETRY_MS };
    }
    // 7. Report pull secrets that are missing: the image may be pulled without them.
    await this.#reportMissingSecrets(pod);
    // 8. Start the probes, then sync the containers.
    probes.addPod(pod);
    const result = await kubeRuntime.syncPod(pod, runtime, signal, { refusedResize });
    const { resizeError } = result;
    if (resizeError !== undefined) allocations.actuated(desired, { left, error: resizeError });
    if (left > 0)
      allocations.attempted({ tookMs: ensureMs + (result.resizeMs ?? 0), isDone: resizeError === undefined });
    // Syncs again at once, so that the status shows the resize.
    const resizedAtMs = left > 0 && resizeError === undefined ? clock.now() : undefined;
    return {
      ended: false,
      errors: result.errors,
      backOffUntilMs: result.backOffUntilMs,
      settlesAtMs: result.settlesAtMs,
      retryAtMs: [result.retryAtMs, resizedAtMs, mirrorAtMs, deadlineMs].reduce(lesser),
    };
  }

  /** Rejects the pod if the node can attach no more volumes. Otherwise returns when mounting is tried again. */
  #notMounted(pod: Pod, error: Error): SyncOutcome {
    if (!(error instanceof VolumeLimitExceeded)) {
      const retryMs = error instanceof VolumeError ? error.retryAfterMs : MOUNT_RETRY_MS;
      return { ended: false, errors: [error], retryAtMs: this.#options.clock.now() + retryMs };
    }
    const reason = 'VolumeAttachmentLimitExceeded';
    this.reject(pod, { reason, message: error.message }, { hasRun: false });
    this.#options.onRejected?.(pod, reason);
    return { ended: true, errors: [], retryAtMs: undefined };
  }

  async terminate(pod: Pod, ending: Ending, signal: AbortSignal): Promise<void> {
    const { statuses, probes, kubeRuntime } = this.#options;
    const ended = ending.status === undefined ? {} : { ended: ending.status };
    const read = (): Promise<RuntimePodStatus> =>
      untilAborted(readRuntimeStatus(this.#options.runtime, identity(pod)), signal);
    let runtime = await read();
    statuses.set(pod, await untilAborted(this.#apiStatus(pod, runtime, { terminal: false, ...ended }), signal));
    probes.stopLivenessAndStartup(pod.metadata.uid);
    await kubeRuntime.killPod(pod, runtime, { gracePeriodSeconds: ending.gracePeriodSeconds, signal });
    probes.removePod(pod.metadata.uid);
    // Reads the runtime once more instead of trusting the answers of the calls that stopped the containers.
    runtime = await read();
    const running = runtime.containers.filter((container) => container.state === 'running');
    if (running.length > 0)
      throw new Error(
        `detected running containers after a successful KillPod: ${running.map((container) => container.name).join(', ')}`,
      );
    statuses.set(pod, await untilAborted(this.#apiStatus(pod, runtime, { terminal: true }), signal));
    this.#terminated.add(pod);
  }

  async cleanUp(pod: Pod, signal: AbortSignal): Promise<void> {
    const { statuses, volumes, objects, cgroups, kubeRuntime } = this.#options;
    if (!this.#terminated.has(pod)) {
      const runtime = await readRuntimeStatus(this.#options.runtime, identity(pod));
      statuses.set(pod, await this.#apiStatus(pod, runtime, { terminal: true }));
    }
    await volumes.unmount(pod, signal);
    objects.unregisterPod(pod);
    await cgroups.remove(pod);
    this.#options.resources?.release(pod.metadata.uid);
    kubeRuntime.forgetPod(pod);
    this.#messages.delete(pod.metadata.uid);
    statuses.terminate(pod);
  }

  /**
   * Records that a pod is rejected, and returns how it ends. The caller must terminate a pod that has run, which sets its
   * status.
   */
  reject(pod: Pod, { reason, message }: Refusal, { hasRun }: { readonly hasRun: boolean }): PodEnd {
    const { generation } = pod.metadata;
    const end = { reason, message: `Pod was rejected: ${message}` };
    this.#options.events.event(pod, 'Warning', reason, message);
    if (!hasRun)
      this.#options.statuses.set(pod, {
        phase: 'Failed',
        ...end,
        qosClass: qosClass(pod),
        ...(generation === undefined ? {} : { observedGeneration: generation }),
      });
    return end;
  }

  /** Computes the pod's status for the API server, and reports containers that have terminated. */
  async #apiStatus(
    pod: Pod,
    runtime: RuntimePodStatus,
    options: { readonly terminal: boolean; readonly ended?: PodEnd },
  ): Promise<PodStatus> {
    const messages = await this.#terminationMessages(pod, runtime);
    const { allocations, kubeRuntime, probes, resources } = this.#options;
    const allocated = allocations.allocated(pod);
    const status = apiPodStatus({
      pod: allocated,
      runtime,
      resize: allocations.conditions(pod.metadata.uid),
      resizing: kubeRuntime.resizing(allocated, runtime),
      runtimeName: this.#options.runtimeName,
      previous: this.#lastStatus(pod),
      waiting: (name) => kubeRuntime.waitingReason(pod.metadata.uid, name),
      hostIps: this.#options.node.hostIps(),
      recursiveReadOnly: this.#options.volumes.recursiveReadOnly(),
      nowMs: this.#options.clock.now(),
      probes,
      deviceHealth: (container) => resources?.deviceHealth(pod, container),
      terminationMessage: (container) => messages.get(container.id) ?? '',
      ...(this.#isOverdue(pod) ? { overdue: DEADLINE } : {}),
      ...options,
    });
    probes.probeSoon(pod.metadata.uid, status);
    return status;
  }

  /** Reads the messages of containers that have terminated, and forgets those of containers that the runtime has removed. */
  async #terminationMessages(pod: Pod, { containers }: RuntimePodStatus): Promise<ReadonlyMap<string, string>> {
    const messages = this.#messages.get(pod.metadata.uid) ?? new Map<string, string>();
    this.#messages.set(pod.metadata.uid, messages);
    const ids = new Set<string>(containers.map(({ id }) => id));
    for (const id of messages.keys()) if (!ids.has(id)) messages.delete(id);
    for (const container of containers) {
      if (container.state !== 'exited' || messages.has(container.id)) continue;
      messages.set(container.id, await terminationMessage(container));
      this.#options.onContainerEnded?.(pod, container);
    }
    return messages;
  }

  async #reportMissingSecrets(pod: Pod): Promise<void> {
    const missing = await missingPullSecrets(pod, this.#options.objects);
    if (missing.length === 0) return;
    const message = `Unable to retrieve some image pull secrets (${missing.join(', ')}); attempting to pull the image may not succeed.`;
    this.#options.events.event(pod, 'Warning', 'FailedToRetrieveImagePullSecret', message);
  }

  /**
   * Returns why a lowered memory limit cannot be set yet, because the kernel would kill processes. Resolves to `undefined`
   * if every limit can be set.
   */
  async #loweredMemoryProblem(pod: Pod, status: RuntimePodStatus): Promise<string | undefined> {
    const { cgroups, kubeRuntime, runtime } = this.#options;
    const lowered = { podBytes: cgroups.loweredMemory(pod), containers: kubeRuntime.lowered(pod, status) };
    if (lowered.podBytes === undefined && lowered.containers.length === 0) return undefined;
    return memoryProblem(lowered, await runtime.containerStats({ podUid: pod.metadata.uid }));
  }

  /** Returns the last status of a pod: after a restart, that of the API server. */
  #lastStatus(pod: Pod): PodStatus | undefined {
    const { statuses, pods } = this.#options;
    return statuses.get(pod.metadata.uid) ?? publishedStatus(pod, (each) => pods.mirrorOf(each));
  }

  /** Whether the pod has exceeded its deadline, and has not ended before. */
  #isOverdue(pod: Pod): boolean {
    const deadlineMs = this.#deadlineMs(pod);
    return deadlineMs !== undefined && this.#options.clock.now() >= deadlineMs && !isEnded(pod.status);
  }

  /** Returns the time of the pod's deadline, or `undefined` if it has none or has not started. */
  #deadlineMs(pod: Pod): number | undefined {
    const seconds = pod.spec.activeDeadlineSeconds;
    const start = this.#lastStatus(pod)?.startTime;
    return seconds === undefined || start === undefined ? undefined : Date.parse(start) + seconds * 1000;
  }

  /**
   * Creates the mirror pod if it is missing. Returns the time of the next attempt; `undefined` if the mirror pod exists or is
   * not needed.
   */
  async #ensureMirror(pod: Pod): Promise<number | undefined> {
    const { mirrors, pods, logger, clock } = this.#options;
    if (mirrors === undefined || !isStaticPod(pod)) return undefined;
    try {
      if (await mirrors.ensure(pod, pods.mirrorOf(pod))) return undefined;
    } catch (error) {
      logger.debug({ err: error, pod: formatPod(pod) }, 'Cannot create the mirror pod of a static pod yet');
    }
    return clock.now() + MIRROR_RETRY_MS;
  }
}

function identity(pod: Pod): { uid: string; name: string; namespace: string } {
  return { uid: pod.metadata.uid, name: pod.metadata.name, namespace: pod.metadata.namespace };
}
