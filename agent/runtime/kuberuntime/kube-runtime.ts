/**
 * Makes a pod what its specification says, step by step, on the container runtime: computes the actions, executes them in
 * the kubelet's order, says in events what happened, and remembers why a container waits. The pod worker calls it, one
 * call a pod at a time.
 */
import { mkdir, readdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { type Clock, untilAborted } from '../../../api/machinery/clock.ts';
import type { Container, Pod, PodEventRecorder } from '../../model/core-types.ts';
import { ImageError, type ImageManager } from '../images/image-manager.ts';
import type { ContainerId, Runtime, SandboxConfig, SandboxId } from '../runtime.ts';
import { BackOff } from './back-off.ts';
import { type ConfigDeps, containerConfig, podLogDirectory, sandboxConfig } from './container-config.ts';
import type { DnsWarning } from './dns.ts';
import { ContainerConfigError } from './environment.ts';
import { killContainer, type KillDeps, killPodContainers } from './kill-containers.ts';
import { runHook } from './lifecycle-hooks.ts';
import { computePodActions, type ContainerToKill, type ProbeLookup } from './pod-actions.ts';
import {
  allContainers,
  containerHash,
  type ContainerKind,
  fieldPathOf,
  findKinded,
  formatPod,
  podFullName,
} from './pod-containers.ts';
import { memoryProblem, resizeOf } from './resize.ts';
import { findContainer, type RuntimePodStatus } from './runtime-status.ts';
import { linuxResources } from './resources.ts';

export interface KubeRuntimeOptions {
  readonly runtime: Runtime;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly events: PodEventRecorder;
  readonly images: ImageManager;
  readonly config: ConfigDeps;
  readonly probes: ProbeLookup;
  /** `/var/log/containers`; undefined: no links are made. */
  readonly containerLogsDirectory: string | undefined;
  /** Between restarts of a container that crashes; 10 s to 5 min otherwise. */
  readonly backOff?: { readonly initialMs: number; readonly maxMs: number };
}

export interface WaitingReason {
  readonly reason: string;
  readonly message: string;
}

export interface SyncResult {
  /** Empty when everything went well. */
  readonly errors: readonly Error[];
  /** The earliest moment at which something that waits may be tried again. */
  readonly retryAtMs: number | undefined;
  /** Why a running container could not be given what its pod was allocated. */
  readonly resizeError?: string | undefined;
}

class StartError extends Error {
  readonly reason: string;
  readonly retryAtMs: number | undefined;
  constructor(
    reason: string,
    message: string,
    options: ErrorOptions & { readonly retryAtMs?: number | undefined } = {},
  ) {
    super(message, options);
    this.reason = reason;
    this.retryAtMs = options.retryAtMs;
  }
}

interface Session {
  readonly pod: Pod;
  readonly status: RuntimePodStatus;
  readonly sandboxId: SandboxId;
  readonly sandbox: SandboxConfig;
  readonly ips: readonly string[];
  readonly signal: AbortSignal;
}

export class KubeRuntime {
  readonly #options: KubeRuntimeOptions;
  readonly #backOff: BackOff;
  /** Why a container waits: `uid_name` → reason; read when the pod's status is made. */
  readonly #waiting = new Map<string, WaitingReason>();

  constructor(options: KubeRuntimeOptions) {
    this.#options = options;
    this.#backOff = new BackOff(options.clock, options.backOff?.initialMs, options.backOff?.maxMs);
  }

  waitingReason(podUid: string, container: string): WaitingReason | undefined {
    return this.#waiting.get(`${podUid}_${container}`);
  }

  forgetPod(podUid: string): void {
    for (const key of this.#waiting.keys()) if (key.startsWith(`${podUid}_`)) this.#waiting.delete(key);
  }

  collect(): void {
    this.#backOff.collect();
    this.#options.images.collect();
  }

  async syncPod(pod: Pod, status: RuntimePodStatus, signal: AbortSignal): Promise<SyncResult> {
    const { events } = this.#options;
    const errors: Error[] = [];
    // 1. What is to be done.
    const actions = computePodActions(pod, status, this.#options.probes, (container, last) =>
      resizeOf(pod, container, last, this.#options.config.settings.resources()),
    );
    if (actions.restartAllFor !== undefined) return this.#restartAll(pod, status, actions.restartAllFor, signal);
    // 2. Everything is in the way: kill it all, sandbox included.
    if (actions.killPod) {
      if (actions.createSandbox && actions.sandboxId !== undefined) {
        events.event(pod, 'Normal', 'SandboxChanged', 'Pod sandbox changed, it will be killed and re-created.');
      }
      await this.killPod(pod, status, { signal });
      if (!actions.createSandbox) return { errors, retryAtMs: undefined };
    } else {
      // 3. Containers that must not go on.
      for (const kill of actions.containersToKill) await this.#kill(pod, status, kill, signal);
    }
    // 4. The sandbox.
    let { sandboxId } = actions;
    // The class may be gone while its pods run: what is there keeps its handler.
    const found = actions.createSandbox ? undefined : status.sandboxes.find(({ id }) => id === sandboxId);
    let sandbox: SandboxConfig;
    try {
      const made =
        found === undefined || sandboxId === undefined
          ? await this.#createSandbox(pod, actions.attempt)
          : { id: sandboxId, config: await this.#sandboxConfig(pod, actions.attempt, found.runtimeHandler) };
      sandboxId = made.id;
      sandbox = made.config;
    } catch (error) {
      const { message } = error as Error;
      events.event(pod, 'Warning', 'FailedCreatePodSandBox', `Failed to create pod sandbox: ${message}`);
      const failure = `failed to "CreatePodSandbox" for "${podFullName(pod)}": ${message}`;
      return { errors: [new Error(failure, { cause: error })], retryAtMs: undefined };
    }
    const { ips } = found ?? (await this.#options.runtime.sandboxStatus(sandboxId));
    const session: Session = {
      pod,
      status,
      sandboxId,
      sandbox,
      ips: ips.length > 0 ? ips : this.#hostIps(pod),
      signal,
    };
    let retryAtMs: number | undefined;
    const start = async (container: Container, kind: ContainerKind): Promise<boolean> => {
      const failed = await this.#startOrWait(session, container, kind);
      if (failed === undefined) return true;
      errors.push(failed);
      if (failed.retryAtMs !== undefined) retryAtMs = Math.min(retryAtMs ?? failed.retryAtMs, failed.retryAtMs);
      return false;
    };
    // 5. Ephemeral containers, 6. init containers in order, 7. resources of what runs, 8. the others.
    for (const container of actions.ephemeralToStart) await start(container, 'ephemeral');
    for (const container of actions.initToStart) if (!(await start(container, 'init'))) break;
    const killed = new Set(actions.containersToKill.map(({ id }) => id));
    const resizeError = actions.killPod ? undefined : await this.#resize(pod, status, killed, errors);
    for (const container of actions.containersToStart) await start(container, 'regular');
    return { errors, retryAtMs, resizeError };
  }

  /**
   * Everything of the pod begins anew in its sandbox, init containers too; hooks do not run. The container that asked for it
   * goes last: until then another look finds it and goes on.
   */
  async #restartAll(pod: Pod, status: RuntimePodStatus, trigger: Container, signal: AbortSignal): Promise<SyncResult> {
    const { runtime, clock } = this.#options;
    const own = status.containers.filter(({ name }) => findKinded(pod, name)?.kind !== 'ephemeral');
    const running = own.filter(({ state }) => state === 'running' || state === 'unknown');
    for (const container of running) {
      if (signal.aborted) return { errors: [], retryAtMs: undefined };
      await killContainer(this.#killDeps(), {
        pod,
        container: undefined,
        id: container.id,
        name: container.name,
        podIp: status.ips[0] ?? '',
        message: `Container ${container.name} is restarted with all others of its pod`,
        gracePeriodSeconds: 0,
        signal,
      });
    }
    // How they ended is told before they are removed.
    if (running.length > 0) return { errors: [], retryAtMs: clock.now() };
    const key = `${pod.metadata.uid}_${trigger.name}`;
    try {
      this.#checkBackOff({ pod, status }, trigger, findKinded(pod, trigger.name)?.kind ?? 'regular');
    } catch (error) {
      if (!(error instanceof StartError)) throw error;
      this.#waiting.set(key, { reason: error.reason, message: error.message });
      return { errors: [error], retryAtMs: error.retryAtMs };
    }
    this.#waiting.delete(key);
    const last = own.filter(({ name }) => name === trigger.name);
    for (const { id } of [...own.filter(({ name }) => name !== trigger.name), ...last])
      await runtime.removeContainer(id);
    return { errors: [], retryAtMs: clock.now() };
  }

  /** Terminates all containers in their order, then the sandboxes. Rejects with the signal's reason when that aborts first. */
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
    const made = await this.#sandboxConfig(pod, attempt, handler, (reason, message) =>
      events.event(pod, 'Warning', reason, message),
    );
    return { id: await runtime.runSandbox(made), config: made };
  }

  #sandboxConfig(pod: Pod, attempt: number, runtimeHandler: string, warn?: DnsWarning): Promise<SandboxConfig> {
    return sandboxConfig(pod, attempt, this.#options.config, { runtimeHandler, warn });
  }

  /** A runtime that knows nothing of them would run the pod as the host's own users. */
  async #requireUserNamespaces(handler: string): Promise<void> {
    const { handlers } = await this.#options.runtime.features();
    if (handlers.find(({ name }) => name === handler)?.userNamespaces === true) return;
    const who = handler === '' ? 'runtime' : `RuntimeClass handler "${handler}"`;
    throw new Error(`can't set \`spec.hostUsers: false\`, ${who} does not support user namespaces`);
  }

  #hostIps(pod: Pod): readonly string[] {
    return pod.spec.hostNetwork === true ? this.#options.config.hostIps() : [];
  }

  #killDeps(): KillDeps {
    const { runtime, clock, events, logger } = this.#options;
    return { runtime, clock, events, logger };
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

  async #startOrWait(session: Session, container: Container, kind: ContainerKind): Promise<StartError | undefined> {
    const { pod } = session;
    const key = `${pod.metadata.uid}_${container.name}`;
    try {
      this.#checkBackOff(session, container, kind);
      await this.#start(session, container, kind);
      this.#waiting.delete(key);
      return undefined;
    } catch (error) {
      if (session.signal.aborted) return new StartError('Cancelled', 'the pod is ending', { cause: error });
      const failed =
        error instanceof StartError
          ? error
          : new StartError('RunContainerError', (error as Error).message, { cause: error });
      this.#waiting.set(key, { reason: failed.reason, message: failed.message });
      this.#options.logger.debug(
        { pod: formatPod(pod), container: container.name, reason: failed.reason, error: failed.message },
        'A container waits',
      );
      return failed;
    }
  }

  #checkBackOff({ pod, status }: Pick<Session, 'pod' | 'status'>, container: Container, kind: ContainerKind): void {
    const last = status.containers.find((entry) => entry.name === container.name && entry.state === 'exited');
    if (last === undefined) return;
    const key = `${podFullName(pod)}_${pod.metadata.uid}_${container.name}_${containerHash(container)}`;
    const waitMs = this.#backOff.remainingMs(key, last.finishedAtMs);
    if (waitMs > 0) {
      this.#options.events.event(
        pod,
        'Warning',
        'BackOff',
        `Back-off restarting failed container ${container.name} in pod ${formatPod(pod)}`,
        { fieldPath: fieldPathOf(kind, container.name) },
      );
      const message = `back-off ${goSeconds(this.#backOff.delayMs(key))} restarting failed container=${container.name} pod=${formatPod(pod)}`;
      throw new StartError('CrashLoopBackOff', message, { retryAtMs: this.#options.clock.now() + waitMs });
    }
    this.#backOff.next(key, last.finishedAtMs);
  }

  /** Image, creation, start, hook: each with its own reason. */
  async #start(session: Session, container: Container, kind: ContainerKind): Promise<void> {
    const { pod, status, sandboxId, sandbox } = session;
    const { runtime, events, images } = this.#options;
    const fieldPath = fieldPathOf(kind, container.name);
    const failed = (message: string): void =>
      events.event(pod, 'Warning', 'Failed', `Error: ${message}`, { fieldPath });
    let image;
    try {
      image = await images.ensure(pod, container, kind, session.signal);
    } catch (error) {
      if (!(error instanceof ImageError)) throw error;
      failed(error.reason);
      throw new StartError(error.reason, error.message, { cause: error, retryAtMs: error.retryAtMs });
    }
    const last = findContainer(status, container.name);
    const attempt = last === undefined ? await this.#attemptFromLogs(pod, container) : last.attempt + 1;
    let config;
    try {
      const target =
        kind === 'ephemeral'
          ? findContainer(status, (container as { targetContainerName?: string }).targetContainerName ?? '')?.id
          : undefined;
      config = await containerConfig(
        {
          pod,
          container,
          kind,
          attempt,
          image: image.id,
          imageInfo: image,
          podIps: session.ips,
          ...(target === undefined ? {} : { target }),
          volumeImage: (reference) => images.ensureVolumeImage(pod, reference, session.signal),
        },
        this.#options.config,
      );
    } catch (error) {
      failed((error as Error).message);
      throw new StartError(
        error instanceof ImageError
          ? error.reason
          : error instanceof ContainerConfigError
            ? 'CreateContainerConfigError'
            : 'CreateContainerError',
        (error as Error).message,
        { cause: error },
      );
    }
    await mkdir(join(podLogDirectory(this.#options.config.settings, pod), container.name), {
      recursive: true,
      mode: 0o755,
    });
    let id: ContainerId;
    try {
      id = await runtime.createContainer(sandboxId, sandbox, config);
    } catch (error) {
      failed((error as Error).message);
      throw new StartError('CreateContainerError', (error as Error).message, { cause: error });
    }
    events.event(pod, 'Normal', 'Created', 'Container created', { fieldPath });
    try {
      await runtime.startContainer(id);
    } catch (error) {
      failed((error as Error).message);
      throw new StartError('RunContainerError', (error as Error).message, { cause: error });
    }
    events.event(pod, 'Normal', 'Started', 'Container started', { fieldPath });
    await this.#linkLog(pod, container, id, join(sandbox.logDirectory, config.logPath));
    await this.#postStart(session, container, kind, id);
  }

  async #postStart(session: Session, container: Container, kind: ContainerKind, id: ContainerId): Promise<void> {
    const hook = container.lifecycle?.postStart;
    if (hook === undefined) return;
    const { runtime, clock, events, logger } = this.#options;
    try {
      const warn = (reason: string, text: string): void => events.event(session.pod, 'Warning', reason, text);
      await runHook(hook, { id, container, podIp: session.ips[0] ?? '' }, { runtime, clock, warn }, session.signal);
    } catch (error) {
      logger.warn(
        { err: error, pod: formatPod(session.pod), container: container.name },
        'The postStart hook of a container failed',
      );
      events.event(session.pod, 'Warning', 'FailedPostStartHook', 'PostStartHook failed', {
        fieldPath: fieldPathOf(kind, container.name),
      });
      await killContainer(this.#killDeps(), {
        pod: session.pod,
        container,
        id,
        message: 'FailedPostStartHook',
        podIp: session.ips[0] ?? '',
        signal: session.signal,
      });
      throw new StartError('PostStartHookError', (error as Error).message, { cause: error });
    }
  }

  /** The runtime lost the container: the log files say how often it ran. */
  async #attemptFromLogs(pod: Pod, container: Container): Promise<number> {
    const directory = join(podLogDirectory(this.#options.config.settings, pod), container.name);
    const names = await readdir(directory).catch(() => []);
    // A pod with a host path may put any number of files of any name there.
    const attempts = names.map((name) => Number(/^(\d{1,9})\.log/.exec(name)?.[1] ?? -1));
    return attempts.reduce((most, attempt) => Math.max(most, attempt), -1) + 1;
  }

  async #linkLog(pod: Pod, container: Container, id: ContainerId, target: string): Promise<void> {
    const directory = this.#options.containerLogsDirectory;
    if (directory === undefined) return;
    const link = join(directory, `${podFullName(pod)}_${container.name}-${id}.log`);
    try {
      await mkdir(directory, { recursive: true, mode: 0o755 });
      await rm(link, { force: true });
      await symlink(target, link);
    } catch (error) {
      this.#options.logger.warn({ err: error, link }, 'Cannot link the log of a container');
    }
  }

  /** Running containers that do not have what the pod was allocated. */
  resizing(pod: Pod, status: RuntimePodStatus): readonly string[] {
    const facts = this.#options.config.settings.resources();
    return allContainers(pod)
      .filter(({ container }) => {
        const running = findContainer(status, container.name);
        return running !== undefined && resizeOf(pod, container, running, facts) !== 'none';
      })
      .map(({ container }) => container.name);
  }

  /** In-place resize of what runs on; what is restarted has been started with its new resources. */
  async #resize(
    pod: Pod,
    status: RuntimePodStatus,
    killed: ReadonlySet<string>,
    errors: Error[],
  ): Promise<string | undefined> {
    const { runtime, config } = this.#options;
    const facts = config.settings.resources();
    let problem: string | undefined;
    for (const { container } of allContainers(pod)) {
      const running = findContainer(status, container.name);
      if (running === undefined || killed.has(running.id)) continue;
      if (resizeOf(pod, container, running, facts) !== 'in-place') continue;
      const wanted = linuxResources(pod, container, facts);
      try {
        const stats = await runtime.containerStats({ podUid: pod.metadata.uid });
        const used = stats.find(({ id }) => id === running.id)?.memoryWorkingSetBytes;
        const refused = memoryProblem(wanted, running, used);
        if (refused !== undefined) throw new Error(refused);
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

/** Durations as messages write them: `10s`, `2m40s`, `5m0s`. */
function goSeconds(ms: number): string {
  const seconds = Math.round(ms / 1000);
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}
