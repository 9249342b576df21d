/** Defines the error of a failed step of mounting a volume, with the message of its event. */
import { errorMessage } from '../../api/meta/error-message.ts';

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

/** The claim of the pod's volume does not exist or is not bound yet, so nothing was attempted. */
export class VolumeNotProcessedError extends Error {
  override readonly name = 'VolumeNotProcessedError';
}
