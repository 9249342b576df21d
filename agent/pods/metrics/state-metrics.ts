/**
 * Registers the metrics of the agent's state under the kubelet's names, such as feature gates, volumes, terminated
 * containers and the steps of the node's startup.
 */
import { readFileSync } from 'node:fs';
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { ContainerStatus } from '../../runtime/runtime.ts';
import type { PodCgroups } from '../../host/cgroups/pod-cgroups.ts';
import { isStaticPod } from '../../base/model/pod-kinds.ts';
import { followResizes } from './resize-metrics.ts';
import { volumePlugin } from '../../volumes/volume-metrics.ts';
import { type PodStartups, podStartups } from './pod-startup.ts';

interface ObservedState {
  readonly gates: readonly { readonly name: string; readonly stage: string; readonly enabled: boolean }[];
  /** The desired pods with their current statuses. */
  readonly pods: () => readonly Pod[];
  /** Returns the names of the pod's mounted volumes. */
  readonly mountedVolumes: (podUid: string) => ReadonlySet<string>;
}

/** Registers the gauges of feature gates, which do not change, and gauges that read the state of pods at each scrape. */
export function registerStateMetrics(metrics: MetricsRegistry, { gates, pods, mountedVolumes }: ObservedState): void {
  const enabled = metrics.gauge({
    name: 'kubernetes_feature_enabled',
    help: 'This metric records the data about the stage and enablement of a k8s feature.',
    labels: ['name', 'stage'],
  });
  for (const gate of gates)
    enabled.with(gate.name, gate.stage === 'ga' ? '' : gate.stage.toUpperCase()).set(gate.enabled ? 1 : 0);
  const gauge = (name: string, help: string) => metrics.gauge({ name, help }).with();
  const ephemeral = gauge(
    'kubelet_managed_ephemeral_containers',
    'Current number of ephemeral containers in pods managed by this kubelet.',
  );
  followResizes(metrics, pods);
  const volumes = metrics.gauge({
    name: 'volume_manager_total_volumes',
    help: 'Number of volumes in Volume Manager',
    labels: ['plugin_name', 'state'],
  });
  const reported = new Set<string>();
  metrics.collect(() => {
    const all = pods();
    ephemeral.set(all.reduce((sum, { spec }) => sum + (spec.ephemeralContainers ?? []).length, 0));
    const counts = new Map<string, number>([...reported].map((key) => [key, 0]));
    const count = (plugin: string, state: string): void => {
      const key = `${plugin} ${state}`;
      counts.set(key, (counts.get(key) ?? 0) + 1);
    };
    for (const pod of all) {
      const mounted = mountedVolumes(pod.metadata.uid);
      for (const volume of pod.spec.volumes ?? []) {
        const plugin = volumePlugin(volume);
        count(plugin, 'desired_state_of_world');
        if (mounted.has(volume.name)) count(plugin, 'actual_state_of_world');
      }
    }
    for (const [key, number] of counts) {
      reported.add(key);
      const [plugin = '', state = ''] = key.split(' ');
      volumes.with(plugin, state).set(number);
    }
  });
}

/**
 * Counts orphaned pods, which the runtime runs although they are not desired, and pods that were recreated with the
 * same uid.
 */
export function podEventMetrics(metrics: MetricsRegistry): (event: 'orphaned' | 'restarted', pod: Pod) => void {
  const orphaned = metrics
    .counter({
      name: 'kubelet_orphaned_runtime_pods_total',
      help: 'Number of pods that have been detected in the container runtime without being already known to the pod worker.',
    })
    .with();
  const restarted = metrics.counter({
    name: 'kubelet_restarted_pods_total',
    help: 'Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)',
    labels: ['static'],
  });
  for (const label of ['', 'true']) restarted.with(label);
  return (event, pod) => {
    if (event === 'orphaned') orphaned.inc();
    else restarted.with(isStaticPod(pod) ? 'true' : '').inc();
  };
}

/** Counts HTTPS hooks that got an HTTP response, and sleep hooks that were cut short. */
export function hookMetrics(metrics: MetricsRegistry): (event: 'http-fallback' | 'sleep-cut-short') => void {
  const counter = (name: string, help: string) => metrics.counter({ name, help }).with();
  const fallbacks = counter(
    'kubelet_lifecycle_handler_http_fallbacks_total',
    'The number of times lifecycle handlers successfully fell back to http from https.',
  );
  const shortened = counter(
    'kubelet_sleep_action_terminated_early_total',
    'The number of times lifecycle sleep handler got terminated before it finishes',
  );
  return (event) => (event === 'http-fallback' ? fallbacks : shortened).inc();
}

/** Counts pods that were preempted for a critical pod, by the resource that was short. */
export function preemptionMetrics(metrics: MetricsRegistry): (resource: string) => void {
  const preemptions = metrics.counter({
    name: 'kubelet_preemptions',
    help: 'Cumulative number of pod preemptions by preemption resource',
    labels: ['preemption_signal'],
  });
  return (resource) => preemptions.with(resource).inc();
}

/**
 * Counts terminated containers, and measures how long pods take to start and how long it takes until the kube-apiserver has a
 * pod's status.
 */
export function podMetrics(
  metrics: MetricsRegistry,
  clock: Clock,
): {
  containerEnded(pod: Pod, container: ContainerStatus): void;
  statusSent(tookMs: number): void;
  readonly startups: PodStartups;
} {
  const ended = metrics.counter({
    name: 'kubelet_terminated_containers_total',
    help: 'Cumulative number of containers terminated. Broken down by container type, exit code and reason.',
    labels: ['container_type', 'exit_code', 'reason'],
  });
  const lag = metrics
    .histogram({
      name: 'kubelet_pod_status_sync_duration_seconds',
      help: 'Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.',
      buckets: [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60],
    })
    .with();
  const sinceMs = clock.now();
  return {
    startups: podStartups(metrics, clock),
    containerEnded(pod, { name, exitCode, reason, finishedAtMs }) {
      // Containers that terminated before the agent started were counted by the previous process.
      if (finishedAtMs < sinceMs) return;
      const isIn = (list: readonly { readonly name: string }[] | undefined): boolean =>
        (list ?? []).some((container) => container.name === name);
      const type = isIn(pod.spec.initContainers)
        ? 'init_container'
        : isIn(pod.spec.ephemeralContainers)
          ? 'ephemeral_container'
          : 'container';
      ended.with(type, String(exitCode), reason).inc();
    },
    statusSent: (tookMs) => lag.observe(tookMs / 1000),
  };
}

/** Measures the node's startup: from the start of the host over the start of the agent to the first Ready condition. */
export function nodeStartMetrics(
  metrics: MetricsRegistry,
  clock: Clock,
): (step: 'registering' | 'registered' | 'ready') => void {
  const gauge = (name: string, help: string) => metrics.gauge({ name, help }).with();
  const beforeAgent = gauge(
    'kubelet_node_startup_pre_kubelet_duration_seconds',
    'Duration in seconds of node startup before kubelet starts.',
  );
  const beforeRegistration = gauge(
    'kubelet_node_startup_pre_registration_duration_seconds',
    'Duration in seconds of node startup before registration.',
  );
  const registration = gauge(
    'kubelet_node_startup_registration_duration_seconds',
    'Duration in seconds of node startup during registration.',
  );
  const afterRegistration = gauge(
    'kubelet_node_startup_post_registration_duration_seconds',
    'Duration in seconds of node startup after registration.',
  );
  const whole = gauge('kubelet_node_startup_duration_seconds', 'Duration in seconds of node startup in total.');
  const bootedAtMs = bootTimeMs() ?? clock.now();
  const at = { agent: clock.now(), registering: 0, registered: 0 };
  beforeAgent.set((at.agent - bootedAtMs) / 1000);
  let isReady = false;
  return (step) => {
    const nowMs = clock.now();
    if (isReady) return;
    if (step === 'registering' && at.registering === 0) {
      at.registering = nowMs;
      beforeRegistration.set((nowMs - at.agent) / 1000);
    } else if (step === 'registered' && at.registered === 0) {
      at.registered = nowMs;
      registration.set((nowMs - at.registering) / 1000);
    } else if (step === 'ready' && at.registered !== 0) {
      isReady = true;
      afterRegistration.set((nowMs - at.registered) / 1000);
      whole.set((nowMs - bootedAtMs) / 1000);
    }
  };
}

function bootTimeMs(): number | undefined {
  try {
    const seconds = /^btime (\d+)/m.exec(readFileSync('/proc/stat', 'utf8'))?.[1];
    return seconds === undefined ? undefined : Number(seconds) * 1000;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Returns the same cgroups, and measures how long it takes to create, update and remove one. */
export function measuredCgroups(cgroups: PodCgroups, metrics: MetricsRegistry, clock: Clock): PodCgroups {
  const durations = metrics.histogram({
    name: 'kubelet_cgroup_manager_duration_seconds',
    help: 'Duration in seconds for cgroup manager operations. Broken down by method.',
    labels: ['operation_type'],
  });
  const measured = async (operation: string, work: () => Promise<void>): Promise<void> => {
    const fromMs = clock.monotonic();
    try {
      await work();
    } finally {
      durations.with(operation).observe((clock.monotonic() - fromMs) / 1000);
    }
  };
  /** The uids of pods whose cgroup this process has ensured. The first time counts as `create`, as in the kubelet. */
  const ensured = new Set<string>();
  return {
    parent: (pod) => cgroups.parent(pod),
    assume: (pod) => cgroups.assume(pod),
    ensure: async (pod, options) => {
      const { uid } = pod.metadata;
      await measured(ensured.has(uid) ? 'update' : 'create', () => cgroups.ensure(pod, options));
      ensured.add(uid);
    },
    isBehind: (pod) => cgroups.isBehind(pod),
    loweredMemory: (pod) => cgroups.loweredMemory(pod),
    remove: (pod) => {
      ensured.delete(pod.metadata.uid);
      return measured('destroy', () => cgroups.remove(pod));
    },
    cleanOrphans: (wanted) => cgroups.cleanOrphans(wanted),
  };
}
