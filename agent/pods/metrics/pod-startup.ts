/**
 * Measures how long pods take to start, as the kubelet does: from the creation of a pod until the agent sees at the API
 * server that all its containers have been started. The service level indicator (SLI) of Kubernetes leaves out pulls of
 * images, init containers, and pods with volumes that keep data. Pods that have a start time when the agent first sees them
 * are not measured. Also counts pods that were rejected.
 */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Pod } from '../../base/model/pod.ts';
import { isSidecar } from '../../runtime/kuberuntime/pod-containers.ts';

/** The bounds of the buckets in seconds. */
export const STARTUP_BUCKETS: readonly number[] = [
  0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
];

const OBSERVED =
  'measured from pod creation timestamp to when all its containers are reported as started and observed via watch';

/** Reasons that the counter of rejections names. Extended resources share one label value, and all other reasons another. */
const REJECTIONS: ReadonlySet<string> = new Set([
  'AppArmor',
  'PodOSSelectorNodeLabelDoesNotMatch',
  'PodOSNotSupported',
  'InvalidNodeInfo',
  'InitContainerRestartPolicyForbidden',
  'SupplementalGroupsPolicyNotSupported',
  'UnexpectedAdmissionError',
  'UnknownReason',
  'UnexpectedPredicateFailureType',
  'OutOfcpu',
  'OutOfmemory',
  'OutOfephemeral-storage',
  'OutOfpods',
  'PodLevelResourcesNotSupported',
  'PodFeatureUnsupported',
  "node(s) had taints that the pod didn't tolerate",
  'Evicted',
  'SysctlForbidden',
  'TopologyAffinityError',
  'NodeShutdown',
  'VolumeAttachmentLimitExceeded',
]);

interface Startup {
  /** The time at which the agent first received the pod. */
  readonly receivedMs: number;
  pullingMs: number;
  hasWorker: boolean;
}

/** Owns what is known of pods that have not started yet. */
export interface PodStartups {
  /** Receives each pod of the API server as it changes, and measures its startup when all its containers have started. */
  observed(pod: Pod): void;
  /** Called when the first step of the pod's worker begins. */
  workerStarted(podUid: string): void;
  /** Called when an image was pulled for the pod, or the pull has failed. */
  pulled(podUid: string, tookMs: number): void;
  /** Called when the agent has rejected the pod. */
  rejected(podUid: string, reason: string): void;
  forget(podUid: string): void;
}

function register(metrics: MetricsRegistry) {
  const histogram = (name: string, help: string, buckets?: readonly number[]) =>
    metrics.histogram({ name, help, ...(buckets === undefined ? {} : { buckets }) }).with();
  return {
    total: histogram(
      'kubelet_pod_start_total_duration_seconds',
      `Duration in seconds to start a pod since creation, including time to pull images and run init containers, ${OBSERVED}`,
      STARTUP_BUCKETS,
    ),
    indicator: histogram(
      'kubelet_pod_start_sli_duration_seconds',
      `Duration in seconds to start a pod, excluding time to pull images and run init containers, ${OBSERVED}`,
      STARTUP_BUCKETS,
    ),
    firstNetworkPod: metrics
      .gauge({
        name: 'kubelet_first_network_pod_start_sli_duration_seconds',
        help: `Duration in seconds to start the first network pod, excluding time to pull images and run init containers, ${OBSERVED}`,
      })
      .with(),
    workers: histogram(
      'kubelet_pod_worker_start_duration_seconds',
      'Duration in seconds from kubelet seeing a pod to starting a worker.',
    ),
    rejections: metrics.counter({
      name: 'kubelet_admission_rejections_total',
      help: 'Cumulative number pod admission rejections by the Kubelet.',
      labels: ['reason'],
    }),
  };
}

/** Registers the metrics. Times of objects are compared with the clock of this host. */
export function podStartups(metrics: MetricsRegistry, clock: Clock): PodStartups {
  const { total, indicator, firstNetworkPod, workers, rejections } = register(metrics);
  const starting = new Map<string, Startup>();
  let hasNetworkPod = false;
  const started = (pod: Pod, created: string, { pullingMs }: Startup): void => {
    const tookMs = clock.now() - Date.parse(created);
    total.observe(tookMs / 1000);
    if (keepsData(pod)) return;
    const ownSeconds = (tookMs - pullingMs - initMs(pod)) / 1000;
    indicator.observe(ownSeconds);
    if (hasNetworkPod || pod.spec.hostNetwork === true) return;
    hasNetworkPod = true;
    firstNetworkPod.set(ownSeconds);
  };
  return {
    observed(pod) {
      const { uid, creationTimestamp } = pod.metadata;
      const startup = starting.get(uid);
      if (isUnplaced(pod) || isOver(pod)) starting.delete(uid);
      else if (startup !== undefined && creationTimestamp && hasStarted(pod)) {
        starting.delete(uid);
        started(pod, creationTimestamp, startup);
      } else if (startup === undefined && pod.status?.startTime === undefined)
        // An earlier run of the agent has set a start time.
        starting.set(uid, { receivedMs: clock.monotonic(), pullingMs: 0, hasWorker: false });
    },
    workerStarted(podUid) {
      const startup = starting.get(podUid);
      if (startup === undefined || startup.hasWorker) return;
      startup.hasWorker = true;
      workers.observe((clock.monotonic() - startup.receivedMs) / 1000);
    },
    pulled(podUid, tookMs) {
      const startup = starting.get(podUid);
      if (startup !== undefined) startup.pullingMs += tookMs;
    },
    rejected(podUid, reason) {
      starting.delete(podUid);
      const other = reason.startsWith('OutOf') ? 'OutOfExtendedResources' : 'Other';
      rejections.with(REJECTIONS.has(reason) ? reason : other).inc();
    },
    forget: (podUid) => void starting.delete(podUid),
  };
}

function isOver({ status }: Pod): boolean {
  return status?.phase === 'Failed' || status?.phase === 'Succeeded';
}

/** Whether the scheduler reports that it found no node for the pod. */
function isUnplaced({ status }: Pod): boolean {
  return status?.conditions?.some(({ type, status: is }) => type === 'PodScheduled' && is === 'False') === true;
}

function hasStarted({ status }: Pod): boolean {
  const containers = status?.containerStatuses ?? [];
  return containers.length > 0 && containers.every(({ state }) => state?.running?.startedAt !== undefined);
}

function keepsData({ spec }: Pod): boolean {
  return (spec.volumes ?? []).some(
    ({ secret, configMap, downwardAPI, emptyDir, projected }) =>
      (secret ?? configMap ?? downwardAPI ?? emptyDir ?? projected) === undefined,
  );
}

/** Returns how long the init containers ran that are no sidecars. */
function initMs({ spec, status }: Pod): number {
  const sidecars = new Set((spec.initContainers ?? []).filter(isSidecar).map(({ name }) => name));
  return (status?.initContainerStatuses ?? []).reduce((sum, { name, state }) => {
    const { startedAt, finishedAt } = state?.terminated ?? {};
    if (sidecars.has(name) || !startedAt || !finishedAt) return sum;
    return sum + Math.max(0, Date.parse(finishedAt) - Date.parse(startedAt));
  }, 0);
}
