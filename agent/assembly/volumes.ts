/** Volumes and what fills them: the volume manager, CSI drivers, tokens, the objects that pods refer to. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client } from '../../api/machinery/client.ts';
import { parseQuantity, wholeUnits } from '../../api/meta/quantity.ts';
import type { NodeInfo, PodEventRecorder, ReferencedObjects, VolumeManager } from '../model/core-types.ts';
import { CsiNode } from '../volumes/csi/csi-node.ts';
import { CsiVolumes } from '../volumes/csi/csi-volumes.ts';
import { CsiDrivers } from '../volumes/csi/drivers.ts';
import { fieldValue, resourceValue } from '../runtime/kuberuntime/downward-api.ts';
import { PodCertificates } from '../volumes/pod-certificates.ts';
import { hostMounter } from '../volumes/mounter.ts';
import { noReferencedObjects, WatchedObjects } from '../volumes/referenced-objects.ts';
import { TokenManager } from '../volumes/token-manager.ts';
import { trustBundleCertificates } from '../volumes/trust-bundles.ts';
import { createVolumeManager, type VolumeObserver } from '../volumes/volume-manager.ts';
import type { Base, Closer } from './base.ts';

const MOUNT_TIMEOUT_MS = 123_000;

export interface AgentVolumes {
  readonly manager: VolumeManager;
  readonly objects: ReferencedObjects;
  readonly tokens: TokenManager;
  readonly csi: CsiVolumes;
  /** The handler of CSI plugins. */
  readonly csiDrivers: CsiDrivers;
  /** Ends with what is to be said of the node once. */
  run(signal: AbortSignal): Promise<void>;
  /** Pods whose config maps or secrets changed. */
  onObjectsChange(listener: (podUids: ReadonlySet<string>) => void): void;
}

export interface VolumeParts {
  /** Of the node's own matters. */
  readonly client: Client | undefined;
  /** What pods are given is read with it. */
  readonly podClient: Client | undefined;
  readonly node: NodeInfo & { changed(): void };
  readonly events: PodEventRecorder;
  readonly observe: VolumeObserver;
}

export async function createVolumes(base: Base, parts: VolumeParts, closers: Closer[]): Promise<AgentVolumes> {
  const { flags, clock, logger, rootDirectory, nodeName } = base;
  const { client, podClient, node, events, observe } = parts;
  const objects =
    podClient === undefined ? noReferencedObjects : new WatchedObjects({ client: podClient, clock, logger });
  const tokens = new TokenManager({ client: podClient, clock });
  const csiNode = client === undefined ? undefined : new CsiNode({ client, nodeName });
  const csiDrivers = new CsiDrivers({ node: csiNode, logger });
  const csi = new CsiVolumes({
    rootDirectory,
    nodeName,
    client: podClient,
    clock,
    logger,
    drivers: csiDrivers,
    sources: {
      secret: (namespace, name) => secretValues(objects, namespace, name),
      token: (pod, spec) => tokens.status(pod, spec),
    },
    reportedInUse: () => node.node().status?.volumesInUse ?? [],
    onInUseChange: () => node.changed(),
  });
  await csi.recover();
  // Drivers that run as pods mount these directories, and want them to be there.
  for (const directory of ['pods', 'plugins'])
    await mkdir(join(rootDirectory, directory), { recursive: true, mode: 0o750 });
  const certificates =
    podClient === undefined || !base.effective.gates.enabled('PodCertificateRequest')
      ? undefined
      : new PodCertificates({
          client: podClient,
          clock,
          events,
          node: () => ({ name: nodeName, uid: node.node().metadata.uid ?? '' }),
          random: Math.random,
        });
  const manager = createVolumeManager({
    rootDirectory,
    client: podClient,
    clock,
    logger,
    events,
    mounter: hostMounter,
    sources: {
      objects,
      token: (pod, spec) => tokens.token(pod, spec),
      ...(podClient === undefined || !base.effective.gates.enabled('ClusterTrustBundleProjection')
        ? {}
        : { trustBundles: (source) => trustBundleCertificates(podClient, source) }),
      ...(certificates === undefined
        ? {}
        : { podCertificate: (pod, volume, index, source) => certificates.bundle(pod, volume, index, source) }),
      fieldValue: (pod, path) => fieldValue(pod, path, { hostIps: node.hostIps() }),
      resourceValue: (pod, container, resource, divisor) =>
        resourceValue(pod, container, resource, divisor, node.allocatable()),
    },
    refreshMs: flags.syncFrequency,
    mountTimeoutMs: MOUNT_TIMEOUT_MS,
    csi,
    allocatableMemoryBytes: () => Number(wholeUnits(parseQuantity(node.allocatable()['memory'] ?? '0'))),
    recursiveReadOnly: () =>
      node.node().status?.runtimeHandlers?.find(({ name }) => name === '')?.features?.recursiveReadOnlyMounts === true,
    forgetPod: (uid) => {
      tokens.forgetPod(uid);
      certificates?.forgetPod(uid);
    },
    observe,
  });
  if (objects instanceof WatchedObjects) {
    objects.onChange((uids) => manager.refreshPods(uids));
    closers.push(() => objects.close());
  }
  closers.push(() => csiDrivers.close());
  closers.push(() => manager.close());
  return {
    manager,
    objects,
    tokens,
    csi,
    csiDrivers,
    run: (signal) => csiNode?.keep(clock, logger, signal) ?? Promise.resolve(),
    onObjectsChange: (listener) => (objects instanceof WatchedObjects ? objects.onChange(listener) : undefined),
  };
}

async function secretValues(
  objects: ReferencedObjects,
  namespace: string,
  name: string,
): Promise<Record<string, string>> {
  const secret = await objects.secret(namespace, name);
  if (secret === undefined) throw new Error(`secret "${name}" not found in namespace "${namespace}"`);
  const data = (secret['data'] ?? {}) as Record<string, string>;
  return Object.fromEntries(
    Object.entries(data).map(([key, value]) => [key, Buffer.from(value, 'base64').toString('utf8')]),
  );
}
