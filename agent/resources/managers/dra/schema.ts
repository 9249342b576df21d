/** Defines the gRPC interface of DRA drivers (`v1`, and `v1beta1` with the same messages) as tables for `grpc/`. */

export const DRA_MESSAGES = {
  Claim: { namespace: '1 string', uid: '2 string', name: '3 string' },
  NodePrepareResourcesRequest: { claims: '1 Claim[]' },
  // On the wire, a map by the claim's uid is a list of entries.
  NodePrepareResourcesResponse: { claims: '1 PreparedEntry[]' },
  PreparedEntry: { key: '1 string', value: '2 NodePrepareResourceResponse' },
  NodePrepareResourceResponse: { devices: '1 Device[]', error: '2 string' },
  Device: { requestNames: '1 string[]', poolName: '2 string', deviceName: '3 string', cdiDeviceIds: '4 string[]' },
  NodeUnprepareResourcesRequest: { claims: '1 Claim[]' },
  NodeUnprepareResourcesResponse: { claims: '1 UnpreparedEntry[]' },
  UnpreparedEntry: { key: '1 string', value: '2 NodeUnprepareResourceResponse' },
  NodeUnprepareResourceResponse: { error: '1 string' },
} as const;

const methodsOf = (service: string) =>
  ({
    nodePrepareResources: [service, 'NodePrepareResourcesRequest', 'NodePrepareResourcesResponse'],
    nodeUnprepareResources: [service, 'NodeUnprepareResourcesRequest', 'NodeUnprepareResourcesResponse'],
  }) as const;

/** The methods by the service name that a driver supports, newest first. */
export const DRA_METHODS = {
  'v1.DRAPlugin': methodsOf('k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin'),
  'v1beta1.DRAPlugin': methodsOf('k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin'),
} as const;

/** The service by which a driver reports the health of its devices. */
export const HEALTH_SERVICE = 'v1alpha1.DRAResourceHealth';

export const HEALTH_MESSAGES = {
  NodeWatchResourcesRequest: {},
  NodeWatchResourcesResponse: { devices: '1 DeviceHealth[]' },
  /** `health`: 0 is unknown, 1 healthy, 2 unhealthy. */
  DeviceHealth: {
    device: '1 DeviceIdentifier',
    health: '2 int32',
    lastUpdatedTime: '3 int64',
    healthCheckTimeoutSeconds: '4 int64',
    message: '5 string',
  },
  DeviceIdentifier: { poolName: '1 string', deviceName: '2 string' },
} as const;

export const HEALTH_METHODS = {
  nodeWatchResources: [HEALTH_SERVICE, 'NodeWatchResourcesRequest', 'NodeWatchResourcesResponse'],
} as const;
