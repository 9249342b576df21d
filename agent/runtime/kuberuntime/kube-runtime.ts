/**
 * Brings a pod on the container runtime to its desired state: computes the actions and executes them in the kubelet's
 * order. At most one call for a pod may run at a time.
 */
import { untilAborted } from '../../../api/machinery/clock.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import type { SandboxConfig, SandboxStatus } from '../runtime.ts';
import type { SandboxId } from '../runtime-identity.ts';
import {
  ContainerStarter,
  type ContainerStarterOptions,
  type Session,
  type WaitingReason,
} from './container-starter.ts';
import { sandboxConfig } from './container-config.ts';
import type { DnsWarning } from './dns.ts';
import { killContainer, type KillDeps, killPodContainers } from './kill-containers.ts';
import { computePodActions, type ContainerToKill, type PodActions, type ProbeLookup } from './pod-actions.ts';
import { podAddresses } from './pod-addresses.ts';
import { allContainers, type ContainerKind, findKinded, podFullName } from './pod-containers.ts';
import { type LoweredContainer, loweredMemory, resizeOf } from './resize.ts';
import { findContainer, type RuntimePodStatus } from './runtime-status.ts';
import { linuxResources } from './resources.ts';

interface PodSandbox {
  readonly id: SandboxId;
  readonly ips: readonly string[];
}

/** Holds the containers of a pod until the host's rules apply to its addresses. */
export interface PodNetworkGate {
  /** Rejects if the rules cannot be applied; the next sync tries again. */
  admit(pod: Pod, sandbox: PodSandbox, signal: AbortSignal): Promise<void>;
  /** Called when the pod's sandbox is gone. Releases what `admit` has set up for the pod. */
  forget(pod: Pod): void;
}

interface KubeRuntimeOptions extends ContainerStarterOptions {
  readonly network: PodNetworkGate;
  readonly probes: ProbeLookup;
}

interface SyncResult {
  /** Empty if everything succeeded. */
  readonly errors: readonly Error[];
  /** The earliest time at which the back-off of a container that crashes is over. */
  readonly backOffUntilMs?: number | undefined;
  /** The time at which the next sync has something to do. */
  readonly retryAtMs?: number | undefined;
  /** The time until which the next sync waits, whatever happens meanwhile. */
  readonly settlesAtMs?: number | undefined;
  /** Why a running container did not get the resources that are allocated to its pod. */
  readonly resizeError?: string | undefined;
  /** How long the containers took to get their resources. */
  readonly resizeMs?: number;
}

/** Why no container may be resized. */
interface RefusedResize {
  readonly refusedResize?: string | undefined;
}

/**
 * The period of the kubelet's relists. Runtimes send no event if a start fails, so the kubelet notices it at its next relist.
 */
const RELIST_MS = 1_000;

/** The times of the next sync that failed starts require. */
type NextSync = { -readonly [field in 'backOffUntilMs' | 'retryAtMs' | 'settlesAtMs']?: number };

/** The state of a container before its start was tried. */
interface StateBefore {
  /** The reason for which the container waited, if it did. */
  readonly waited: string | undefined;
  /** Whether the container ran for less than the period of the kubelet's relists. */
  readonly wasShort: boolean;
  readonly nowMs: number;
}

function scheduleAfter(
  failed: { readonly reason: string; readonly backOffUntilMs: number | undefined },
  next: NextSync,
  { waited, wasShort, nowMs }: StateBefore,
): void {
  const { reason, backOffUntilMs: untilMs } = failed;
  if (untilMs !== undefined) next.backOffUntilMs = Math.min(next.backOffUntilMs ?? untilMs, untilMs);
  // The kubelet sees at its next relist as well that a container was stopped because its hook failed.
  if (reason === 'PostStartHookError') next.settlesAtMs = nowMs + RELIST_MS;
  // The kubelet shows a back-off within seconds if the container's hook failed, and mostly if the container exited at once.
  const isShownSoon =
    reason === 'CrashLoopBackOff' && (waited === 'PostStartHookError' || (wasShort && waited !== 'CrashLoopBackOff'));
  // A container that was created and did not start is shown as such until the next sync.
  if (reason === 'RunContainerError' || isShownSoon) next.retryAtMs = nowMs + RELIST_MS;
}

/** Executes syncs of pods. Owns the back-offs and waiting reasons of containers. */
export class KubeRuntime {
  readonly #options: KubeRuntimeOptions;
  readonly #starter: ContainerStarter;

  constructor(options: KubeRuntimeOptions) {
    this.#options = options;
    this.#starter = new ContainerStarter(options);
  }

  waitingReason(podUid: string, container: string): WaitingReason | undefined {
    return this.#starter.waitingReason(podUid, container);
  }

  forgetPod(pod: Pod): void {
    this.#starter.forgetPod(pod.metadata.uid);
    this.#options.network.forget(pod);
  }

  /** Forgets back-offs of containers and of image pulls that have not failed for a while. */
  forgetExpiredBackOffs(): void {
    this.#starter.collect();
    this.#options.images.collect();
  }

  /**
   * Takes the steps of the kubelet's `SyncPod`. Resolves also if containers cannot be started. `refusedResize` is why no
   * container is resized.
   */
  async syncPod(
    pod: Pod,
    status: RuntimePodStatus,
    signal: AbortSignal,
    { refusedResize }: RefusedResize = {},
  ): Promise<SyncResult> {
    const { events } = this.#options;
    // 1. Compute the actions.
    const computed = computePodActions(pod, status, this.#options.probes, (container, last) =>
      resizeOf(pod, container, last, this.#options.config.settings.resources()),
    );
    const actions = { ...computed, refusedResize };
    if (actions.restartAllFor !== undefined) return this.#restartAll(pod, status, actions.restartAllFor, signal);
    // 2. Kill the whole pod, sandbox included.
    if (actions.killPod) {
      if (actions.createSandbox && actions.sandboxId !== undefined) {
        events.event(pod, 'Normal', 'SandboxChanged', 'Pod sandbox changed, it will be killed and re-created.');
      }
      await this.killPod(pod, status, { signal });
      if (!actions.createSandbox) return { errors: [] };
    } else {
      // 3. Kill the containers that must not keep running.
      for (const kill of actions.containersToKill) await this.#kill(pod, status, kill, signal);
    }
    if (!actions.createSandbox) return this.#ensureContainers(pod, status, actions, signal);
    const { starts } = this.#options;
    starts?.pod(pod);
    let isStarted = false;
    try {
      const result = await this.#ensureContainers(pod, status, actions, signal);
      isStarted = result.errors.length === 0;
      return result;
    } finally {
      if (!isStarted && !signal.aborted) starts?.podFailed(pod);
    }
  }

  /** Ensures the sandbox, and starts and resizes the containers. */
  async #ensureContainers(
    pod: Pod,
    status: RuntimePodStatus,
    actions: PodActions & RefusedResize,
    signal: AbortSignal,
  ): Promise<SyncResult> {
    const { clock, events, starts } = this.#options;
    const errors: Error[] = [];
    // 4. Ensure the sandbox.
    let { sandboxId } = actions;
    // An existing sandbox keeps its handler, because its RuntimeClass may have been deleted.
    const found = actions.createSandbox ? undefined : status.sandboxes.find(({ id }) => id === sandboxId);
    let sandbox: SandboxConfig;
    try {
      const ensured =
        found === undefined || sandboxId === undefined
          ? await this.#createSandbox(pod, actions.attempt)
          : { id: sandboxId, config: await this.#sandboxConfig(pod, actions.attempt, found.runtimeHandler) };
      sandboxId = ensured.id;
      sandbox = ensured.config;
    } catch (error) {
      // The sandbox of a pod that terminates meanwhile may fail to be created.
      if (signal.aborted) throw error;
      const { message } = error as Error;
      starts?.sandboxFailed();
      events.event(pod, 'Warning', 'FailedCreatePodSandBox', `Failed to create pod sandbox: ${message}`);
      const failure = `failed to "CreatePodSandbox" for "${podFullName(pod)}": ${message}`;
      return { errors: [new Error(failure, { cause: error })] };
    }
    const { ips } = found ?? (await this.#newSandboxStatus(pod, sandboxId));
    try {
      await this.#options.network.admit(pod, { id: sandboxId, ips }, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      const { message } = error as Error;
      events.event(pod, 'Warning', 'NetworkNotReady', `The pod waits for the rules of its addresses: ${message}`);
      return { errors: [new Error(message, { cause: error })] };
    }
    const addresses = podAddresses(ips);
    const session: Session = {
      pod,
      status,
      sandboxId,
      sandbox,
      ips: addresses.length > 0 ? addresses : this.#hostIps(pod),
      signal,
    };
    const next: NextSync = {};
    const start = async (container: Container, kind: ContainerKind): Promise<boolean> => {
      const waited = this.#starter.waitingReason(pod.metadata.uid, container.name)?.reason;
      const failed = await this.#starter.start(session, container, kind);
      if (failed === undefined) return true;
      errors.push(failed);
      const last = status.containers.find(({ name }) => name === container.name);
      const wasShort = last !== undefined && last.finishedAtMs - last.startedAtMs < RELIST_MS;
      scheduleAfter(failed, next, { waited, wasShort, nowMs: clock.now() });
      return false;
    };
    // 5. Start ephemeral containers. 6. Start init containers in order. 7. Resize running containers. 8. Start regular ones.
    for (const container of actions.ephemeralToStart) await start(container, 'ephemeral');
    for (const container of actions.initToStart) if (!(await start(container, 'init'))) break;
    const killed = new Set(actions.containersToKill.map(({ id }) => id));
    const resizedFromMs = clock.monotonic();
    const resizeError = actions.killPod ? undefined : await this.#resize(pod, status, { killed, ...actions }, errors);
    const resizeMs = clock.monotonic() - resizedFromMs;
    for (const container of actions.containersToStart) await start(container, 'regular');
    return { errors, ...next, resizeError, resizeMs };
  }

  /**
   * Kills and removes the pod's containers except ephemeral ones; the next sync starts them again. Removes the container
   * that triggered the restart last, so that the next sync continues an interrupted restart.
   */
  async #restartAll(pod: Pod, status: RuntimePodStatus, trigger: Container, signal: AbortSignal): Promise<SyncResult> {
    const { runtime, clock } = this.#options;
    const restarted = status.containers.filter(({ name }) => findKinded(pod, name)?.kind !== 'ephemeral');
    const running = restarted.filter(({ state }) => state === 'running' || state === 'unknown');
    for (const container of running) {
      if (signal.aborted) return { errors: [] };
      await killContainer(this.#killDeps(), {
        pod,
        container: undefined,
        id: container.id,
        name: container.name,
        podIp: status.ips[0] ?? '',
        message: 'killing',
        gracePeriodSeconds: 0,
        signal,
      });
    }
    const last = restarted.filter(({ name }) => name === trigger.name);
    for (const { id } of [...restarted.filter(({ name }) => name !== trigger.name), ...last])
      await runtime.removeContainer(id);
    return { errors: [], retryAtMs: clock.now() };
  }

  /**
   * Terminates all containers in their order, then the sandboxes. Rejects if the runtime fails, and with the signal's reason if
   * the signal aborts first.
   */
  async killPod(
    pod: Pod,
    status: RuntimePodStatus,
    options: { readonly gracePeriodSeconds?: number | undefined; readonly signal: AbortSignal },
  ): Promise<void> {
    await killPodContainers(this.#killDeps(), pod, status, options);
    for (const sandbox of status.sandboxes)
      await untilAborted(this.#options.runtime.stopSandbox(sandbox.id), options.signal);
  }

  async #createSandbox(pod: Pod, attempt: number): Promise<{ readonly id: SandboxId; readonly config: SandboxConfig }> {
    const { runtime, config, events } = this.#options;
    const handler = await config.settings.runtimeHandler(pod);
    if (pod.spec.hostUsers === false) await this.#requireUserNamespaces(handler);
    const sandbox = await this.#sandboxConfig(pod, attempt, handler, (reason, message) =>
      events.event(pod, 'Warning', reason, message),
    );
    return { id: await runtime.runSandbox(sandbox), config: sandbox };
  }

  async #newSandboxStatus(pod: Pod, id: SandboxId): Promise<SandboxStatus> {
    const { runtime, events } = this.#options;
    try {
      return await runtime.sandboxStatus(id);
    } catch (error) {
      const message = `Unable to get pod sandbox status: ${(error as Error).message}`;
      events.event(pod, 'Warning', 'FailedStatusPodSandBox', message);
      throw error;
    }
  }

  #sandboxConfig(pod: Pod, attempt: number, runtimeHandler: string, warn?: DnsWarning): Promise<SandboxConfig> {
    return sandboxConfig(pod, attempt, this.#options.config, { runtimeHandler, warn });
  }

  /** Throws if the runtime does not support user namespaces, because it would run the pod as users of the host. */
  async #requireUserNamespaces(handler: string): Promise<void> {
    const { handlers } = await this.#options.runtime.features();
    if (handlers.find(({ name }) => name === handler)?.userNamespaces === true) return;
    const subject = handler === '' ? 'runtime' : `RuntimeClass handler "${handler}"`;
    throw new Error(`can't set \`spec.hostUsers: false\`, ${subject} does not support user namespaces`);
  }

  #hostIps(pod: Pod): readonly string[] {
    return pod.spec.hostNetwork === true ? this.#options.config.hostIps() : [];
  }

  #killDeps(): KillDeps {
    const { runtime, clock, events, logger, observeHook } = this.#options;
    return { runtime, clock, events, logger, observeHook };
  }

  async #kill(pod: Pod, status: RuntimePodStatus, kill: ContainerToKill, signal: AbortSignal): Promise<void> {
    const grace = probeGrace(kill);
    await killContainer(this.#killDeps(), {
      pod,
      container: kill.container,
      id: kill.id,
      message: kill.message,
      podIp: status.ips[0] ?? '',
      signal,
      ...(grace === undefined ? {} : { gracePeriodSeconds: grace }),
    });
  }

  /** Returns the names of the running containers that do not have the resources that are allocated to the pod. */
  resizing(pod: Pod, status: RuntimePodStatus): readonly string[] {
    const facts = this.#options.config.settings.resources();
    return allContainers(pod)
      .filter(({ container }) => {
        const running = findContainer(status, container.name);
        return running !== undefined && resizeOf(pod, container, running, facts) !== 'none';
      })
      .map(({ container }) => container.name);
  }

  /** Returns the running containers whose memory limits a resize lowers in place. */
  lowered(pod: Pod, status: RuntimePodStatus): readonly LoweredContainer[] {
    const facts = this.#options.config.settings.resources();
    return allContainers(pod).flatMap(({ container }) => {
      const running = findContainer(status, container.name);
      if (running === undefined || resizeOf(pod, container, running, facts) !== 'in-place') return [];
      const limitBytes = loweredMemory(linuxResources(pod, container, facts), running);
      return limitBytes === undefined ? [] : [{ id: running.id, name: container.name, limitBytes }];
    });
  }

  /**
   * Resizes running containers in place, unless the resize is refused. Adds the failures to `errors`, and resolves to the
   * message of the last one; `undefined` if there is none.
   */
  async #resize(
    pod: Pod,
    status: RuntimePodStatus,
    { killed, refusedResize }: RefusedResize & { readonly killed: ReadonlySet<string> },
    errors: Error[],
  ): Promise<string | undefined> {
    if (refusedResize !== undefined) {
      errors.push(new Error(refusedResize));
      return refusedResize;
    }
    const { runtime, config } = this.#options;
    const facts = config.settings.resources();
    let problem: string | undefined;
    for (const { container } of allContainers(pod)) {
      const running = findContainer(status, container.name);
      if (running === undefined || killed.has(running.id)) continue;
      if (resizeOf(pod, container, running, facts) !== 'in-place') continue;
      const wanted = linuxResources(pod, container, facts);
      try {
        await runtime.updateResources(running.id, wanted);
      } catch (error) {
        problem = (error as Error).message;
        errors.push(error as Error);
      }
    }
    return problem;
  }
}

function probeGrace(kill: ContainerToKill): number | undefined {
  if (kill.reason === 'liveness-probe') return kill.container.livenessProbe?.terminationGracePeriodSeconds;
  return kill.reason === 'startup-probe' ? kill.container.startupProbe?.terminationGracePeriodSeconds : undefined;
}
