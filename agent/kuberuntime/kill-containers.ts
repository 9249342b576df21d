/**
 * Ending containers: preStop within the grace period, the signal, the kill; the pod's containers at once, its sidecars
 * after them in reverse order, all within one grace period.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Container, Pod, PodEventRecorder } from '../core-types.ts';
import { type ContainerId, type Runtime, RuntimeError } from '../runtime/runtime.ts';
import { type Hook, runHook } from './lifecycle-hooks.ts';
import { fieldPathOf, findKinded, formatPod, isSidecar } from './pod-containers.ts';
import type { RuntimePodStatus } from './runtime-status.ts';

/** A container has at least so long after its hook. */
const MINIMUM_GRACE_SECONDS = 2;

export interface KillDeps {
  readonly runtime: Pick<Runtime, 'execSync' | 'stopContainer'>;
  readonly clock: Clock;
  readonly events: PodEventRecorder;
  readonly logger: Logger;
}

export interface KillRequest {
  readonly pod: Pod;
  /** Absent: the specification no longer has it. */
  readonly container: Container | undefined;
  readonly id: ContainerId;
  readonly name?: string;
  readonly podIp: string;
  /** '' for the usual words. */
  readonly message: string;
  /** Over the pod's own. */
  readonly gracePeriodSeconds?: number;
}

export async function killContainer(deps: KillDeps, request: KillRequest): Promise<void> {
  const { pod, container, id } = request;
  const { clock, events, runtime, logger } = deps;
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
  if (container !== undefined && hook !== undefined && grace > 0) {
    const from = clock.monotonic();
    const limit = new AbortController();
    const timer = clock.after(grace * 1000, () => limit.abort(new Error('the grace period is over')));
    try {
      const warn = (reason: string, text: string): void => events.event(pod, 'Warning', reason, text);
      await runHook(hook, { id, container, podIp: request.podIp }, { runtime, clock, warn }, limit.signal);
    } catch (error) {
      if (!limit.signal.aborted) {
        logger.warn({ error, pod: formatPod(pod), container: name }, 'The preStop hook of a container failed');
        events.event(pod, 'Warning', 'FailedPreStopHook', 'PreStopHook failed', { fieldPath });
      }
    } finally {
      timer.cancel();
    }
    grace -= Math.floor((clock.monotonic() - from) / 1000);
  }
  if (request.gracePeriodSeconds === undefined || hook !== undefined)
    grace = Math.max(grace, request.gracePeriodSeconds === 0 ? 0 : MINIMUM_GRACE_SECONDS);
  try {
    await runtime.stopContainer(id, grace);
  } catch (error) {
    if (error instanceof RuntimeError && error.code === 'not-found') return;
    events.event(pod, 'Warning', 'FailedKillPod', `error killing container: ${(error as Error).message}`, {
      fieldPath,
    });
    throw error;
  }
}

/** All running containers of the pod, in order; throws when one could not be ended, after the others were. */
export async function killPodContainers(
  deps: KillDeps,
  pod: Pod,
  status: RuntimePodStatus,
  gracePeriodSeconds: number | undefined,
): Promise<void> {
  const running = status.containers.filter(
    (container) => container.state === 'running' || container.state === 'unknown',
  );
  const sidecars = (pod.spec.initContainers ?? []).filter(isSidecar).map((container) => container.name);
  const total =
    gracePeriodSeconds ?? pod.metadata.deletionGracePeriodSeconds ?? pod.spec.terminationGracePeriodSeconds ?? 30;
  const from = deps.clock.monotonic();
  const failures: unknown[] = [];
  const kill = async (container: (typeof running)[number], grace: number | undefined): Promise<void> => {
    try {
      await killContainer(deps, {
        pod,
        container: findKinded(pod, container.name)?.container,
        id: container.id,
        name: container.name,
        message: '',
        podIp: status.ips[0] ?? '',
        ...(grace === undefined ? {} : { gracePeriodSeconds: grace }),
      });
    } catch (error) {
      failures.push(error);
    }
  };
  await Promise.all(
    running
      .filter((container) => !sidecars.includes(container.name))
      .map((container) => kill(container, gracePeriodSeconds)),
  );
  for (const name of sidecars.toReversed()) {
    const left = Math.max(
      total - Math.floor((deps.clock.monotonic() - from) / 1000),
      total === 0 ? 0 : MINIMUM_GRACE_SECONDS,
    );
    await Promise.all(running.filter((container) => container.name === name).map((container) => kill(container, left)));
  }
  if (failures.length > 0) throw failures[0];
}
