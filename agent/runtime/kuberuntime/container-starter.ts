/**
 * Starts the containers of a pod: ensures the image, creates and starts the container and runs its postStart hook. Records an
 * event for each step, delays restarts, and remembers why a container waits.
 */
import { mkdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { PodEventRecorder } from '../../base/model/pod-events.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import { ImageError, type ImageManager } from '../images/image-manager.ts';
import { inLogFolder, makeLogFolder } from '../logs/log-files.ts';
import type { ContainerConfig, ImageInfo, Runtime, SandboxConfig } from '../runtime.ts';
import type { ContainerId, SandboxId } from '../runtime-identity.ts';
import { BackOff } from './back-off.ts';
import { type ConfigDeps, containerConfig, podLogDirectory } from './container-config.ts';
import { ContainerConfigError } from './environment.ts';
import { killContainer } from './kill-containers.ts';
import { type HookObserver, runHook } from './lifecycle-hooks.ts';
import { containerHash, type ContainerKind, fieldPathOf, formatPod, podFullName } from './pod-containers.ts';
import { findContainer, type RuntimePodStatus } from './runtime-status.ts';

/** Why a container waits, as its status shows it. */
export interface WaitingReason {
  readonly reason: string;
  readonly message: string;
}

/** The error of a container that does not start. Its status shows the reason. */
class StartError extends Error {
  readonly reason: string;
  /** The time at which the back-off of a container that crashes is over. */
  readonly backOffUntilMs: number | undefined;
  constructor(reason: string, message: string, options: ErrorOptions & { readonly backOffUntilMs?: number } = {}) {
    super(message, options);
    this.reason = reason;
    this.backOffUntilMs = options.backOffUntilMs;
  }
}

/** A pod in its sandbox, during one sync. */
export interface Session {
  readonly pod: Pod;
  readonly status: RuntimePodStatus;
  readonly sandboxId: SandboxId;
  readonly sandbox: SandboxConfig;
  readonly ips: readonly string[];
  readonly signal: AbortSignal;
}

/** A container whose images are present. */
interface Prepared {
  readonly container: Container;
  readonly kind: ContainerKind;
  readonly image: ImageInfo;
  readonly volumeImages: ReadonlyMap<string, string>;
}

/** Is notified of attempts to start pods and containers. */
export interface StartObserver {
  /** A sandbox is about to be created. */
  pod(pod: Pod): void;
  sandboxFailed(): void;
  /** Called at most once for each call of `pod`, if the sandbox or a container that should follow failed. */
  podFailed(pod: Pod): void;
  /** A container is about to be started. Waiting for a back-off is no start. */
  container(kind: ContainerKind): void;
  /** Counts a container that could not be started. `reason` is why it waits, as in its status. */
  containerFailed(kind: ContainerKind, reason: string): void;
}

/** The runtime, the images and the configuration of containers. */
export interface ContainerStarterOptions {
  readonly runtime: Runtime;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly events: PodEventRecorder;
  readonly images: ImageManager;
  readonly config: ConfigDeps;
  /** `/var/log/containers`. Without it the agent creates no links to logs. */
  readonly containerLogsDirectory: string | undefined;
  /** The delays between restarts of a container; 10 s to 5 min by default. */
  readonly backOff?: { readonly initialMs: number; readonly maxMs: number };
  readonly observeHook?: HookObserver | undefined;
  readonly starts?: StartObserver | undefined;
  /** Called when a container with mounted image volumes was created, or could not be. */
  readonly onImageVolumes?: (count: number, outcome: 'mounted' | 'failed') => void;
}

/** Owns the back-offs of restarts and the waiting reasons. A failed start is returned and not thrown. */
export class ContainerStarter {
  readonly #options: ContainerStarterOptions;
  readonly #backOff: BackOff;
  /** Why containers wait, by `uid_name`. */
  readonly #waiting = new Map<string, WaitingReason>();

  constructor(options: ContainerStarterOptions) {
    this.#options = options;
    this.#backOff = new BackOff(options.clock, options.backOff?.initialMs, options.backOff?.maxMs);
  }

  /** Returns why the container waits, or `undefined` if it does not wait for the starter. */
  waitingReason(podUid: string, container: string): WaitingReason | undefined {
    return this.#waiting.get(`${podUid}_${container}`);
  }

  forgetPod(podUid: string): void {
    for (const key of this.#waiting.keys()) if (key.startsWith(`${podUid}_`)) this.#waiting.delete(key);
  }

  /** Forgets the delays of containers that have not been restarted for ten minutes. */
  collect(): void {
    this.#backOff.collect();
  }

  /**
   * Starts the container, or returns the error that its status shows as the waiting reason. If the signal aborts, it returns an
   * error with the reason `Cancelled`, which the status does not show.
   */
  async start(session: Session, container: Container, kind: ContainerKind): Promise<StartError | undefined> {
    const { pod } = session;
    const key = `${pod.metadata.uid}_${container.name}`;
    try {
      this.#checkBackOff(session, container, kind);
      this.#options.starts?.container(kind);
      await this.#start(session, container, kind);
      this.#waiting.delete(key);
      return undefined;
    } catch (error) {
      if (session.signal.aborted) return new StartError('Cancelled', 'the pod is terminating', { cause: error });
      const failed =
        error instanceof StartError
          ? error
          : new StartError('RunContainerError', (error as Error).message, { cause: error });
      this.#waiting.set(key, { reason: failed.reason, message: failed.message });
      if (failed.reason !== 'CrashLoopBackOff') this.#options.starts?.containerFailed(kind, failed.reason);
      this.#options.logger.debug(
        { pod: formatPod(pod), container: container.name, reason: failed.reason, err: failed },
        'A container cannot start yet',
      );
      return failed;
    }
  }

  /** Throws `CrashLoopBackOff` until the delay after the last exit is over. Then it counts the attempt. */
  #checkBackOff({ pod, status }: Session, container: Container, kind: ContainerKind): void {
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
      throw new StartError('CrashLoopBackOff', message, { backOffUntilMs: this.#options.clock.now() + waitMs });
    }
    this.#backOff.next(key, last.finishedAtMs);
  }

  async #start(session: Session, container: Container, kind: ContainerKind): Promise<void> {
    const { pod, sandboxId, sandbox } = session;
    const { runtime, events } = this.#options;
    const fieldPath = fieldPathOf(kind, container.name);
    const failed = (message: string): void =>
      events.event(pod, 'Warning', 'Failed', `Error: ${message}`, { fieldPath });
    const volumeImages = await this.#ensureVolumeImages(session, container, failed);
    const image = await this.#ensureImage(failed, () =>
      this.#options.images.ensure(pod, container, kind, session.signal),
    );
    const config = await this.#containerConfig(session, { container, kind, image, volumeImages }, failed);
    await makeLogFolder(this.#logOf(pod, container));
    const step = async <T>(reason: string, work: Promise<T>, createdId = ''): Promise<T> => {
      try {
        return await work;
      } catch (error) {
        const { message } = error as Error;
        // Events of all attempts have one message, so that they are counted as one event.
        failed(createdId === '' ? message : message.replaceAll(createdId, container.name));
        throw new StartError(reason, (error as Error).message, { cause: error });
      }
    };
    const creation = runtime.createContainer(sandboxId, sandbox, config);
    const id = await step('CreateContainerError', this.#countingImages(creation, volumeImages.size));
    events.event(pod, 'Normal', 'Created', 'Container created', { fieldPath });
    await step('RunContainerError', runtime.startContainer(id), id);
    events.event(pod, 'Normal', 'Started', 'Container started', { fieldPath });
    await this.#linkLog(pod, container, id, join(sandbox.logDirectory, config.logPath));
    await this.#postStart(session, container, kind, id);
  }

  async #countingImages<T>(creation: Promise<T>, count: number): Promise<T> {
    if (count === 0) return creation;
    const report = (outcome: 'mounted' | 'failed'): void => this.#options.onImageVolumes?.(count, outcome);
    try {
      const created = await creation;
      report('mounted');
      return created;
    } catch (error) {
      report('failed');
      throw error;
    }
  }

  /** Returns the ids of the images that the container mounts as volumes, by their references. */
  async #ensureVolumeImages(
    { pod, signal }: Session,
    container: Container,
    failed: (message: string) => void,
  ): Promise<ReadonlyMap<string, string>> {
    const mounted = new Set((container.volumeMounts ?? []).map(({ name }) => name));
    const ids = new Map<string, string>();
    for (const { name, image } of pod.spec.volumes ?? []) {
      const reference = image?.reference ?? '';
      if (image === undefined || !mounted.has(name)) continue;
      const ensure = (): Promise<string> => this.#options.images.ensureVolumeImage(pod, image, signal);
      ids.set(reference, await this.#ensureImage(failed, ensure));
    }
    return ids;
  }

  async #ensureImage<T>(failed: (message: string) => void, ensure: () => Promise<T>): Promise<T> {
    try {
      return await ensure();
    } catch (error) {
      if (!(error instanceof ImageError)) throw error;
      failed(error.reason);
      throw new StartError(error.reason, error.message, { cause: error });
    }
  }

  async #containerConfig(
    { pod, status, ips }: Session,
    { container, kind, image, volumeImages }: Prepared,
    failed: (message: string) => void,
  ): Promise<ContainerConfig> {
    const last = findContainer(status, container.name);
    const attempt = last === undefined ? await this.#attemptFromLogs(pod, container) : last.attempt + 1;
    const target =
      kind === 'ephemeral'
        ? findContainer(status, (container as { targetContainerName?: string }).targetContainerName ?? '')?.id
        : undefined;
    try {
      return await containerConfig(
        {
          pod,
          container,
          kind,
          attempt,
          image: image.id,
          imageInfo: image,
          podIps: ips,
          ...(target === undefined ? {} : { target }),
          volumeImages,
        },
        this.#options.config,
      );
    } catch (error) {
      failed((error as Error).message);
      throw new StartError(configErrorReason(error), (error as Error).message, { cause: error });
    }
  }

  async #postStart(session: Session, container: Container, kind: ContainerKind, id: ContainerId): Promise<void> {
    const hook = container.lifecycle?.postStart;
    if (hook === undefined) return;
    const { runtime, clock, events, logger, observeHook: observe } = this.#options;
    try {
      const warn = (reason: string, text: string): void => events.event(session.pod, 'Warning', reason, text);
      const target = { id, container, podIp: session.ips[0] ?? '', pod: formatPod(session.pod) };
      await runHook(hook, target, { runtime, clock, warn, observe }, session.signal);
    } catch (error) {
      // The pod terminates. Its pod worker stops the containers in their order.
      if (session.signal.aborted) throw error;
      logger.warn(
        { err: error, pod: formatPod(session.pod), container: container.name },
        'The postStart hook of a container failed',
      );
      events.event(session.pod, 'Warning', 'FailedPostStartHook', 'PostStartHook failed', {
        fieldPath: fieldPathOf(kind, container.name),
      });
      await killContainer(
        { runtime, clock, events, logger, observeHook: observe },
        {
          pod: session.pod,
          container,
          id,
          message: 'FailedPostStartHook',
          podIp: session.ips[0] ?? '',
          signal: session.signal,
        },
      );
      throw new StartError('PostStartHookError', (error as Error).message, { cause: error });
    }
  }

  /** Reads the number of the next attempt from the log files, for a container that the runtime has lost. */
  async #attemptFromLogs(pod: Pod, container: Container): Promise<number> {
    // A container that never started has no directory of logs.
    const names = await inLogFolder(this.#logOf(pod, container), (folder) => folder.names()).catch(() => []);
    // A pod with a host path can create any number of files with any names there.
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

  /** Returns the path of the first log of the container. Those of later attempts are beside it. */
  #logOf(pod: Pod, container: Container): string {
    return join(podLogDirectory(this.#options.config.settings, pod), container.name, '0.log');
  }
}

function configErrorReason(error: unknown): string {
  if (error instanceof ImageError) return error.reason;
  return error instanceof ContainerConfigError ? 'CreateContainerConfigError' : 'CreateContainerError';
}

/** Formats a duration as the kubelet's messages do: `10s`, `2m40s`, `5m0s`. */
function goSeconds(ms: number): string {
  const seconds = Math.round(ms / 1000);
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}
