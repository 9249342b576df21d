/** Defines the gRPC interface of device plugins (`v1beta1`) as tables for `grpc/`. */

export const DEVICE_MESSAGES = {
  Empty: {},
  DevicePluginOptions: { preStartRequired: '1 bool', getPreferredAllocationAvailable: '2 bool' },
  RegisterRequest: {
    version: '1 string',
    endpoint: '2 string',
    resourceName: '3 string',
    options: '4 DevicePluginOptions',
  },
  ListAndWatchResponse: { devices: '1 Device[]' },
  TopologyInfo: { nodes: '1 NUMANode[]' },
  NUMANode: { id: '1 int64' },
  Device: { id: '1 string', health: '2 string', topology: '3 TopologyInfo' },
  PreStartContainerRequest: { devicesIds: '1 string[]' },
  PreStartContainerResponse: {},
  PreferredAllocationRequest: { containerRequests: '1 ContainerPreferredAllocationRequest[]' },
  ContainerPreferredAllocationRequest: {
    availableDeviceIds: '1 string[]',
    mustIncludeDeviceIds: '2 string[]',
    allocationSize: '3 int32',
  },
  PreferredAllocationResponse: { containerResponses: '1 ContainerPreferredAllocationResponse[]' },
  ContainerPreferredAllocationResponse: { deviceIds: '1 string[]' },
  AllocateRequest: { containerRequests: '1 ContainerAllocateRequest[]' },
  ContainerAllocateRequest: { devicesIds: '1 string[]' },
  CDIDevice: { name: '1 string' },
  AllocateResponse: { containerResponses: '1 ContainerAllocateResponse[]' },
  ContainerAllocateResponse: {
    envs: '1 map',
    mounts: '2 Mount[]',
    devices: '3 DeviceSpec[]',
    annotations: '4 map',
    cdiDevices: '5 CDIDevice[]',
  },
  Mount: { containerPath: '1 string', hostPath: '2 string', readOnly: '3 bool' },
  DeviceSpec: { containerPath: '1 string', hostPath: '2 string', permissions: '3 string' },
} as const;

/** The service of a plugin, which the agent calls. */
export const DEVICE_PLUGIN_METHODS = {
  getDevicePluginOptions: ['v1beta1.DevicePlugin', 'Empty', 'DevicePluginOptions'],
  listAndWatch: ['v1beta1.DevicePlugin', 'Empty', 'ListAndWatchResponse'],
  getPreferredAllocation: ['v1beta1.DevicePlugin', 'PreferredAllocationRequest', 'PreferredAllocationResponse'],
  allocate: ['v1beta1.DevicePlugin', 'AllocateRequest', 'AllocateResponse'],
  preStartContainer: ['v1beta1.DevicePlugin', 'PreStartContainerRequest', 'PreStartContainerResponse'],
} as const;

/** The service of the agent, which plugins call to register. */
export const REGISTRATION_METHODS = {
  register: ['v1beta1.Registration', 'RegisterRequest', 'Empty'],
} as const;

/** The versions of the interface that a plugin may have. */
export const SUPPORTED_VERSIONS: readonly string[] = ['v1beta1'];
/** The health of a device that can be allocated. */
export const HEALTHY = 'Healthy';
/** The health of a device that stays allocated, but is allocated to no other container. */
export const UNHEALTHY = 'Unhealthy';
