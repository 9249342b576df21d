/** The CSI capability of a volume: access type and mode, and whether the agent or the driver sets the pod's group. Pure. */
import type { OutgoingOf } from '../../../api/grpc/messages.ts';
import { ACCESS_MODES, type CSI_MESSAGES } from './schema.ts';

interface CapabilityFacts {
  readonly isBlock: boolean;
  readonly fsType: string;
  readonly mountOptions: readonly string[];
  readonly accessModes: readonly string[];
  /** The driver distinguishes one writer from several writers on a node. */
  readonly knowsSingleNodeModes: boolean;
  /** The pod's group, if the driver sets it. */
  readonly mountGroup: number | undefined;
}

/** Returns the message for staging and publishing, which must be equal in both. */
export function volumeCapability(facts: CapabilityFacts): OutgoingOf<typeof CSI_MESSAGES, 'VolumeCapability'> {
  const { isBlock, fsType, mountOptions, mountGroup } = facts;
  const accessMode = { mode: accessModeOf(facts.accessModes[0] ?? 'ReadWriteOnce', facts.knowsSingleNodeModes) };
  if (isBlock) return { block: {}, accessMode };
  const volumeMountGroup = mountGroup === undefined ? '' : String(mountGroup);
  return { mount: { fsType, mountFlags: [...mountOptions], volumeMountGroup }, accessMode };
}

function accessModeOf(mode: string, knowsSingleNodeModes: boolean): number {
  switch (mode) {
    case 'ReadOnlyMany':
      return ACCESS_MODES.multiNodeReaderOnly;
    case 'ReadWriteMany':
      return ACCESS_MODES.multiNodeMultiWriter;
    case 'ReadWriteOncePod':
      return knowsSingleNodeModes ? ACCESS_MODES.singleNodeSingleWriter : ACCESS_MODES.singleNodeWriter;
    default:
      return knowsSingleNodeModes ? ACCESS_MODES.singleNodeMultiWriter : ACCESS_MODES.singleNodeWriter;
  }
}

/** Whether the agent changes the group of the volume's files (CSIDriver's `fsGroupPolicy`). */
export function agentSetsGroup(facts: {
  readonly policy: string | undefined;
  readonly readOnly: boolean;
  readonly fsType: string;
  /** The access modes of the persistent volume. For an inline volume, that of a single writer. */
  readonly accessModes: readonly string[];
}): boolean {
  const { policy = 'ReadWriteOnceWithFSType', readOnly, fsType, accessModes } = facts;
  if (readOnly || policy === 'None') return false;
  if (policy === 'File') return true;
  return fsType !== '' && accessModes.some((mode) => mode === 'ReadWriteOnce' || mode === 'ReadWriteOncePod');
}
