/**
 * Computes what the probes and the readiness gates decide of a pod's status: `started` and `ready` of the containers, and
 * the conditions `ContainersReady` and `Ready`. Pure.
 */
import { byName } from './by-name.ts';
import type { Container, ContainerStatusJson, Pod, PodCondition, PodStatus } from '../../base/model/pod.ts';
import type { ProbeResults } from './probe-results.ts';
import { isSidecar } from './pod-containers.ts';

/** The status of a condition with the reason and the message of its problems. */
export interface Verdict {
  readonly status: 'True' | 'False';
  readonly reason?: string;
  readonly message?: string;
}

/** Returns `True` if there are no problems, else `False` with all of them in one message. */
export function verdict(reason: string, problems: readonly string[]): Verdict {
  return problems.length === 0 ? { status: 'True' } : { status: 'False', reason, message: problems.join(', ') };
}

/** Returns the problem that all these containers have; an empty list if there is no container. */
export function containersWith(status: string, names: readonly string[]): readonly string[] {
  return names.length === 0 ? [] : [`containers with ${status} status: [${names.join(' ')}]`];
}

/**
 * Returns the status with `started` and `ready` of its containers. A probe without a result, as after a restart of the agent,
 * leaves the container as it is in `previous`. Ephemeral containers, which have no probes, stay as they are in `status`.
 */
export function withProbeResults(
  pod: Pod,
  status: PodStatus,
  { probes, previous }: { readonly probes: ProbeResults; readonly previous: PodStatus | undefined },
): PodStatus {
  const before = [...(previous?.containerStatuses ?? []), ...(previous?.initContainerStatuses ?? [])];
  const apply = (
    list: readonly ContainerStatusJson[],
    specs: readonly Container[],
    state: (spec: Container, container: ContainerStatusJson) => Readiness,
  ): ContainerStatusJson[] =>
    list.map((container) => {
      const spec = byName(specs).get(container.name);
      return spec === undefined ? container : { ...container, ...state(spec, container) };
    });
  const probed = (spec: Container, container: ContainerStatusJson): Readiness =>
    probedReadiness(spec, container, { probes, before: sameContainer(before, container) });
  const { containerStatuses, initContainerStatuses } = status;
  return {
    ...status,
    ...(containerStatuses === undefined
      ? {}
      : { containerStatuses: apply(containerStatuses, pod.spec.containers, probed) }),
    ...(initContainerStatuses === undefined
      ? {}
      : {
          initContainerStatuses: apply(initContainerStatuses, pod.spec.initContainers ?? [], (spec, container) =>
            isSidecar(spec) ? probed(spec, container) : initReadiness(container),
          ),
        }),
  };
}

interface Readiness {
  readonly ready: boolean;
  readonly started: boolean;
}

/**
 * Returns the readiness of an init container. It is ready once it has succeeded. If the rule RestartAllContainers then removes
 * it, it stays ready until it runs again, although its state is waiting.
 */
function initReadiness({ state, ready }: ContainerStatusJson): Readiness {
  return { ready: ready || state?.terminated?.exitCode === 0, started: state?.running !== undefined };
}

/**
 * Returns whether a container has started (it runs, and its startup probe has succeeded) and is ready (its readiness probe
 * succeeds as well).
 */
function probedReadiness(
  spec: Container,
  { state, containerID = '' }: ContainerStatusJson,
  { probes, before }: { readonly probes: ProbeResults; readonly before: ContainerStatusJson | undefined },
): Readiness {
  if (state?.running === undefined) return { ready: false, started: false };
  const startup = spec.startupProbe === undefined ? 'success' : probes.result('startup', containerID);
  const started = startup === undefined || startup === 'unknown' ? before?.started === true : startup === 'success';
  if (!started) return { ready: false, started };
  const readiness = spec.readinessProbe === undefined ? 'success' : probes.result('readiness', containerID);
  return { ready: readiness === undefined ? before?.ready === true : readiness === 'success', started };
}

function sameContainer(
  statuses: readonly ContainerStatusJson[],
  { containerID }: ContainerStatusJson,
): ContainerStatusJson | undefined {
  return containerID === undefined ? undefined : statuses.find((candidate) => candidate.containerID === containerID);
}

/**
 * Returns the verdicts of `ContainersReady` and `Ready`. The conditions of the readiness gates are those of `pod.status`, which
 * others write to the API server.
 */
export function readyVerdicts(
  pod: Pod,
  status: PodStatus,
): { readonly containersReady: Verdict; readonly ready: Verdict } {
  const containersReady = containersVerdict(pod, status);
  return { containersReady, ready: containersReady.status === 'True' ? gatesVerdict(pod) : containersReady };
}

function containersVerdict(pod: Pod, status: PodStatus): Verdict {
  if (status.phase === 'Succeeded') return { status: 'False', reason: 'PodCompleted' };
  if (status.phase === 'Failed') return { status: 'False', reason: 'PodFailed' };
  const statuses = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])];
  const names = [...(pod.spec.initContainers ?? []).filter(isSidecar), ...pod.spec.containers].map(({ name }) => name);
  const found = byName(statuses);
  const unknown = names.filter((name) => !found.has(name));
  const unready = names.filter((name) => found.has(name) && found.get(name)?.ready !== true);
  return verdict('ContainersNotReady', [...containersWith('unknown', unknown), ...containersWith('unready', unready)]);
}

function gatesVerdict(pod: Pod): Verdict {
  const problems = (pod.spec.readinessGates ?? []).flatMap(({ conditionType }) => {
    const found = pod.status?.conditions?.find((entry) => entry.type === conditionType);
    if (found === undefined)
      return [`corresponding condition of pod readiness gate "${conditionType}" does not exist.`];
    return found.status === 'True'
      ? []
      : [`the status of pod readiness gate "${conditionType}" is not "True", but ${found.status}`];
  });
  return verdict('ReadinessGatesNotReady', problems);
}

/**
 * Returns the status with the conditions `ContainersReady` and `Ready` as its containers and the conditions of `pod.status`
 * are now. A status without these conditions and one of a terminated pod stay as they are. A condition whose status does not
 * change keeps its transition time.
 */
export function withReadyConditions(pod: Pod, status: PodStatus): PodStatus {
  const { conditions, phase } = status;
  if (conditions === undefined || phase === 'Succeeded' || phase === 'Failed') return status;
  if (!conditions.some(({ type }) => type === 'ContainersReady')) return status;
  const { containersReady, ready } = readyVerdicts(pod, status);
  return {
    ...status,
    conditions: conditions.map((entry) => {
      if (entry.type === 'ContainersReady') return replaced(entry, containersReady);
      return entry.type === 'Ready' ? replaced(entry, ready) : entry;
    }),
  };
}

function replaced(before: PodCondition, next: Verdict): PodCondition {
  const { reason: _reason, message: _message, lastTransitionTime, ...fields } = before;
  const isSame = before.status === next.status && lastTransitionTime !== undefined;
  return { ...fields, ...next, ...(isSame ? { lastTransitionTime } : {}) };
}
