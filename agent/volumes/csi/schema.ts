/** The node service of CSI v1, as tables for `grpc/`: the messages and methods that the agent uses. */

export const CSI_MESSAGES = {
  AccessMode: { mode: '1 int32' },
  BlockVolume: {},
  CapacityRange: { requiredBytes: '1 int64', limitBytes: '2 int64' },
  MountVolume: { fsType: '1 string', mountFlags: '2 string[]', volumeMountGroup: '3 string' },
  NodeCapability: { rpc: '1 NodeCapabilityRpc' },
  NodeCapabilityRpc: { type: '1 int32' },
  NodeExpandVolumeRequest: {
    volumeId: '1 string',
    volumePath: '2 string',
    capacityRange: '3 CapacityRange',
    stagingTargetPath: '4 string',
    volumeCapability: '5 VolumeCapability',
    secrets: '6 map',
  },
  NodeExpandVolumeResponse: { capacityBytes: '1 int64' },
  NodeGetCapabilitiesRequest: {},
  NodeGetCapabilitiesResponse: { capabilities: '1 NodeCapability[]' },
  NodeGetInfoRequest: {},
  NodeGetInfoResponse: { nodeId: '1 string', maxVolumesPerNode: '2 int64', accessibleTopology: '3 Topology' },
  NodeGetVolumeStatsRequest: { volumeId: '1 string', volumePath: '2 string', stagingTargetPath: '3 string' },
  NodeGetVolumeStatsResponse: { usage: '1 VolumeUsage[]', volumeCondition: '2 VolumeCondition' },
  NodePublishVolumeRequest: {
    volumeId: '1 string',
    publishContext: '2 map',
    stagingTargetPath: '3 string',
    targetPath: '4 string',
    volumeCapability: '5 VolumeCapability',
    readonly: '6 bool',
    secrets: '7 map',
    volumeContext: '8 map',
  },
  NodePublishVolumeResponse: {},
  NodeStageVolumeRequest: {
    volumeId: '1 string',
    publishContext: '2 map',
    stagingTargetPath: '3 string',
    volumeCapability: '4 VolumeCapability',
    secrets: '5 map',
    volumeContext: '6 map',
  },
  NodeStageVolumeResponse: {},
  NodeUnpublishVolumeRequest: { volumeId: '1 string', targetPath: '2 string' },
  NodeUnpublishVolumeResponse: {},
  NodeUnstageVolumeRequest: { volumeId: '1 string', stagingTargetPath: '2 string' },
  NodeUnstageVolumeResponse: {},
  Topology: { segments: '1 map' },
  VolumeCapability: { block: '1 BlockVolume', mount: '2 MountVolume', accessMode: '3 AccessMode' },
  VolumeCondition: { abnormal: '1 bool', message: '2 string' },
  VolumeUsage: { available: '1 int64', total: '2 int64', used: '3 int64', unit: '4 int32' },
} as const;

/** The methods of the node service. */
export const CSI_METHODS = {
  nodeGetInfo: ['csi.v1.Node', 'NodeGetInfoRequest', 'NodeGetInfoResponse'],
  nodeGetCapabilities: ['csi.v1.Node', 'NodeGetCapabilitiesRequest', 'NodeGetCapabilitiesResponse'],
  nodeStageVolume: ['csi.v1.Node', 'NodeStageVolumeRequest', 'NodeStageVolumeResponse'],
  nodeUnstageVolume: ['csi.v1.Node', 'NodeUnstageVolumeRequest', 'NodeUnstageVolumeResponse'],
  nodePublishVolume: ['csi.v1.Node', 'NodePublishVolumeRequest', 'NodePublishVolumeResponse'],
  nodeUnpublishVolume: ['csi.v1.Node', 'NodeUnpublishVolumeRequest', 'NodeUnpublishVolumeResponse'],
  nodeGetVolumeStats: ['csi.v1.Node', 'NodeGetVolumeStatsRequest', 'NodeGetVolumeStatsResponse'],
  nodeExpandVolume: ['csi.v1.Node', 'NodeExpandVolumeRequest', 'NodeExpandVolumeResponse'],
} as const;

/** Numbers of `NodeServiceCapability.RPC.Type`. */
export const NODE_CAPABILITIES = {
  stageUnstage: 1,
  volumeStats: 2,
  expand: 3,
  singleNodeMultiWriter: 5,
  mountGroup: 6,
} as const;
/** A capability that the node service of a driver may have. */
export type NodeCapability = keyof typeof NODE_CAPABILITIES;

/** Numbers of `VolumeCapability.AccessMode.Mode`. */
export const ACCESS_MODES = {
  singleNodeWriter: 1,
  multiNodeReaderOnly: 3,
  multiNodeMultiWriter: 5,
  singleNodeSingleWriter: 6,
  singleNodeMultiWriter: 7,
} as const;

/** The unit of `VolumeUsage` that counts bytes. */
export const USAGE_BYTES = 1;
/** The unit of `VolumeUsage` that counts inodes. */
export const USAGE_INODES = 2;
