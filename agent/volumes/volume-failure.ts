/** Defines the errors of steps of mounting a volume and of the volumes of a pod, with the messages of their events. */
import { backoffDelay } from '../../api/machinery/backoff.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { VolumeError, VolumeLimitExceeded } from '../runtime/container-volumes.ts';

/** The delays after the first and later failures, which grow. */
const RETRY_MS = 500;
const MAX_RETRY_MS = 122_000;
/** The delay before a claim that is not bound yet is read again. */
const READ_AGAIN_MS = 2_000;

/** The step that failed, as the kubelet names it in events. */
export type VolumeStep =
  | 'MountVolume.NodeAffinity check'
  | 'MountVolume.NewMounter initialization'
  | 'MountVolume.SetUp'
  | 'MountVolume.MountDevice'
  | 'MountVolume.WaitForAttach'
  | 'MountVolume.NodeExpandVolume'
  | 'MapVolume.NewBlockVolumeMapper initialization'
  | 'MapVolume.SetUpDevice'
  | 'MapVolume.MapPodDevice';

/**
 * The failure of a step. `step` and `volume` are parts of the event's message: `MountVolume.SetUp failed for volume "x" : …`.
 */
export class VolumeStepError extends Error {
  override readonly name = 'VolumeStepError';
  readonly step: VolumeStep;
  /** The name of the volume in the event: that of the pod's volume or of the persistent volume. */
  readonly volume: string;
  constructor(step: VolumeStep, volume: string, cause: unknown) {
    super(errorMessage(cause), { cause });
    this.step = step;
    this.volume = volume;
  }
}

/** The driver cannot attach the volume because the node has as many volumes as it can have. */
export class VolumeLimitError extends Error {
  override readonly name = 'VolumeLimitError';
}

/**
 * Nothing was attempted, because the claim of the pod's volume cannot be used (yet), or because no plugin serves the volume.
 */
export class VolumeNotProcessedError extends Error {
  override readonly name = 'VolumeNotProcessedError';
}

/**
 * Throws `VolumeLimitExceeded` if a volume is not attached because the node has too many. Does nothing after other failures.
 */
export function checkLimit(pending: ReadonlySet<string>, failures: ReadonlyMap<string, unknown>): void {
  if (![...failures.values()].some((error) => error instanceof Error && error.cause instanceof VolumeLimitError))
    return;
  const unattached = [...failures].flatMap(([name, error]) =>
    error instanceof VolumeStepError && error.step === 'MountVolume.WaitForAttach' ? [name] : [],
  );
  throw new VolumeLimitExceeded(
    `Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[${[...pending].join(' ')}], unattached volumes=[${unattached.toSorted().join(' ')}], failed to process volumes=[]: context deadline exceeded`,
  );
}

/** Returns the pod's error with the kubelet's message, and the time of the retry. */
export function unmountedError(
  pending: ReadonlySet<string>,
  failures: ReadonlyMap<string, unknown>,
  attempt: number,
  why?: string,
): VolumeError {
  const unprocessed = [...failures].filter(([, error]) => error instanceof VolumeNotProcessedError);
  const [first] = [...unprocessed.map(([, error]) => error), ...failures.values()];
  const list = (names: Iterable<string>): string => `[${[...names].join(' ')}]`;
  return new VolumeError(
    `unmounted volumes=${list(pending)}, unattached volumes=[], failed to process volumes=${list(unprocessed.map(([name]) => name))}: ${why ?? errorMessage(first)}`,
    {
      retryAfterMs:
        unprocessed.length === failures.size
          ? READ_AGAIN_MS
          : backoffDelay(attempt, { firstMs: RETRY_MS, longestMs: MAX_RETRY_MS }),
    },
  );
}
