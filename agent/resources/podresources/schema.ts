/** The PodResources API (`v1`), with which programs of the host read the resources of pods, as tables for `grpc/`. */

export const POD_RESOURCES_MESSAGES = {
  AllocatableResourcesRequest: {},
  AllocatableResourcesResponse: { devices: '1 ContainerDevices[]', cpuIds: '2 int64[]', memory: '3 ContainerMemory[]' },
  ListPodResourcesRequest: {},
  ListPodResourcesResponse: { podResources: '1 PodResources[]' },
  GetPodResourcesRequest: { podName: '1 string', podNamespace: '2 string' },
  GetPodResourcesResponse: { podResources: '1 PodResources' },
  PodResources: { name: '1 string', namespace: '2 string', containers: '3 ContainerResources[]' },
  ContainerResources: {
    name: '1 string',
    devices: '2 ContainerDevices[]',
    cpuIds: '3 int64[]',
    memory: '4 ContainerMemory[]',
    dynamicResources: '5 DynamicResource[]',
  },
  ContainerMemory: { memoryType: '1 string', size: '2 uint64', topology: '3 TopologyInfo' },
  ContainerDevices: { resourceName: '1 string', deviceIds: '2 string[]', topology: '3 TopologyInfo' },
  TopologyInfo: { nodes: '1 NUMANode[]' },
  NUMANode: { id: '1 int64' },
  DynamicResource: { claimName: '2 string', claimNamespace: '3 string', claimResources: '4 ClaimResource[]' },
  ClaimResource: {
    cdiDevices: '1 CDIDevice[]',
    driverName: '2 string',
    poolName: '3 string',
    deviceName: '4 string',
  },
  CDIDevice: { name: '1 string' },
} as const;

/** The methods that the agent serves. */
export const POD_RESOURCES_METHODS = {
  list: ['v1.PodResourcesLister', 'ListPodResourcesRequest', 'ListPodResourcesResponse'],
  getAllocatableResources: ['v1.PodResourcesLister', 'AllocatableResourcesRequest', 'AllocatableResourcesResponse'],
  get: ['v1.PodResourcesLister', 'GetPodResourcesRequest', 'GetPodResourcesResponse'],
} as const;

/** The methods for older clients, which have fewer fields under the same numbers. */
export const ALPHA_METHODS = {
  list: ['v1alpha1.PodResourcesLister', 'ListPodResourcesRequest', 'ListPodResourcesResponse'],
} as const;
