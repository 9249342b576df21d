/**
 * The methods and enumerations of CRI v1, and the types of requests and responses, which are derived from the table of
 * messages. The wire codec is built from the same table.
 */
import type { IncomingOf, OutgoingOf } from '../../../api/grpc/messages.ts';
import type { MESSAGES } from './messages.ts';

/**
 * Messages of containerd's own event service (`containerd.services.events.v1`), for versions whose CRI plugin has no
 * events.
 */
export const CONTAINERD_MESSAGES = {
  SubscribeRequest: { filters: '1 string[]' },
  Envelope: { topic: '3 string', event: '4 Any' },
  Any: { value: '2 bytes' },
  TaskExit: { containerId: '1 string', id: '2 string' },
} as const;

/** The service, request and response of each method. `getContainerEvents` returns a stream of responses. */
export const METHODS = {
  version: ['RuntimeService', 'VersionRequest', 'VersionResponse'],
  runPodSandbox: ['RuntimeService', 'RunPodSandboxRequest', 'RunPodSandboxResponse'],
  stopPodSandbox: ['RuntimeService', 'StopPodSandboxRequest', 'StopPodSandboxResponse'],
  removePodSandbox: ['RuntimeService', 'RemovePodSandboxRequest', 'RemovePodSandboxResponse'],
  podSandboxStatus: ['RuntimeService', 'PodSandboxStatusRequest', 'PodSandboxStatusResponse'],
  listPodSandbox: ['RuntimeService', 'ListPodSandboxRequest', 'ListPodSandboxResponse'],
  createContainer: ['RuntimeService', 'CreateContainerRequest', 'CreateContainerResponse'],
  startContainer: ['RuntimeService', 'StartContainerRequest', 'StartContainerResponse'],
  stopContainer: ['RuntimeService', 'StopContainerRequest', 'StopContainerResponse'],
  removeContainer: ['RuntimeService', 'RemoveContainerRequest', 'RemoveContainerResponse'],
  listContainers: ['RuntimeService', 'ListContainersRequest', 'ListContainersResponse'],
  containerStatus: ['RuntimeService', 'ContainerStatusRequest', 'ContainerStatusResponse'],
  updateContainerResources: ['RuntimeService', 'UpdateContainerResourcesRequest', 'UpdateContainerResourcesResponse'],
  reopenContainerLog: ['RuntimeService', 'ReopenContainerLogRequest', 'ReopenContainerLogResponse'],
  execSync: ['RuntimeService', 'ExecSyncRequest', 'ExecSyncResponse'],
  exec: ['RuntimeService', 'ExecRequest', 'ExecResponse'],
  attach: ['RuntimeService', 'AttachRequest', 'AttachResponse'],
  portForward: ['RuntimeService', 'PortForwardRequest', 'PortForwardResponse'],
  listContainerStats: ['RuntimeService', 'ListContainerStatsRequest', 'ListContainerStatsResponse'],
  updateRuntimeConfig: ['RuntimeService', 'UpdateRuntimeConfigRequest', 'UpdateRuntimeConfigResponse'],
  status: ['RuntimeService', 'StatusRequest', 'StatusResponse'],
  checkpointContainer: ['RuntimeService', 'CheckpointContainerRequest', 'CheckpointContainerResponse'],
  getContainerEvents: ['RuntimeService', 'GetEventsRequest', 'ContainerEventResponse'],
  runtimeConfig: ['RuntimeService', 'RuntimeConfigRequest', 'RuntimeConfigResponse'],
  listImages: ['ImageService', 'ListImagesRequest', 'ListImagesResponse'],
  imageStatus: ['ImageService', 'ImageStatusRequest', 'ImageStatusResponse'],
  pullImage: ['ImageService', 'PullImageRequest', 'PullImageResponse'],
  removeImage: ['ImageService', 'RemoveImageRequest', 'RemoveImageResponse'],
  imageFsInfo: ['ImageService', 'ImageFsInfoRequest', 'ImageFsInfoResponse'],
} as const;

/** The values of enumerations. */
export const CRI = {
  namespace: { pod: 0, container: 1, node: 2, target: 3 },
  propagation: { private: 0, 'host-to-container': 1, bidirectional: 2 },
  protocol: { TCP: 0, UDP: 1, SCTP: 2 },
  profile: { RuntimeDefault: 0, Unconfined: 1, Localhost: 2 },
  groupsPolicy: { Merge: 0, Strict: 1 },
  sandboxReady: 0,
  containerStates: ['created', 'running', 'exited', 'unknown'],
  events: ['created', 'started', 'stopped', 'deleted'],
  cgroupDrivers: ['systemd', 'cgroupfs'],
} as const;

/** Signals in the order of the enumeration. The first is the runtime's default. */
export const STOP_SIGNALS: readonly string[] = (
  'RUNTIME_DEFAULT SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE ' +
  'SIGPOLL SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 ' +
  'SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIGRTMIN SIGRTMIN+1 SIGRTMIN+2 SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 ' +
  'SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMAX-14 ' +
  'SIGRTMAX-13 SIGRTMAX-12 SIGRTMAX-11 SIGRTMAX-10 SIGRTMAX-9 SIGRTMAX-8 SIGRTMAX-7 SIGRTMAX-6 SIGRTMAX-5 SIGRTMAX-4 ' +
  'SIGRTMAX-3 SIGRTMAX-2 SIGRTMAX-1 SIGRTMAX'
).split(' ');

type Messages = typeof MESSAGES;
type MessageName = keyof Messages;
/** The name of a method in the table. */
export type MethodName = keyof typeof METHODS;

/** A message that is sent; absent fields have the defaults of protobuf. */
export type Outgoing<N extends MessageName> = OutgoingOf<Messages, N>;
/** A message that was received; all fields are present. */
export type Incoming<N extends MessageName> = IncomingOf<Messages, N>;

/** The request of a method. */
export type Request<M extends MethodName> = Outgoing<(typeof METHODS)[M][1]>;
/** The response of a method. */
export type Answer<M extends MethodName> = Incoming<(typeof METHODS)[M][2]>;
