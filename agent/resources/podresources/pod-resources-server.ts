/**
 * Serves `<root-dir>/pod-resources/kubelet.sock`, which reports to monitors and schedulers of the host which devices, CPUs and
 * memory each container has exclusively, and what can be allocated. It has the kubelet's rate limit.
 */
import { join } from 'node:path';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import { GRPC_RESOURCE_EXHAUSTED, GrpcRefusal, serveGrpc } from '../../base/protocols/grpc/grpc-server.ts';
import type { IncomingOf, OutgoingOf } from '../../../api/grpc/messages.ts';
import { isSidecar } from '../../runtime/kuberuntime/pod-containers.ts';
import type { PluginDevice } from '../managers/devicemanager/device-endpoint.ts';
import type { ClaimedDevices } from '../managers/dra/claim-manager.ts';
import type { MemoryBlock } from '../managers/memorymanager/memory-state.ts';
import { ALPHA_METHODS, POD_RESOURCES_MESSAGES, POD_RESOURCES_METHODS } from './schema.ts';

type Messages = typeof POD_RESOURCES_MESSAGES;
type Devices = ReadonlyMap<string, readonly PluginDevice[]>;

/** The allocations of the resource managers. */
export interface ResourceAccounts {
  containerDevices(podUid: string, container: string): Devices;
  allocatableDevices(): Devices;
  /** Returns the CPUs that the container has exclusively, in ascending order. */
  exclusiveCpus(podUid: string, container: string): readonly number[];
  allocatableCpus(): readonly number[];
  memoryBlocks(podUid: string, container: string): readonly MemoryBlock[];
  allocatableMemory(): readonly MemoryBlock[];
  claimedDevices(pod: Pod, container: Container): readonly ClaimedDevices[];
}

interface PodResourcesOptions {
  readonly rootDirectory: string;
  readonly clock: Clock;
  readonly accounts: ResourceAccounts;
  readonly activePods: () => readonly Pod[];
  readonly podByName: (namespace: string, name: string) => Pod | undefined;
  /** Called after each request, with the version of the API that the client used. */
  readonly observe: (
    endpoint: 'list' | 'get' | 'get_allocatable',
    request: { readonly version: 'v1' | 'v1alpha1'; readonly failed: boolean },
  ) => void;
}

/** The rate limit of the kubelet (`DefaultQPS`, `DefaultBurstTokens` of its PodResources API). */
const QPS = 100;
const BURST = 10;

/**
 * Serves the PodResources API. Resolves when the server listens, to a function that stops it. Rejects if the socket cannot be
 * created.
 */
export async function servePodResources(options: PodResourcesOptions): Promise<() => Promise<void>> {
  const limit = rateLimit(options.clock);
  const answer = <Q, A>(
    endpoint: 'list' | 'get' | 'get_allocatable',
    work: (request: Q) => A,
    version: 'v1' | 'v1alpha1' = 'v1',
  ): ((request: Q) => A) => {
    return (request) => {
      let failed = true;
      try {
        if (!limit()) throw new GrpcRefusal(GRPC_RESOURCE_EXHAUSTED, 'rejected by rate limit');
        const result = work(request);
        failed = false;
        return result;
      } finally {
        options.observe(endpoint, { version, failed });
      }
    };
  };
  const listed = () => ({ podResources: options.activePods().map((pod) => podResources(pod, options.accounts)) });
  return serveGrpc({
    socket: join(options.rootDirectory, 'pod-resources', 'kubelet.sock'),
    services: [
      {
        messages: POD_RESOURCES_MESSAGES,
        methods: ALPHA_METHODS,
        handlers: { list: answer('list', listed, 'v1alpha1') },
      },
      {
        messages: POD_RESOURCES_MESSAGES,
        methods: POD_RESOURCES_METHODS,
        handlers: {
          list: answer('list', listed),
          getAllocatableResources: answer('get_allocatable', () => allocatable(options.accounts)),
          get: answer('get', ({ podName, podNamespace }: IncomingOf<Messages, 'GetPodResourcesRequest'>) => {
            const pod = options.podByName(podNamespace, podName);
            if (pod === undefined) throw new Error(`pod ${podName} in namespace ${podNamespace} not found`);
            return { podResources: podResources(pod, options.accounts) };
          }),
        },
      },
    ],
  });
}

/** Lists sidecars and containers. Ordinary init containers hold their resources only until they have terminated. */
function podResources(pod: Pod, accounts: ResourceAccounts): OutgoingOf<Messages, 'PodResources'> {
  const containers = [...(pod.spec.initContainers ?? []).filter(isSidecar), ...pod.spec.containers];
  const { uid } = pod.metadata;
  return {
    name: pod.metadata.name,
    namespace: pod.metadata.namespace,
    containers: containers.map((container) => ({
      name: container.name,
      devices: deviceRows(accounts.containerDevices(uid, container.name)),
      cpuIds: accounts.exclusiveCpus(uid, container.name),
      memory: accounts.memoryBlocks(uid, container.name).map(memoryRow),
      dynamicResources: accounts.claimedDevices(pod, container).map(claimRow),
    })),
  };
}

function allocatable(accounts: ResourceAccounts): OutgoingOf<Messages, 'AllocatableResourcesResponse'> {
  return {
    devices: deviceRows(accounts.allocatableDevices()),
    cpuIds: accounts.allocatableCpus(),
    memory: accounts.allocatableMemory().map(memoryRow),
  };
}

/** Returns a row for each device and NUMA node. */
function deviceRows(devices: Devices): readonly OutgoingOf<Messages, 'ContainerDevices'>[] {
  return [...devices].flatMap(([resourceName, list]) =>
    list.flatMap(({ id, topology }): readonly OutgoingOf<Messages, 'ContainerDevices'>[] => {
      const nodes = topology?.nodes ?? [];
      if (nodes.length === 0) return [{ resourceName, deviceIds: [id] }];
      return nodes.map((node) => ({ resourceName, deviceIds: [id], topology: { nodes: [{ id: node.id }] } }));
    }),
  );
}

function claimRow({ claim, namespace, devices }: ClaimedDevices): OutgoingOf<Messages, 'DynamicResource'> {
  return {
    claimName: claim,
    claimNamespace: namespace,
    claimResources: devices.map(({ driver, pool, device, cdiIds }) => ({
      driverName: driver,
      poolName: pool,
      deviceName: device,
      cdiDevices: cdiIds.map((name) => ({ name })),
    })),
  };
}

function memoryRow({ type, size, numaAffinity }: MemoryBlock): OutgoingOf<Messages, 'ContainerMemory'> {
  return { memoryType: type, size, topology: { nodes: numaAffinity.map((id) => ({ id })) } };
}

/** Creates a token bucket, which allows `BURST` requests at once, and then `QPS` per second. */
function rateLimit(clock: Clock): () => boolean {
  let tokens = BURST;
  let lastMs = clock.monotonic();
  return () => {
    const nowMs = clock.monotonic();
    tokens = Math.min(BURST, tokens + ((nowMs - lastMs) / 1000) * QPS);
    lastMs = nowMs;
    if (tokens < 1) return false;
    tokens -= 1;
    return true;
  };
}
