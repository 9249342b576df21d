/**
 * Ensures that a container's image is on the node: pull policies, pull secrets, back-off, and serial or parallel pulls within
 * the rate limit. Pods without credentials share a pull. Errors have the reason and message that the pod's status shows.
 */
import { type Clock, untilAborted } from '../../../api/machinery/clock.ts';
import type { PodEventRecorder } from '../../base/model/pod-events.ts';
import type { Container, Pod, Volume } from '../../base/model/pod.ts';
import type { ReferencedObjects } from '../../base/model/referenced-objects.ts';
import { PullFailures } from './pull-failures.ts';
import { type ContainerKind, fieldPathOf } from '../kuberuntime/pod-containers.ts';
import { type ImageInfo, type Runtime, RuntimeError } from '../runtime.ts';
import { ImageReferenceError, withDefaultTag } from '../../../api/kinds/image-reference.ts';
import { pullCredentials, type PullCredential } from './pull-credentials.ts';
import { PullTurns } from './pull-turns.ts';
import type { PullVerification } from './pull-verification.ts';

type ImageErrorReason =
  | 'ErrImagePull'
  | 'ImagePullBackOff'
  | 'ErrImageNeverPull'
  | 'InvalidImageName'
  | 'ImageInspectError'
  | 'RegistryUnavailable'
  | 'SignatureValidationFailed';

/**
 * The error of a container that waits for its image. `reason` is the waiting reason of its status, such as `ImagePullBackOff`.
 */
export class ImageError extends Error {
  override readonly name = 'ImageError';
  readonly reason: ImageErrorReason;
  constructor(reason: ImageErrorReason, message: string, options: ErrorOptions = {}) {
    super(message, options);
    this.reason = reason;
  }
}

/** The runtime, the credentials and the limits of pulls. */
export interface ImageManagerOptions {
  readonly runtime: Pick<Runtime, 'imageStatus' | 'pullImage'>;
  readonly clock: Clock;
  readonly events: PodEventRecorder;
  readonly objects: ReferencedObjects;
  /** `--serialize-image-pulls`. If false, up to `maxParallelPulls` pulls run at the same time (0 means no limit). */
  readonly serialPulls: boolean;
  readonly maxParallelPulls: number;
  /** The rate limit in pulls per second, and the burst; 0 means no limit. */
  readonly registryQps: number;
  readonly registryBurst: number;
  /** Returns the node's credentials and those of credential provider plugins. */
  readonly providers?: (image: string, pod: Pod) => Promise<readonly PullCredential[]>;
  /** Verifies that a pod has the credentials for an image that is already on the node. Absent if pods need none. */
  readonly verification?: PullVerification;
  readonly onUsed?: (imageId: string) => void;
  /** Called for each image that a container or a volume requires, unless its name is invalid. */
  readonly onRequest?: (request: ImageRequest) => void;
  /** Called after each pull for a pod, also after one that failed. */
  readonly onPull?: (podUid: string, tookMs: number) => void;
  /** Called for each pull that succeeded. The duration includes the time in the queue. */
  readonly onPulled?: (tookMs: number, sizeBytes: number) => void;
}

interface ImageRequest {
  readonly pullPolicy: string;
  /** `undefined` means that this is unknown. */
  readonly isPresent: boolean | undefined;
  readonly isPullRequired: boolean | undefined;
}

type RecordEvent = (type: 'Normal' | 'Warning', reason: string, message: string) => void;

interface PullResult {
  readonly id: string;
  readonly tookMs: number;
  readonly used: PullCredential | undefined;
}

/**
 * The maximum number of credentials that are tried. A secret can have any number of entries for an image, each of which a
 * registry can answer slowly.
 */
const MAX_ATTEMPTS = 100;
/**
 * The maximum time of a pull. The kubelet waits for ever, and so would the pod for a registry that sends byte by byte. Runtimes
 * of CRI report no progress, so this is longer than the largest image takes.
 */
const MAX_PULL_MS = 24 * 3_600_000;
/** The maximum length of the joined errors of several attempts, because they become part of a status and an event. */
const LONGEST_MESSAGE = 8192;

interface SharedPull {
  readonly result: Promise<PullResult>;
  readonly abort: AbortController;
  /** The number of containers that wait for the pull. */
  waiters: number;
}

/** Owns running pulls and back-offs. */
export class ImageManager {
  readonly #options: ImageManagerOptions;
  readonly #pulls = new Map<string, SharedPull>();
  readonly #failures: PullFailures;
  readonly #turns: PullTurns;

  constructor(options: ImageManagerOptions) {
    this.#options = options;
    this.#failures = new PullFailures(options.clock);
    const mostAtOnce = options.serialPulls ? 1 : options.maxParallelPulls;
    const { registryQps: perSecond, registryBurst: burst } = options;
    this.#turns = new PullTurns({ mostAtOnce, perSecond, burst }, options.clock);
  }

  /** Returns the image once it is on the node. Throws `ImageError`; another error only if the signal aborts the pull. */
  async ensure(pod: Pod, container: Container, kind: ContainerKind, signal: AbortSignal): Promise<ImageInfo> {
    const written = container.image ?? '';
    const record: RecordEvent = (type, reason, message) =>
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
      record('Warning', 'InspectFailed', error.message);
      throw new ImageError('InvalidImageName', error.message, { cause: error });
    }
    const policy = container.imagePullPolicy ?? (reference.endsWith(':latest') ? 'Always' : 'IfNotPresent');
    const request: { -readonly [K in keyof ImageRequest]: ImageRequest[K] } = {
      pullPolicy: policy,
      isPresent: undefined,
      isPullRequired: undefined,
    };
    try {
      const credentials = once(() => this.#credentials(reference, pod));
      const present = policy === 'Always' ? undefined : await this.#inspect(reference, record);
      if (policy !== 'Always') request.isPresent = present !== undefined;
      if (present !== undefined) {
        const { verification } = this.#options;
        request.isPullRequired = (await verification?.mustPull(written, present.id, credentials)) ?? false;
        if (!request.isPullRequired) {
          const access = verification === undefined ? '' : ' and can be accessed by the pod';
          record('Normal', 'Pulled', `Container image "${written}" already present on machine${access}`);
          this.#options.onUsed?.(present.id);
          return present;
        }
      }
      if (policy === 'Never') {
        // The message is the same if the image exists for other pods, because this pod must not learn of it.
        const message = `Container image "${written}" is not present with pull policy of Never`;
        record('Warning', 'ErrImageNeverPull', message);
        throw new ImageError('ErrImageNeverPull', message);
      }
      request.isPullRequired = true;
      return await this.#pullAndRecord({ pod, written, reference, record, signal }, credentials);
    } finally {
      this.#options.onRequest?.(request);
    }
  }

  /** Returns the id of the image of a volume, and pulls it by the policy of the volume. */
  async ensureVolumeImage(pod: Pod, image: NonNullable<Volume['image']>, signal: AbortSignal): Promise<string> {
    const { reference = '', pullPolicy: policy } = image;
    const container = { name: '', image: reference, ...(policy === undefined ? {} : { imagePullPolicy: policy }) };
    return (await this.ensure(pod, container, 'regular', signal)).id;
  }

  /** Forgets the failures of pulls whose last failure was more than ten minutes ago. */
  collect(): void {
    this.#failures.collect();
  }

  async #inspect(reference: string, record: RecordEvent): Promise<ImageInfo | undefined> {
    try {
      return await this.#options.runtime.imageStatus(reference);
    } catch (error) {
      // The kubelet names no image here.
      const message = `Failed to inspect image "": ${(error as Error).message}`;
      record('Warning', 'InspectFailed', message);
      throw new ImageError('ImageInspectError', message, { cause: error });
    }
  }

  /** Pulls an image, unless it is in back-off, and records the pull for the verification of credentials. */
  async #pullAndRecord(wanted: WantedImage, credentials: () => Promise<readonly PullCredential[]>): Promise<ImageInfo> {
    const { verification } = this.#options;
    const { written } = wanted;
    this.#checkBackOff(wanted);
    await verification?.starts(written).catch((error: unknown) => {
      const why = `Failed to record image pull intent for container image "${written}": ${(error as Error).message}`;
      throw new ImageError('ErrImagePull', why, { cause: error });
    });
    let pulled: Pulled | undefined;
    try {
      pulled = await this.#pull(wanted, credentials);
      return pulled.info;
    } finally {
      if (pulled === undefined) await verification?.failed(written);
      else await verification?.pulled(written, pulled.info.id, pulled.used);
    }
  }

  /** Throws `ImagePullBackOff` while the last failure is too fresh. */
  #checkBackOff({ pod, written, record }: WantedImage): void {
    const last = this.#failures.inBackOff(`${pod.metadata.uid}_${written}`);
    if (last === undefined) return;
    record('Normal', 'BackOff', `Back-off pulling image "${written}"`);
    throw new ImageError('ImagePullBackOff', `Back-off pulling image "${written}": ${last}`);
  }

  async #pull(
    { pod, written, reference, record, signal }: WantedImage,
    credentials: () => Promise<readonly PullCredential[]>,
  ): Promise<Pulled> {
    const { clock, runtime } = this.#options;
    const key = `${pod.metadata.uid}_${written}`;
    record('Normal', 'Pulling', `Pulling image "${written}"`);
    const startedMs = clock.monotonic();
    try {
      const { namespace } = pod.metadata;
      const { id, tookMs, used } = await this.#shared(reference, await credentials(), { namespace, signal });
      const info = await runtime.imageStatus(id);
      if (info === undefined)
        throw new RuntimeError('image-not-found', `image "${reference}" is not there after it was pulled`);
      this.#failures.succeeded(key);
      const seconds = (ms: number): string => `${Number((ms / 1000).toFixed(3))}s`;
      const withQueueMs = clock.monotonic() - startedMs;
      record(
        'Normal',
        'Pulled',
        `Successfully pulled image "${written}" in ${seconds(tookMs)} (${seconds(withQueueMs)} including waiting). Image size: ${info.sizeBytes} bytes.`,
      );
      this.#options.onPulled?.(withQueueMs, info.sizeBytes);
      this.#options.onUsed?.(info.id);
      return { info, used };
    } catch (error) {
      if (signal.aborted) throw error;
      const why = (error as Error).message;
      record('Warning', 'Failed', `Failed to pull image "${written}": ${why}`);
      const [reason, message] = waitingReason(written, why);
      this.#failures.failed(key, `${reason}: ${message}`);
      throw new ImageError(reason, message, { cause: error });
    } finally {
      this.#options.onPull?.(pod.metadata.uid, clock.monotonic() - startedMs);
    }
  }

  /** Returns the credentials of the pod's secrets, the node and its plugins, in the order of the attempts. */
  async #credentials(reference: string, pod: Pod): Promise<readonly PullCredential[]> {
    try {
      const secrets = await pullCredentials(reference, pod, this.#options.objects);
      const provided = (await this.#options.providers?.(reference, pod)) ?? [];
      return [...secrets, ...provided];
    } catch (error) {
      throw new ImageError('ErrImagePull', (error as Error).message, { cause: error });
    }
  }

  /**
   * Pulls an image. If neither the pods nor the node have credentials for the image, the pods that want it now share one pull.
   * A pod that is deleted leaves the pull to the others; the pull is cancelled when none is left.
   */
  async #shared(reference: string, credentials: readonly PullCredential[], waiter: Waiter): Promise<PullResult> {
    const { namespace, signal } = waiter;
    if (credentials.length > 0) return this.#pullNow(reference, credentials, waiter);
    const shared = this.#pulls.get(reference) ?? this.#beginShared(reference, namespace);
    shared.waiters++;
    try {
      return await untilAborted(shared.result, signal);
    } finally {
      shared.waiters--;
      if (shared.waiters === 0) {
        if (this.#pulls.get(reference) === shared) this.#pulls.delete(reference);
        shared.abort.abort(new Error('no pod wants the image any more'));
      }
    }
  }

  #beginShared(reference: string, namespace: string): SharedPull {
    const abort = new AbortController();
    const result = this.#pullNow(reference, [], { namespace, signal: abort.signal });
    const shared: SharedPull = { result, abort, waiters: 0 };
    const end = (): void => {
      if (this.#pulls.get(reference) === shared) this.#pulls.delete(reference);
    };
    shared.result.then(end, end);
    this.#pulls.set(reference, shared);
    return shared;
  }

  #pullNow(
    reference: string,
    credentials: readonly PullCredential[],
    { namespace, signal }: Waiter,
  ): Promise<PullResult> {
    const { clock } = this.#options;
    return this.#turns.run(namespace, signal, async () => {
      const fromMs = clock.monotonic();
      const late = new AbortController();
      const timer = clock.after(MAX_PULL_MS, () =>
        late.abort(new RuntimeError('timeout', `the pull was given up after ${MAX_PULL_MS / 3_600_000} hours`)),
      );
      try {
        const tries = this.#tryAll(reference, credentials, AbortSignal.any([signal, late.signal]));
        const { id, used } = await untilAborted(tries, late.signal);
        return { id, used, tookMs: clock.monotonic() - fromMs };
      } finally {
        timer.cancel();
      }
    });
  }

  async #tryAll(
    reference: string,
    credentials: readonly PullCredential[],
    signal: AbortSignal,
  ): Promise<Omit<PullResult, 'tookMs'>> {
    const attempts: readonly (PullCredential | undefined)[] = credentials.length === 0 ? [undefined] : credentials;
    const errors: Error[] = [];
    for (const used of attempts.slice(0, MAX_ATTEMPTS)) {
      try {
        return { id: await this.#options.runtime.pullImage(reference, used?.auth, { signal }), used };
      } catch (error) {
        errors.push(error as Error);
        if (signal.aborted) break;
      }
    }
    const [first] = errors;
    const messages = new Set(errors.map((error) => error.message));
    if (messages.size <= 1) throw first ?? new Error('the pull was cancelled');
    const all = `[${[...messages].join(', ')}]`;
    throw new RuntimeError('unauthorized', all.slice(0, LONGEST_MESSAGE), { cause: first });
  }
}

/** The pod that waits for a pull, or the pods that share it. */
interface Waiter {
  /** The namespace of the pod, or of the first of the pods. */
  readonly namespace: string;
  /** Aborts when the pod, or the last of the pods, no longer waits. */
  readonly signal: AbortSignal;
}

/** An image that a pod waits for. */
interface WantedImage {
  readonly pod: Pod;
  /** The reference as the pod names it. */
  readonly written: string;
  /** The reference with its tag. */
  readonly reference: string;
  /** Emits an event about the pod or its container. */
  readonly record: RecordEvent;
  /** Aborts when the pod no longer waits. */
  readonly signal: AbortSignal;
}

interface Pulled {
  readonly info: ImageInfo;
  readonly used: PullCredential | undefined;
}

/** Prefixes of CRI runtimes' errors that have a reason of their own, with the messages for users. */
const PREFIXES = [
  ['RegistryUnavailable', 'the registry is unavailable'],
  ['SignatureValidationFailed', 'the signature validation failed'],
] as const;

function waitingReason(image: string, why: string): readonly [reason: ImageErrorReason, message: string] {
  const bare = why.replace(/^rpc error: code = \w+ desc = /, '');
  const [reason, text] = PREFIXES.find(([prefix]) => bare.startsWith(prefix)) ?? [];
  if (reason === undefined) return ['ErrImagePull', why];
  return [reason, `image pull failed for ${image} because ${text}${bare.slice(reason.length)}`];
}

/** Returns a function that calls `read` the first time, and then returns the same promise. */
function once<T>(read: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | undefined;
  return () => (result ??= read());
}
