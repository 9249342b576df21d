/** Creates the volume manager and what it uses: CSI drivers, tokens, and the objects that pods refer to. */
import { mkdir, realpath } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Client } from '../../api/client/client.ts';
import type { GrpcCallObserver } from '../../api/grpc/grpc-client.ts';
import { parseQuantity, wholeUnits } from '../../api/meta/quantity.ts';
import type { PodEventRecorder } from '../base/model/pod-events.ts';
import type { ReferencedObjects } from '../base/model/referenced-objects.ts';
import type { NodeInfo } from '../pods/workers/node-info.ts';
import type { VolumeManager } from '../volumes/pod-volumes.ts';
import { CsiNode } from '../volumes/csi/csi-node.ts';
import { CsiVolumes } from '../volumes/csi/csi-volumes.ts';
import { CsiDrivers } from '../volumes/csi/drivers.ts';
import type { StaticObjects } from '../sources/static-objects.ts';
import { fieldValue, resourceValue } from '../runtime/kuberuntime/downward-api.ts';
import { PodCertificates } from '../volumes/pod-certificates.ts';
import { LocalVolumes } from '../volumes/local-volumes.ts';
import { hostFolderLimits } from '../host/project-quota.ts';
import { hostMounter } from '../volumes/mounter.ts';
import { shareRoot, unshareRoot } from '../volumes/shared-root.ts';
import { PodObjects } from '../volumes/pod-objects.ts';
import { noReferencedObjects, WatchedObjects } from '../volumes/referenced-objects.ts';
import { TokenManager } from '../volumes/token-manager.ts';
import { trustBundleCertificates } from '../volumes/trust-bundles.ts';
import { createVolumeManager, type VolumeObserver } from '../volumes/volume-manager.ts';
import type { Base } from './base.ts';
import type { Closing, Part } from './lifecycle.ts';

/** How long to wait until the volumes of a pod are mounted, as in the kubelet (`podAttachAndMountTimeout`). */
const MOUNT_TIMEOUT_MS = 123_000;

/** The volume manager and the stores behind it, which other parts also read. */
export interface AgentVolumes extends Part {
  readonly manager: VolumeManager;
  readonly objects: ReferencedObjects;
  readonly tokens: TokenManager;
  readonly csi: CsiVolumes;
  /** The handler of CSI plugins. */
  readonly csiDrivers: CsiDrivers;
}

interface VolumeParts {
  /** Reads and writes objects about the node, such as its CSINode. */
  readonly client: Client | undefined;
  /** Reads what pods need, and requests their tokens and certificates. */
  readonly podClient: Client | undefined;
  /** The objects of the folder of static pods. */
  readonly statics: StaticObjects;
  readonly node: NodeInfo & { changed(): void };
  readonly events: PodEventRecorder;
  readonly observe: VolumeObserver;
  readonly observeCsi: (driver: string) => GrpcCallObserver;
  /** Called with the uids of pods whose config maps or secrets changed. */
  readonly onObjectsChange: (podUids: ReadonlySet<string>) => void;
}

/** Creates the volume manager and the parts behind it. Resolves when the state of CSI volumes has been read. */
export async function createVolumes(base: Base, parts: VolumeParts): Promise<AgentVolumes> {
  const { clock, logger, rootDirectory, nodeName } = base;
  const { client, podClient } = parts;
  await mkdir(rootDirectory, { recursive: true, mode: 0o750 });
  // The mount comes first, because a directory that is already open would stay on the filesystem below the mount.
  const realRoot = await realpath(rootDirectory);
  await shareRoot(realRoot, hostMounter).catch((error: unknown) =>
    logger.warn(
      { err: error, rootDirectory },
      'Cannot make the root directory a shared mount, which volumes with mountPropagation need',
    ),
  );
  const watched = podClient === undefined ? undefined : new WatchedObjects({ client: podClient, clock, logger });
  const refresh = (uids: ReadonlySet<string>): void => {
    manager.refreshPods(uids);
    parts.onObjectsChange(uids);
  };
  const objects = new PodObjects({ api: watched ?? noReferencedObjects, statics: parts.statics, onChange: refresh });
  const tokens = new TokenManager({ client: podClient, clock });
  const csiNode = client === undefined ? undefined : new CsiNode({ client, nodeName });
  const csiDrivers = new CsiDrivers({ node: csiNode, logger, observe: parts.observeCsi });
  const csi = await createCsi(base, parts, { secrets: watched, tokens, csiDrivers });
  // Drivers that run as pods mount these directories and expect them to exist.
  for (const directory of ['pods', 'plugins'])
    await mkdir(join(rootDirectory, directory), { recursive: true, mode: 0o750 });
  const manager = createManager(base, parts, { objects, tokens, csi });
  watched?.onChange(refresh);
  return {
    manager,
    objects,
    tokens,
    csi,
    csiDrivers,
    run: async (signal) => csiNode?.keep(clock, logger, signal),
    async close({ hostCleared }: Closing) {
      await manager.close();
      await csiDrivers.close();
      await watched?.close();
      if (!hostCleared) return;
      await unshareRoot(realRoot, hostMounter).catch((error: unknown) =>
        logger.warn({ err: error, rootDirectory }, 'Cannot unmount the root directory'),
      );
    },
  };
}

/** Creates the part that manages the volumes which the control plane creates on this node. */
export function createLocalVolumes({ flags, clock, logger, rootDirectory }: Base): LocalVolumes {
  const root = flags.localVolumesDir === '' ? join(rootDirectory, 'local-volumes') : resolve(flags.localVolumesDir);
  return new LocalVolumes({ root, limits: hostFolderLimits, clock, logger });
}

async function createCsi(
  { clock, logger, rootDirectory, nodeName }: Base,
  { podClient, node }: VolumeParts,
  {
    secrets,
    tokens,
    csiDrivers,
  }: Pick<AgentVolumes, 'tokens' | 'csiDrivers'> & { readonly secrets: WatchedObjects | undefined },
): Promise<CsiVolumes> {
  const csi = new CsiVolumes({
    rootDirectory,
    nodeName,
    client: podClient,
    clock,
    logger,
    drivers: csiDrivers,
    sources: {
      secret: (namespace, name) => secretValues(secrets, namespace, name),
      token: (pod, spec) => tokens.status(pod, spec),
    },
    reportedInUse: () => node.node().status?.volumesInUse ?? [],
    onInUseChange: () => node.changed(),
  });
  await csi.recover();
  return csi;
}

function createManager(
  { flags, clock, logger, rootDirectory, nodeName, effective: { gates } }: Base,
  { podClient, events, node, observe }: VolumeParts,
  { objects, tokens, csi }: Pick<AgentVolumes, 'objects' | 'tokens' | 'csi'>,
): ReturnType<typeof createVolumeManager> {
  const certificates =
    podClient === undefined || !gates.enabled('PodCertificateRequest')
      ? undefined
      : new PodCertificates({
          client: podClient,
          clock,
          events,
          node: () => ({ name: nodeName, uid: node.node().metadata.uid ?? '' }),
          random: Math.random,
        });
  return createVolumeManager({
    rootDirectory,
    client: podClient,
    clock,
    logger,
    events,
    mounter: hostMounter,
    sources: {
      objects,
      token: (pod, spec) => tokens.token(pod, spec),
      ...(podClient === undefined || !gates.enabled('ClusterTrustBundleProjection')
        ? {}
        : { trustBundles: (source) => trustBundleCertificates(podClient, source) }),
      ...(certificates === undefined
        ? {}
        : { podCertificate: (pod, volume, index, source) => certificates.bundle(pod, volume, index, source) }),
      fieldValue: (pod, path) => fieldValue(pod, path, { hostIps: node.hostIps() }),
      resourceValue: (pod, container, resource, divisor) =>
        resourceValue(pod, container, { resource, divisor }, node.allocatable()),
    },
    refreshMs: flags.syncFrequency,
    mountTimeoutMs: MOUNT_TIMEOUT_MS,
    csi,
    allocatableMemoryBytes: () => Number(wholeUnits(parseQuantity(node.allocatable()['memory'] ?? '0'))),
    node: () => ({ name: nodeName, labels: node.node().metadata.labels ?? {} }),
    recursiveReadOnly: () =>
      node.node().status?.runtimeHandlers?.find(({ name }) => name === '')?.features?.recursiveReadOnlyMounts === true,
    forgetPod: (uid) => {
      tokens.forgetPod(uid);
      certificates?.forgetPod(uid);
    },
    observe,
  });
}

async function secretValues(
  secrets: WatchedObjects | undefined,
  namespace: string,
  name: string,
): Promise<Record<string, string>> {
  const secret = await secrets?.secretOf(namespace, name);
  if (secret === undefined) throw new Error(`secret "${name}" not found in namespace "${namespace}"`);
  const data = (secret['data'] ?? {}) as Record<string, string>;
  return Object.fromEntries(
    Object.entries(data).map(([key, value]) => [key, Buffer.from(value, 'base64').toString('utf8')]),
  );
}
