/** A step of making a volume ready that failed, with the words of the event that users see. */

export type VolumeStep =
  | 'MountVolume.SetUp'
  | 'MountVolume.MountDevice'
  | 'MountVolume.WaitForAttach'
  | 'MountVolume.NodeExpandVolume'
  | 'MapVolume.SetUpDevice'
  | 'MapVolume.MapPodDevice';

export class VolumeStepError extends Error {
  override readonly name = 'VolumeStepError';
  readonly step: VolumeStep;
  /** The volume as the event names it: that of the pod, or the persistent volume. */
  readonly volume: string;
  constructor(step: VolumeStep, volume: string, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.step = step;
    this.volume = volume;
  }
}

/** The volume of the pod cannot be looked for yet: its claim is not there or not bound. Nothing was tried with it. */
export class VolumeNotProcessedError extends Error {
  override readonly name = 'VolumeNotProcessedError';
}
