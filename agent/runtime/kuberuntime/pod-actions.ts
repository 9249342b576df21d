/**
 * Computes the actions that bring a pod to its desired state, from its specification, the state of the runtime and the
 * results of probes. Pure.
 */
import { initAndMainContainers } from '../../../api/kinds/pod-containers.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import { KILLED } from '../oom-kill.ts';
import type { ProbeKind, ProbeResult } from './probe-results.ts';
import type { ContainerStatus } from '../runtime.ts';
import type { ContainerId, SandboxId } from '../runtime-identity.ts';
import {
  containerHash,
  isSidecar,
  mayRestartAll,
  restartsAfter,
  restartsAll,
  restartsOnFailure,
  shouldStart,
} from './pod-containers.ts';
import type { Resize } from './resize.ts';
import { findContainer, type RuntimePodStatus } from './runtime-status.ts';

/** The annotation with the hash of the specification that a container was created from. */
export const HASH_ANNOTATION = 'io.kubernetes.container.hash';

type KillReason = 'startup-probe' | 'liveness-probe' | 'definition-changed' | 'resize' | 'unknown-state';

/** A container, running or in an unknown state, that must terminate, and why. */
export interface ContainerToKill {
  readonly id: ContainerId;
  readonly container: Container;
  /** The message of the event. */
  readonly message: string;
  readonly reason: KillReason;
}

export interface PodActions {
  /** Whether to kill all running containers and the sandbox. */
  readonly killPod: boolean;
  readonly createSandbox: boolean;
  /** The sandbox to use or to replace. */
  readonly sandboxId: SandboxId | undefined;
  readonly attempt: number;
  readonly initToStart: readonly Container[];
  readonly containersToStart: readonly Container[];
  readonly ephemeralToStart: readonly Container[];
  readonly containersToKill: readonly ContainerToKill[];
  /** The container whose exit restarts all containers of the pod in the same sandbox. */
  readonly restartAllFor?: Container;
}

/** Returns the last result of a probe; `undefined` without the probe. */
export type ProbeLookup = (kind: ProbeKind, containerId: string) => ProbeResult | undefined;
/** Returns the action that gives a running container its allocated resources. */
type ResizeLookup = (container: Container, status: ContainerStatus) => Resize;

/** The inputs besides the specification and the runtime's containers. */
interface Lookups {
  readonly probes: ProbeLookup;
  readonly resize: ResizeLookup;
}

/**
 * Returns whether a sandbox has to be created, its attempt number, and the id of the sandbox to use or to replace. The id is
 * `undefined` without a sandbox, and if the newest one is the only ready one and is on another network than the pod.
 */
export function sandboxChanged(
  pod: Pod,
  status: RuntimePodStatus,
): { readonly changed: boolean; readonly attempt: number; readonly sandboxId: SandboxId | undefined } {
  const [newest] = status.sandboxes;
  if (newest === undefined) return { changed: true, attempt: 0, sandboxId: undefined };
  const recreated = { changed: true, attempt: newest.pod.attempt + 1, sandboxId: newest.id };
  const ready = status.sandboxes.filter((sandbox) => sandbox.state === 'ready').length;
  if (ready > 1 || newest.state !== 'ready') return recreated;
  const onNode = pod.spec.hostNetwork === true;
  if ((newest.networkMode === 'node') !== onNode) return { ...recreated, sandboxId: undefined };
  if (!onNode && newest.ips.length === 0) return recreated;
  return { changed: false, attempt: newest.pod.attempt, sandboxId: newest.id };
}

interface Draft {
  killPod: boolean;
  readonly init: Container[];
  readonly regular: Container[];
  readonly kill: ContainerToKill[];
}

/** Returns the actions for one sync. */
export function computePodActions(
  pod: Pod,
  status: RuntimePodStatus,
  probes: ProbeLookup,
  resize: ResizeLookup = () => 'none',
): PodActions {
  const lookups = { probes, resize };
  const { changed, attempt, sandboxId } = sandboxChanged(pod, status);
  if (changed) return actionsForNewSandbox(pod, status, attempt, sandboxId);
  const draft: Draft = { killPod: false, init: [], regular: [], kill: [] };
  const ephemeral = (pod.spec.ephemeralContainers ?? [])
    .map((container) => container as Container)
    .filter((container) => findContainer(status, container.name) === undefined);
  const base = { createSandbox: false, attempt, sandboxId };
  const trigger = restartAllTrigger(pod, status, sandboxId);
  if (trigger !== undefined) {
    const nothing = { killPod: false, initToStart: [], containersToStart: [], ephemeralToStart: [] };
    return { ...base, ...nothing, containersToKill: [], restartAllFor: trigger };
  }
  const initialized = initActions(pod, status, lookups, draft);
  if (draft.killPod || !initialized) {
    return {
      ...base,
      killPod: draft.killPod,
      initToStart: draft.killPod ? [] : draft.init,
      containersToStart: [],
      ephemeralToStart: draft.killPod ? [] : ephemeral,
      containersToKill: draft.kill,
    };
  }
  const keptCount = pod.spec.containers.filter(
    (container) =>
      regularAction(pod, { container, last: findContainer(status, container.name) }, lookups, draft) === 'keep',
  ).length;
  if (keptCount === 0 && draft.regular.length === 0) {
    return {
      ...base,
      killPod: true,
      initToStart: [],
      containersToStart: [],
      ephemeralToStart: [],
      containersToKill: [],
    };
  }
  return {
    ...base,
    killPod: false,
    initToStart: draft.init,
    containersToStart: draft.regular,
    ephemeralToStart: ephemeral,
    containersToKill: draft.kill,
  };
}

/**
 * Returns the first init or regular container of this sandbox whose exit code requests the restart of all containers. Returns
 * `undefined` if there is none, and for a pod that is being deleted. Containers of older sandboxes do not count.
 */
export function restartAllTrigger(
  pod: Pod,
  status: RuntimePodStatus,
  sandboxId: SandboxId | undefined,
): Container | undefined {
  if (pod.metadata.deletionTimestamp !== undefined || !mayRestartAll(pod)) return undefined;
  return initAndMainContainers(pod.spec).find((container) => {
    const last = findContainer(status, container.name);
    return last?.sandboxId === sandboxId && last?.state === 'exited' && restartsAll(container, last.exitCode);
  });
}

function actionsForNewSandbox(
  pod: Pod,
  status: RuntimePodStatus,
  attempt: number,
  sandboxId: SandboxId | undefined,
): PodActions {
  const base = { killPod: true, sandboxId, attempt, ephemeralToStart: [], containersToKill: [] };
  const nothing = { ...base, createSandbox: false, initToStart: [], containersToStart: [] };
  if (!restartsOnFailure(pod) && attempt !== 0 && status.containers.length > 0) return nothing;
  const regular = pod.spec.containers.filter((container) => {
    const last = findContainer(status, container.name);
    return !(last?.state === 'exited' && last.exitCode === 0 && pod.spec.restartPolicy === 'OnFailure');
  });
  if (regular.length === 0) return nothing;
  const [first] = pod.spec.initContainers ?? [];
  if (first !== undefined) return { ...base, createSandbox: true, initToStart: [first], containersToStart: [] };
  return { ...base, createSandbox: true, initToStart: [], containersToStart: regular };
}

/**
 * Adds to the draft what is to be done for init containers, sidecars of an initialized pod included. Returns whether the
 * init containers have completed.
 */
function initActions(pod: Pod, status: RuntimePodStatus, lookups: Lookups, draft: Draft): boolean {
  const init = pod.spec.initContainers ?? [];
  if (init.length === 0) return true;
  const sandbox = status.sandboxes[0]?.id;
  const wasInitialized = pod.spec.containers.some((container) => {
    const last = findContainer(status, container.name);
    return last !== undefined && last.sandboxId === sandbox && last.state !== 'created';
  });
  let initialized = wasInitialized;
  let hasFoundLatest = false;
  const start = new Set<number>();
  // The last container that has run decides where the initialization stands: those before it have completed.
  for (let index = init.length - 1; index >= 0; index--) {
    const container = init[index];
    if (container === undefined) continue;
    const found = findContainer(status, container.name);
    // A container that exited in an older sandbox does not count: the new sandbox starts from the beginning.
    const last = found?.sandboxId === sandbox ? found : undefined;
    const isCompleted = wasInitialized || hasFoundLatest;
    if (last === undefined) {
      if (isCompleted && isSidecar(container)) start.add(index);
      continue;
    }
    if (isCompleted) {
      if (isSidecar(container)) sidecarAction({ container, last, start: () => start.add(index) }, lookups, draft);
      continue;
    }
    hasFoundLatest = true;
    switch (last.state) {
      case 'created':
        start.add(index);
        break;
      case 'running':
        if (!isSidecar(container)) break;
        if (sidecarAction({ container, last, start: () => start.add(index) }, lookups, draft) === 'started') {
          if (index === init.length - 1) initialized = true;
          else start.add(index + 1);
        }
        break;
      case 'exited':
        if (isSidecar(container)) start.add(index);
        else if (last.exitCode !== 0) {
          if (!restartsAfter(pod, container, last.exitCode)) {
            draft.killPod = true;
            return false;
          }
          start.add(index);
        } else if (index === init.length - 1) initialized = true;
        else start.add(index + 1);
        break;
      case 'unknown':
        draft.kill.push({
          id: last.id,
          container,
          reason: 'unknown-state',
          message: 'Init container is in "unknown" state, try killing it before restart',
        });
        start.add(index);
        break;
    }
  }
  if (!wasInitialized && !hasFoundLatest) start.add(0);
  draft.init.push(...init.filter((_container, index) => start.has(index)));
  return initialized;
}

interface Sidecar {
  readonly container: Container;
  readonly last: ContainerStatus;
  /** Adds the container to those that are started. */
  readonly start: () => void;
}

/**
 * Adds a sidecar to the draft if it does not run or has to be restarted. Returns `waiting` until it runs and its startup probe
 * has succeeded, then `started`, also if it is restarted.
 */
function sidecarAction(
  { container, last, start }: Sidecar,
  { probes, resize }: Lookups,
  draft: Draft,
): 'started' | 'waiting' {
  if (last.state !== 'running') {
    start();
    return 'waiting';
  }
  const restart = (reason: KillReason, message: string): void => {
    draft.kill.push({ id: last.id, container, reason, message });
    start();
  };
  if (container.startupProbe !== undefined) {
    const startup = probes('startup', last.id);
    if (startup === 'failure') restart('startup-probe', `Init container ${container.name} failed startup probe`);
    if (startup !== 'success') return 'waiting';
  }
  if (
    last.annotations[HASH_ANNOTATION] !== undefined &&
    last.annotations[HASH_ANNOTATION] !== containerHash(container)
  ) {
    restart('definition-changed', `Init container ${container.name} definition changed`);
  } else if (probes('liveness', last.id) === 'failure') {
    restart('liveness-probe', `Init container ${container.name} failed liveness probe`);
  } else if (resize(container, last) === 'restart') {
    restart('resize', `Init container ${container.name} resize requires restart`);
  }
  return 'started';
}

/** Returns `keep` if the container runs and stays. Otherwise it adds to the draft what to kill and to start. */
function regularAction(
  pod: Pod,
  { container, last }: { readonly container: Container; readonly last: ContainerStatus | undefined },
  { probes, resize }: Lookups,
  draft: Draft,
): 'keep' | 'change' {
  if (last === undefined || last.state !== 'running') {
    if (!shouldStart(pod, container, last)) return 'change';
    draft.regular.push(container);
    if (last?.state === 'unknown') {
      draft.kill.push({
        id: last.id,
        container,
        reason: 'unknown-state',
        message: 'Container is in "unknown" state, try killing it before restart',
      });
    }
    return 'change';
  }
  const hash = last.annotations[HASH_ANNOTATION];
  if (hash !== undefined && hash !== containerHash(container)) {
    draft.kill.push({
      id: last.id,
      container,
      reason: 'definition-changed',
      message: `Container ${container.name} definition changed, will be restarted`,
    });
    draft.regular.push(container);
    return 'change';
  }
  const failed =
    probes('liveness', last.id) === 'failure'
      ? 'liveness'
      : probes('startup', last.id) === 'failure'
        ? 'startup'
        : undefined;
  if (failed === undefined) {
    if (resize(container, last) !== 'restart') return 'keep';
    const why = `Container ${container.name} resize requires restart`;
    draft.kill.push({ id: last.id, container, reason: 'resize', message: why });
    draft.regular.push(container);
    return 'change';
  }
  const restarts = restartsAfter(pod, container, KILLED);
  const message = `Container ${container.name} failed ${failed} probe${restarts ? ', will be restarted' : ''}`;
  draft.kill.push({ id: last.id, container, reason: `${failed}-probe`, message });
  if (restarts) draft.regular.push(container);
  return 'change';
}
