/** Registers the gauges about the agent itself on `/metrics`. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import { registerProcess } from '../../../api/component/process-metrics.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { PodState } from '../workers/pod-workers.ts';
import { isStaticPod } from '../../base/model/pod-kinds.ts';
import { runningContainers } from '../../runtime/kuberuntime/running-containers.ts';

interface AgentState {
  readonly nodeName: string;
  readonly cgroupVersion: 1 | 2;
  readonly startedAtMs: number;
  /** The desired pods with their current statuses, without mirror pods. */
  readonly pods: () => readonly Pod[];
  readonly mirrorCount: () => number;
  /** The pods that have a worker, by uid, with those that are terminating after they were removed. */
  readonly workingPods: () => ReadonlyMap<string, Pod>;
  readonly workerState: (uid: string) => PodState | undefined;
  readonly activePods: () => readonly Pod[];
}

/** Registers the gauges, and the metrics of the process. */
export function registerAgentMetrics(metrics: MetricsRegistry, agent: AgentState): void {
  const gauge = (name: string, help: string, labels: readonly string[] = []) => metrics.gauge({ name, help, labels });
  gauge('kubelet_node_name', "The node's name. The count is always 1.", ['node']).with(agent.nodeName).set(1);
  gauge('kubelet_cgroup_version', 'cgroup version on the hosts.').with().set(agent.cgroupVersion);
  gauge('kubelet_metrics_provider', 'Metrics provider used by the kubelet.', ['provider']).with('cgroup').set(1);
  const running = gauge('kubelet_running_pods', 'Number of pods that have a running pod sandbox').with();
  const containers = gauge('kubelet_running_containers', 'Number of containers currently running', ['container_state']);
  const desired = gauge(
    'kubelet_desired_pods',
    'The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.',
    ['static'],
  );
  const active = gauge(
    'kubelet_active_pods',
    'The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.',
    ['static'],
  );
  const mirrors = gauge(
    'kubelet_mirror_pods',
    'The number of mirror pods the kubelet will try to create (one per admitted static pod)',
  ).with();
  const working = gauge(
    'kubelet_working_pods',
    'Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static.',
    ['config', 'lifecycle', 'static'],
  );
  metrics.collect(() => {
    const pods = agent.pods();
    const count = (list: readonly Pod[], isStatic: boolean): number =>
      list.filter((pod) => isStaticPod(pod) === isStatic).length;
    const current = agent.activePods();
    for (const isStatic of [true, false]) {
      const label = isStatic ? 'true' : '';
      desired.with(label).set(count(pods, isStatic));
      active.with(label).set(count(current, isStatic));
    }
    for (const labels of WORKING) working.with(...labels).set(0);
    const desiredUids = new Set(pods.map(({ metadata }) => metadata.uid));
    for (const [uid, pod] of agent.workingPods()) {
      const lifecycle = lifecycleOf(agent.workerState(uid));
      working.with(...workingLabels(pod, { isDesired: desiredUids.has(uid), lifecycle })).inc();
    }
    mirrors.set(agent.mirrorCount());
    running.set(pods.filter((pod) => runningContainers(pod).length > 0).length);
    const states = { running: 0, exited: 0, created: 0 };
    for (const pod of pods) {
      for (const { state } of [
        ...(pod.status?.initContainerStatuses ?? []),
        ...(pod.status?.containerStatuses ?? []),
      ]) {
        if (state?.running !== undefined) states.running++;
        else if (state?.terminated !== undefined) states.exited++;
        else states.created++;
      }
    }
    for (const [state, number] of Object.entries(states)) containers.with(state).set(number);
  });
  registerProcess(metrics, agent.startedAtMs);
}

const LIFECYCLES = ['sync', 'terminating', 'terminated'] as const;
/** All series of `kubelet_working_pods`. A series without a pod has the value 0. */
const WORKING = LIFECYCLES.flatMap((lifecycle) => [
  ...['desired', 'orphan'].flatMap((config) => ['', 'true'].map((label) => [config, lifecycle, label] as const)),
  ['runtime_only', lifecycle, 'unknown'] as const,
]);

function workingLabels(
  pod: Pod,
  { isDesired, lifecycle }: { readonly isDesired: boolean; readonly lifecycle: string },
): readonly [config: string, lifecycle: string, isStatic: string] {
  // A pod that only the runtime reports has no node in its specification.
  if (!isDesired && pod.spec.nodeName === undefined) return ['runtime_only', lifecycle, 'unknown'];
  return [isDesired ? 'desired' : 'orphan', lifecycle, isStaticPod(pod) ? 'true' : ''];
}

function lifecycleOf(state: PodState | undefined): (typeof LIFECYCLES)[number] {
  return state === undefined || state.kind === 'syncing' || state.kind === 'waiting'
    ? 'sync'
    : state.kind === 'terminating'
      ? 'terminating'
      : 'terminated';
}
