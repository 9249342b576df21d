/** Computes the agent's conditions of a pod from the states of its containers. Conditions of other writers stay. Pure. */
import { byName } from './by-name.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Container, Pod, PodCondition, PodStatus } from '../../base/model/pod.ts';
import { restartAllTrigger, sandboxChanged } from './pod-actions.ts';
import { isSidecar, mayRestartAll } from './pod-containers.ts';
import { containersWith, readyVerdicts, type Verdict, verdict } from './readiness.ts';
import type { ResizeConditions } from './resize.ts';
import type { RuntimePodStatus } from './runtime-status.ts';

/** Why the agent terminated a pod: the reason and message of its final status. */
export interface PodEnd {
  readonly reason: string;
  readonly message: string;
  /**
   * The message of the condition `DisruptionTarget`, by which controllers distinguish a disruption (pressure on the node, its
   * shutdown, preemption) from a failure of the pod. A pod that exceeds a limit of its own has none.
   */
  readonly disruption?: string;
}

/** The inputs of the conditions. */
export interface ConditionsInput {
  readonly pod: Pod;
  readonly runtime: RuntimePodStatus;
  /** The agent's previous status, else that of the API server. */
  readonly previous: PodStatus | undefined;
  readonly nowMs: number;
  /** The pod has terminated: its containers are not restarted. */
  readonly terminal: boolean;
  /** The reason for which the agent is about to kill the pod (eviction, preemption, shutdown of the node). */
  readonly ended?: PodEnd;
  readonly resize: ResizeConditions;
}

const RESTARTING = 'AllContainersRestarting';

const OWN_CONDITIONS = [
  'PodReadyToStartContainers',
  'Initialized',
  'Ready',
  'ContainersReady',
  'PodScheduled',
  'PodResizePending',
  'PodResizeInProgress',
  RESTARTING,
];

interface ComputedCondition {
  readonly type: string;
  readonly status: string;
  readonly observedGeneration?: number;
  readonly reason?: string;
  readonly message?: string;
}

/** Returns all conditions of the pod. One whose status has not changed keeps its transition time. */
export function podConditions(input: ConditionsInput, status: PodStatus): PodCondition[] {
  const { pod, previous, runtime } = input;
  const started = !sandboxChanged(pod, runtime).changed;
  const { containersReady, ready } = readyVerdicts(pod, status);
  const computed: readonly ComputedCondition[] = [
    ...resizeConditions(input),
    { type: 'PodReadyToStartContainers', status: started ? 'True' : 'False' },
    { type: 'Initialized', ...initialized(pod, status, previous) },
    { type: 'Ready', ...ready },
    { type: 'ContainersReady', ...containersReady },
    { type: 'PodScheduled', status: 'True' },
    ...(mayRestartAll(pod) ? [restartingAll(input, status)] : []),
  ];
  const now = formatTime(input.nowMs);
  const { generation } = pod.metadata;
  const ownConditions = computed.map((condition) => {
    const before = previous?.conditions?.find((entry) => entry.type === condition.type);
    return {
      ...(generation === undefined || condition.type === RESTARTING ? {} : { observedGeneration: generation }),
      ...condition,
      lastProbeTime: condition.type.startsWith('PodResize') ? probeTime(before, condition, now) : null,
      lastTransitionTime:
        before?.status === condition.status && before.lastTransitionTime !== undefined
          ? before.lastTransitionTime
          : now,
    } as unknown as PodCondition;
  });
  // The conditions of others change at the API server only. The agent's own status may hold outdated ones.
  const foreign = (pod.status?.conditions ?? []).filter(
    ({ type }) => !OWN_CONDITIONS.includes(type) && type !== 'DisruptionTarget',
  );
  const disrupted = [previous, pod.status]
    .flatMap((status) => status?.conditions ?? [])
    .find(({ type }) => type === 'DisruptionTarget');
  if (disrupted !== undefined) foreign.push(disrupted);
  const message = input.ended?.disruption;
  if (message === undefined || disrupted !== undefined) return [...foreign, ...ownConditions];
  const disruption = {
    type: 'DisruptionTarget',
    status: 'True',
    reason: 'TerminationByKubelet',
    message,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    lastProbeTime: null,
    lastTransitionTime: now,
  } as unknown as PodCondition;
  return [...foreign, disruption, ...ownConditions];
}

/** Returns the time of the decision about a resize, which stays while the decision does. */
function probeTime(
  before: PodCondition | undefined,
  { reason, observedGeneration }: ComputedCondition,
  now: string,
): string {
  const isSame = before?.reason === reason && before?.observedGeneration === observedGeneration;
  return (isSame ? before?.lastProbeTime : undefined) ?? now;
}

function restartingAll({ pod, runtime, terminal }: ConditionsInput, { phase }: PodStatus): ComputedCondition {
  const type = RESTARTING;
  if (phase === 'Succeeded') return { type, status: 'False', reason: 'PodCompleted' };
  if (phase === 'Failed') return { type, status: 'False', reason: 'PodFailed' };
  const [sandbox] = runtime.sandboxes;
  const isUnderWay = !terminal && restartAllTrigger(pod, runtime, sandbox?.id) !== undefined;
  if (!isUnderWay) return { type, status: 'False' };
  const why = { reason: 'RestartAllContainersStarted', message: 'container exited with restart policy rule' };
  return { type, status: 'True', ...why };
}

function resizeConditions({
  resize: { pending, inProgress },
  terminal,
}: ConditionsInput): readonly ComputedCondition[] {
  if (terminal) return [];
  return [
    ...(inProgress === undefined
      ? []
      : [
          {
            type: 'PodResizeInProgress',
            status: 'True',
            observedGeneration: inProgress.generation,
            ...(inProgress.error === undefined ? {} : { reason: 'Error', message: inProgress.error }),
          },
        ]),
    ...(pending === undefined
      ? []
      : [
          {
            type: 'PodResizePending',
            status: 'True',
            observedGeneration: pending.generation,
            reason: pending.reason,
            message: pending.message,
          },
        ]),
  ];
}

/**
 * Returns the condition `Initialized`. An initialized pod stays initialized, also while its init containers run again in a new
 * sandbox.
 */
function initialized(pod: Pod, status: PodStatus, previous: PodStatus | undefined): Verdict {
  if (status.phase === 'Succeeded') return { status: 'True', reason: 'PodCompleted' };
  const statuses = status.initContainerStatuses ?? [];
  const isComplete = (container: Container): boolean => {
    const found = byName(statuses).get(container.name);
    return isSidecar(container) ? found?.started === true : found?.ready === true;
  };
  const incomplete = (pod.spec.initContainers ?? [])
    .filter((container) => !isComplete(container))
    .map((container) => container.name);
  const hasStarted = (status.containerStatuses ?? []).some(
    ({ state, lastState }) =>
      state?.running !== undefined || state?.terminated !== undefined || lastState?.terminated !== undefined,
  );
  const wasInitialized = previous?.conditions?.some((entry) => entry.type === 'Initialized' && entry.status === 'True');
  if (hasStarted || wasInitialized === true) return { status: 'True' };
  return verdict('ContainersNotInitialized', containersWith('incomplete', incomplete));
}
