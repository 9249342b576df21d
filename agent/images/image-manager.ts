/**
 * Sees to it that a container's image is there: pull policies, pull secrets, back-off, one pull of one image at a time,
 * serial or parallel pulls within the registry's rate. Failures come with the reason and message that users see.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import type { Container, Pod, PodEventRecorder, ReferencedObjects } from '../core-types.ts';
import { BackOff } from '../kuberuntime/back-off.ts';
import { type ContainerKind, fieldPathOf } from '../kuberuntime/pod-containers.ts';
import { type ImageInfo, type RegistryAuth, type Runtime, RuntimeError } from '../runtime/runtime.ts';
import { ImageReferenceError, withDefaultTag } from './image-reference.ts';
import { pullCredentials } from './pull-credentials.ts';

export type ImageErrorReason =
  | 'ErrImagePull'
  | 'ImagePullBackOff'
  | 'ErrImageNeverPull'
  | 'InvalidImageName'
  | 'ImageInspectError'
  | 'RegistryUnavailable';

export class ImageError extends Error {
  override readonly name = 'ImageError';
  readonly reason: ImageErrorReason;
  /** When the next attempt may be made (`ImagePullBackOff`). */
  readonly retryAtMs: number | undefined;
  constructor(reason: ImageErrorReason, message: string, options: ErrorOptions & { readonly retryAtMs?: number } = {}) {
    super(message, options);
    this.reason = reason;
    this.retryAtMs = options.retryAtMs;
  }
}

export interface ImageManagerOptions {
  readonly runtime: Pick<Runtime, 'imageStatus' | 'pullImage'>;
  readonly clock: Clock;
  readonly events: PodEventRecorder;
  readonly objects: ReferencedObjects;
  /** `--serialize-image-pulls`; otherwise at most `maxParallelPulls` (0: any number). */
  readonly serialPulls: boolean;
  readonly maxParallelPulls: number;
  /** Pulls a second and burst; 0: no limit. */
  readonly registryQps: number;
  readonly registryBurst: number;
  /** Credential provider plugins. */
  readonly providers?: (image: string, pod: Pod) => Promise<readonly RegistryAuth[]>;
  readonly onUsed?: (imageId: string) => void;
}

export class ImageManager {
  readonly #options: ImageManagerOptions;
  readonly #backOff: BackOff;
  readonly #pulls = new Map<string, Promise<{ readonly id: string; readonly tookMs: number }>>();
  /** The last pull's error by back-off key. */
  readonly #lastErrors = new Map<string, string>();
  readonly #waiting: (() => void)[] = [];
  #running = 0;
  #tokens: number;
  #refilledAtMs: number;

  constructor(options: ImageManagerOptions) {
    this.#options = options;
    this.#backOff = new BackOff(options.clock);
    this.#tokens = options.registryBurst;
    this.#refilledAtMs = options.clock.monotonic();
  }

  /** The image, on this host. Throws `ImageError`. */
  async ensure(pod: Pod, container: Container, kind: ContainerKind, signal: AbortSignal): Promise<ImageInfo> {
    const written = container.image ?? '';
    const say = (type: 'Normal' | 'Warning', reason: string, message: string): void =>
      this.#options.events.event(
        pod,
        type,
        reason,
        message,
        container.name === '' ? {} : { fieldPath: fieldPathOf(kind, container.name) },
      );
    let reference: string;
    try {
      reference = withDefaultTag(written);
    } catch (error) {
      if (!(error instanceof ImageReferenceError)) throw error;
      say('Warning', 'InspectFailed', error.message);
      throw new ImageError('InvalidImageName', error.message, { cause: error });
    }
    const present = await this.#inspect(written, reference, say);
    const policy = container.imagePullPolicy ?? (reference.endsWith(':latest') ? 'Always' : 'IfNotPresent');
    if (present !== undefined && policy !== 'Always') {
      say('Normal', 'Pulled', `Container image "${written}" already present on machine and can be accessed by the pod`);
      this.#options.onUsed?.(present.id);
      return present;
    }
    if (policy === 'Never') {
      const message = `Container image "${written}" is not present with pull policy of Never`;
      say('Warning', 'ErrImageNeverPull', message);
      throw new ImageError('ErrImageNeverPull', message);
    }
    return this.#pull(pod, written, reference, say, signal);
  }

  /** The id of an image that a volume of the pod mounts; pulled as the volume says. */
  async ensureVolumeImage(pod: Pod, reference: string, signal: AbortSignal): Promise<string> {
    const policy = pod.spec.volumes?.find((volume) => volume.image?.reference === reference)?.image?.pullPolicy;
    const container = { name: '', image: reference, ...(policy === undefined ? {} : { imagePullPolicy: policy }) };
    return (await this.ensure(pod, container, 'regular', signal)).id;
  }

  /** Forgets what old failures left. */
  collect(): void {
    this.#backOff.collect();
    for (const key of this.#lastErrors.keys()) if (this.#backOff.delayMs(key) === 0) this.#lastErrors.delete(key);
  }

  async #inspect(
    written: string,
    reference: string,
    say: (type: 'Normal' | 'Warning', reason: string, message: string) => void,
  ): Promise<ImageInfo | undefined> {
    try {
      return await this.#options.runtime.imageStatus(reference);
    } catch (error) {
      const message = `Failed to inspect image "${written}": ${(error as Error).message}`;
      say('Warning', 'InspectFailed', message);
      throw new ImageError('ImageInspectError', message, { cause: error });
    }
  }

  async #pull(
    pod: Pod,
    written: string,
    reference: string,
    say: (type: 'Normal' | 'Warning', reason: string, message: string) => void,
    signal: AbortSignal,
  ): Promise<ImageInfo> {
    const { clock, runtime } = this.#options;
    const key = `${pod.metadata.uid}_${written}`;
    const waitMs = this.#backOff.remainingMs(key, clock.now() - this.#sinceFailure(key));
    if (waitMs > 0) {
      say('Normal', 'BackOff', `Back-off pulling image "${written}"`);
      throw new ImageError(
        'ImagePullBackOff',
        `Back-off pulling image "${written}": ErrImagePull: ${this.#lastErrors.get(key) ?? ''}`,
        { retryAtMs: clock.now() + waitMs },
      );
    }
    say('Normal', 'Pulling', `Pulling image "${written}"`);
    const startedMs = clock.monotonic();
    try {
      const { id, tookMs } = await this.#shared(reference, pod, signal);
      const info = await runtime.imageStatus(id);
      if (info === undefined)
        throw new RuntimeError('image-not-found', `image "${reference}" is not there after it was pulled`);
      this.#backOff.forget(key);
      this.#failedAt.delete(key);
      const seconds = (ms: number): string => `${(ms / 1000).toFixed(3).replace(/\.?0+$/, '')}s`;
      say(
        'Normal',
        'Pulled',
        `Successfully pulled image "${written}" in ${seconds(tookMs)} (${seconds(clock.monotonic() - startedMs)} including waiting). Image size: ${info.sizeBytes} bytes.`,
      );
      this.#options.onUsed?.(info.id);
      return info;
    } catch (error) {
      if (signal.aborted) throw error;
      const why = (error as Error).message;
      this.#lastErrors.set(key, why);
      this.#backOff.next(key, clock.now());
      this.#failedAt.set(key, clock.now());
      say('Warning', 'Failed', `Failed to pull image "${written}": ${why}`);
      throw new ImageError('ErrImagePull', why, { cause: error, retryAtMs: clock.now() + this.#backOff.delayMs(key) });
    }
  }

  readonly #failedAt = new Map<string, number>();

  #sinceFailure(key: string): number {
    const at = this.#failedAt.get(key);
    return at === undefined ? 0 : this.#options.clock.now() - at;
  }

  /** Pods that want one image at one time share its pull, where they have no credentials of their own. */
  async #shared(reference: string, pod: Pod, signal: AbortSignal): Promise<{ id: string; tookMs: number }> {
    const secrets = await pullCredentials(reference, pod, this.#options.objects);
    const provided = (await this.#options.providers?.(reference, pod)) ?? [];
    const credentials = [...secrets, ...provided];
    const run = async (): Promise<{ id: string; tookMs: number }> => {
      await this.#enter(signal);
      const from = this.#options.clock.monotonic();
      try {
        const id = await this.#tryAll(reference, credentials, signal);
        return { id, tookMs: this.#options.clock.monotonic() - from };
      } finally {
        this.#leave();
      }
    };
    if (credentials.length > 0) return run();
    const running = this.#pulls.get(reference);
    if (running !== undefined) return running;
    const started = run().finally(() => this.#pulls.delete(reference));
    this.#pulls.set(reference, started);
    return started;
  }

  async #tryAll(reference: string, credentials: readonly RegistryAuth[], signal: AbortSignal): Promise<string> {
    const attempts: readonly (RegistryAuth | undefined)[] = credentials.length === 0 ? [undefined] : credentials;
    const errors: Error[] = [];
    for (const auth of attempts) {
      try {
        return await this.#options.runtime.pullImage(reference, auth, { signal });
      } catch (error) {
        errors.push(error as Error);
        if (signal.aborted) break;
      }
    }
    const [first] = errors;
    if (errors.length <= 1) throw first ?? new Error('the pull was cancelled');
    throw new RuntimeError('unauthorized', `[${errors.map((error) => error.message).join(', ')}]`, { cause: first });
  }

  async #enter(signal: AbortSignal): Promise<void> {
    const limit = this.#options.serialPulls ? 1 : this.#options.maxParallelPulls;
    while (limit > 0 && this.#running >= limit) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#running++;
    const { registryQps: qps, registryBurst, clock } = this.#options;
    if (qps <= 0) return;
    const now = clock.monotonic();
    this.#tokens = Math.min(registryBurst, this.#tokens + ((now - this.#refilledAtMs) / 1000) * qps);
    this.#refilledAtMs = now;
    this.#tokens -= 1;
    if (this.#tokens >= 0) return;
    try {
      await clock.sleep((-this.#tokens / qps) * 1000, signal);
    } catch (error) {
      this.#leave();
      throw error;
    }
  }

  #leave(): void {
    this.#running--;
    this.#waiting.shift()?.();
  }
}
