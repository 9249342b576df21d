/**
 * Terminates containers: the preStop hook within the grace period, then the signal, then the kill. All containers of a pod
 * begin at once, with their hooks; sidecars get the signal after the others have exited, in reverse order, or when the grace
 * period is over.
 *
 * An abort makes every call reject at once with the signal's reason.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { type Clock, untilAborted } from '../../../api/machinery/clock.ts';
import type { PodEventRecorder } from '../../base/model/pod-events.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import { type Runtime, RuntimeError } from '../runtime.ts';
import type { ContainerId } from '../runtime-identity.ts';
import { type Hook, type HookObserver, runHook } from './lifecycle-hooks.ts';
import { fieldPathOf, findKinded, formatPod, isSidecar } from './pod-containers.ts';
import type { RuntimePodStatus } from './runtime-status.ts';

/** The least time between the signal and the kill, whatever grace was requested and whatever the hook took. */
const MINIMUM_GRACE_SECONDS = 2;

/** The parts of the agent that terminate containers. */
export interface KillDeps {
  readonly runtime: Pick<Runtime, 'execSync' | 'stopContainer'>;
  readonly clock: Clock;
  readonly events: PodEventRecorder;
  readonly logger: Logger;
  readonly observeHook?: HookObserver | undefined;
}

interface KillRequest {
  readonly pod: Pod;
  /** Absent if the specification no longer has the container. */
  readonly container: Container | undefined;
  readonly id: ContainerId;
  readonly name?: string;
  readonly podIp: string;
  /** The message of the event; empty for the kubelet's usual one. */
  readonly message: string;
  /** Overrides the pod's grace period. */
  readonly gracePeriodSeconds?: number;
  /** Resolves when the containers that exit before this one have exited, or could not be terminated. */
  readonly turn?: Promise<unknown>;
  readonly signal: AbortSignal;
}

/**
 * Runs the `preStop` hook, waits for the turn of the container and stops it, all within the grace period in seconds; the
 * container has at least two seconds to stop. A container that is gone counts as stopped. Rejects if the runtime fails or
 * the signal aborts.
 */
export async function killContainer(deps: KillDeps, request: KillRequest): Promise<void> {
  const { pod, container, id, signal } = request;
  signal.throwIfAborted();
  const { clock, events, runtime } = deps;
  const name = container?.name ?? request.name ?? '';
  const kind = findKinded(pod, name)?.kind ?? 'regular';
  const fieldPath = fieldPathOf(kind, name);
  let grace =
    request.gracePeriodSeconds ??
    pod.metadata.deletionGracePeriodSeconds ??
    pod.spec.terminationGracePeriodSeconds ??
    30;
  events.event(pod, 'Normal', 'Killing', request.message === '' ? `Stopping container ${name}` : request.message, {
    fieldPath,
  });
  const hook: Hook | undefined = container?.lifecycle?.preStop;
  if (hook !== undefined && grace > 0) {
    const hooked = (limit: AbortSignal): Promise<void> => preStop(deps, request, hook, { fieldPath, signal: limit });
    grace -= await secondsOf(clock, hooked, grace, signal);
  }
  const { turn } = request;
  if (turn !== undefined && grace > 0) grace -= await secondsOf(clock, () => turn, grace, signal);
  grace = Math.max(grace, MINIMUM_GRACE_SECONDS);
  try {
    await untilAborted(runtime.stopContainer(id, grace), signal);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof RuntimeError && error.code === 'not-found') return;
    events.event(pod, 'Warning', 'FailedKillPod', `error killing container: ${(error as Error).message}`, {
      fieldPath,
    });
    throw error;
  }
}

/** Runs the preStop hook, whose failure does not stop the termination. */
async function preStop(
  { clock, events, logger, runtime, observeHook: observe }: KillDeps,
  { pod, container, id, podIp, signal: killSignal }: KillRequest,
  hook: Hook,
  { fieldPath, signal }: { readonly fieldPath: string; readonly signal: AbortSignal },
): Promise<void> {
  if (container === undefined) return;
  try {
    const warn = (reason: string, text: string): void => events.event(pod, 'Warning', reason, text);
    const target = { id, container, podIp, pod: formatPod(pod) };
    await runHook(hook, target, { runtime, clock, warn, observe }, signal);
  } catch (error) {
    // As in the kubelet, a sleep hook that the grace period cuts short has not failed.
    if (killSignal.aborted || (signal.aborted && hook.sleep !== undefined)) return;
    logger.warn(
      { err: error, pod: formatPod(pod), container: container.name },
      'The preStop hook of a container failed',
    );
    events.event(pod, 'Warning', 'FailedPreStopHook', 'PreStopHook failed', { fieldPath });
  }
}

/** Returns the duration of the work in whole seconds. Abandons the work after the limit. Rejects if it fails or is aborted. */
async function secondsOf(
  clock: Clock,
  work: (signal: AbortSignal) => Promise<unknown>,
  mostSeconds: number,
  signal: AbortSignal,
): Promise<number> {
  const from = clock.monotonic();
  const limit = new AbortController();
  const over = Promise.withResolvers<void>();
  const timer = clock.after(mostSeconds * 1000, () => {
    limit.abort(new Error('the grace period is over'));
    over.resolve();
  });
  try {
    await untilAborted(Promise.race([work(AbortSignal.any([limit.signal, signal])), over.promise]), signal);
  } finally {
    timer.cancel();
  }
  return Math.floor((clock.monotonic() - from) / 1000);
}

/**
 * Returns the shortest grace period that was requested, else that of the specification. It is at least a second, in which hooks
 * run even if a pod is deleted with force.
 */
function podGraceSeconds({ metadata, spec }: Pod, override: number | undefined): number {
  const requested = [override, metadata.deletionGracePeriodSeconds].filter((seconds) => seconds !== undefined);
  const { terminationGracePeriodSeconds = 30 } = spec;
  return Math.max(1, requested.length > 0 ? Math.min(...requested) : terminationGracePeriodSeconds);
}

/**
 * Terminates all running containers of the pod in order. Throws at the end if one could not be terminated, or the signal's
 * reason if the signal has aborted.
 */
export async function killPodContainers(
  deps: KillDeps,
  pod: Pod,
  status: RuntimePodStatus,
  { gracePeriodSeconds, signal }: { readonly gracePeriodSeconds?: number | undefined; readonly signal: AbortSignal },
): Promise<void> {
  const running = status.containers.filter(
    (container) => container.state === 'running' || container.state === 'unknown',
  );
  const sidecars = (pod.spec.initContainers ?? []).filter(isSidecar).map((container) => container.name);
  const failures: unknown[] = [];
  const kill = async (container: (typeof running)[number], turn?: Promise<unknown>): Promise<void> => {
    try {
      await killContainer(deps, {
        pod,
        container: findKinded(pod, container.name)?.container,
        id: container.id,
        name: container.name,
        message: '',
        podIp: status.ips[0] ?? '',
        signal,
        gracePeriodSeconds: podGraceSeconds(pod, gracePeriodSeconds),
        ...(turn === undefined ? {} : { turn }),
      });
    } catch (error) {
      failures.push(error);
    }
  };
  const all = running.filter(({ name }) => !sidecars.includes(name)).map((container) => kill(container));
  // Each sidecar waits for all containers that exit before it.
  for (const name of sidecars.toReversed()) {
    const before = Promise.all([...all]);
    all.push(...running.filter((container) => container.name === name).map((container) => kill(container, before)));
  }
  await Promise.all(all);
  signal.throwIfAborted();
  if (failures.length > 0) throw failures[0];
}
