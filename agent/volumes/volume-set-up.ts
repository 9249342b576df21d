/**
 * Sets up one volume of a pod by its kind: mounts it, or creates its directory and writes its files. The operation is
 * idempotent and finds what exists. At most one operation for a pod may run at a time.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { matchesNodeSelector, type SelectableNode } from '../../api/kinds/node-selection.ts';
import type { Client } from '../../api/client/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { quoteText } from '../../api/meta/quote.ts';
import type { CsiMount, CsiMountRequest } from './csi/csi-source.ts';
import type { Pod, Volume } from '../base/model/pod.ts';
import type { PodVolume, VolumeMeasure } from './pod-volumes.ts';
import { inDirectory } from '../base/files/beneath.ts';
import { writePayload } from './atomic-writer.ts';
import { setUpEmptyDir } from './empty-dir.ts';
import type { ExclusiveVolumes } from './exclusive-volumes.ts';
import { checkHostPath, statIfThere } from './host-path.ts';
import { VolumeError } from '../runtime/container-volumes.ts';
import { makeNestedMountPoints, nestedMountPoints } from './nested-mounts.ts';
import { openToAll, setVolumeOwnership } from './ownership.ts';
import { type PayloadSources, volumePayload } from './payload.ts';
import {
  type BoundVolume,
  checkVolumeMode,
  type ClaimReference,
  resolveClaim,
  sizeToGrow,
  reportGrown,
} from './persistent.ts';
import type { PodMounts } from './pod-mounts.ts';
import { VolumeNotProcessedError, VolumeStepError } from './volume-failure.ts';

/** A volume that is set up. The path is '' for image volumes, which the runtime mounts. */
export interface ReadyVolume extends PodVolume {
  readonly readOnly: boolean;
  readonly image?: { readonly reference: string };
  readonly isBlock?: boolean;
  /** A supplementary group of the pod's processes, from an annotation of the persistent volume. */
  readonly groupId?: number;
  /** The content is refreshed while the pod exists. */
  readonly refreshes?: boolean;
}

/** The part of `csi/` that mounts volumes. */
export interface CsiMounts {
  mount(request: CsiMountRequest): Promise<CsiMount>;
  usage(podUid: string, path: string): Promise<VolumeMeasure | undefined>;
}

const NO_GIT =
  'git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`';

const noPlugin = (volume: string): VolumeNotProcessedError =>
  new VolumeNotProcessedError(
    `failed to get Plugin from volumeSpec for volume "${volume}" err=no volume plugin matched`,
  );

interface VolumeSetUpOptions {
  /** The value of `--root-dir`. */
  readonly rootDirectory: string;
  readonly client: Client | undefined;
  readonly clock: Clock;
  readonly sources: PayloadSources;
  readonly mounts: PodMounts;
  readonly exclusive: ExclusiveVolumes;
  readonly csi: CsiMounts | undefined;
  readonly allocatableMemoryBytes: () => number;
  /** The node with the labels that the API server knows. */
  readonly node: () => SelectableNode;
  /** Called when a file system was expanded, to report an event. */
  readonly onGrown: (pod: Pod, volumeName: string) => void;
}

interface SetUpRequest {
  readonly pod: Pod;
  readonly volume: Volume;
  readonly signal: AbortSignal;
}

/** A host name or an address, with a zone perhaps. The API takes any text, and mount(8) reads some texts as options or tags. */
const NFS_SERVER = /^[A-Za-z0-9:_][A-Za-z0-9:_.%-]*$/;

type NfsSource = { readonly server: string; readonly path: string; readonly readOnly?: boolean };

/** The errors that are passed on as they are: they name their step and volume, or no event of a volume reports them. */
const COMPLETE_ERRORS = [VolumeStepError, VolumeNotProcessedError, VolumeError];

/**
 * Sets volumes up. An error that is no `VolumeStepError` or `VolumeNotProcessedError` is a failure of the step
 * `MountVolume.SetUp`.
 */
export class VolumeSetUp {
  readonly #options: VolumeSetUpOptions;

  constructor(options: VolumeSetUpOptions) {
    this.#options = options;
  }

  podDirectory(podUid: string): string {
    return join(this.#options.rootDirectory, 'pods', podUid);
  }

  /** Sets up a volume of any kind, and returns where its content is on the host. Rejects for a kind that no plugin serves. */
  setUp(pod: Pod, volume: Volume, signal: AbortSignal): Promise<ReadyVolume> {
    const request = { pod, volume, signal };
    if (volume.emptyDir !== undefined) return this.#emptyDir(request);
    if (volume.hostPath !== undefined) return this.#hostPath(request, volume.hostPath);
    if (isPayloadVolume(volume)) return this.#payload(request);
    if (volume.nfs !== undefined) return this.#nfs(request, volume.nfs);
    if (volume.persistentVolumeClaim !== undefined) {
      const { claimName, readOnly } = volume.persistentVolumeClaim;
      return this.#persistent(request, { name: claimName, readOnly: readOnly === true, isOwnedByPod: false });
    }
    if (volume.ephemeral !== undefined)
      return this.#persistent(request, {
        name: `${pod.metadata.name}-${volume.name}`,
        readOnly: false,
        isOwnedByPod: true,
      });
    if (volume.csi !== undefined) return this.#inlineCsi(request, volume.csi);
    if (volume.image !== undefined)
      return Promise.resolve({
        name: volume.name,
        path: '',
        readOnly: true,
        ephemeral: false,
        image: { reference: volume.image.reference ?? '' },
      });
    const { gitRepo } = volume as { readonly gitRepo?: unknown };
    return Promise.reject(gitRepo === undefined ? noPlugin(volume.name) : new Error(NO_GIT));
  }

  #volumePath(pod: Pod, plugin: string, name: string): string {
    return join(this.podDirectory(pod.metadata.uid), 'volumes', plugin, name);
  }

  async #emptyDir({ pod, volume }: SetUpRequest): Promise<ReadyVolume> {
    const path = this.#volumePath(pod, 'kubernetes.io~empty-dir', volume.name);
    await setUpEmptyDir({
      pod,
      volume,
      path,
      podDirectory: this.podDirectory(pod.metadata.uid),
      mounts: this.#options.mounts,
      allocatableMemoryBytes: this.#options.allocatableMemoryBytes(),
      giveToGroup: (directory) => giveToGroup(pod, directory),
    });
    return { name: volume.name, path, readOnly: false, ephemeral: (volume.emptyDir?.medium ?? '') === '' };
  }

  async #hostPath({ volume }: SetUpRequest, source: { path: string; type?: string }): Promise<ReadyVolume> {
    await checkHostPath(source.path, source.type ?? '');
    return { name: volume.name, path: source.path, readOnly: false, ephemeral: false };
  }

  async #payload({ pod, volume }: SetUpRequest): Promise<ReadyVolume> {
    const payload = await volumePayload(pod, volume, this.#options.sources);
    if (payload === undefined) throw new Error(`volume ${volume.name} has no content of its own`);
    const plugin = payloadPlugin(volume);
    const path = this.#volumePath(pod, plugin, volume.name);
    await mkdir(path, { recursive: true, mode: 0o777 });
    // The content is in memory, because it may be secret. Kernels before 6.4 have no option that keeps it out of the swap.
    if (plugin !== 'kubernetes.io~configmap' && plugin !== 'kubernetes.io~downward-api')
      await this.#options.mounts.ensure(path, { source: 'tmpfs', type: 'tmpfs' }, ['noswap'], []);
    await inDirectory(path, async (directory) => {
      await openToAll(directory);
      await makeNestedMountPoints(directory, nestedMountPoints(pod, volume.name, payload));
    });
    await writePayload(path, payload, pod.spec.securityContext?.fsGroup, new Date(this.#options.clock.now()));
    // Containers can only read the volume, whatever their mounts say, because the agent writes there as root.
    return { name: volume.name, path, readOnly: true, ephemeral: true, refreshes: true };
  }

  async #nfs({ pod, volume }: SetUpRequest, source: NfsSource): Promise<ReadyVolume> {
    const path = this.#volumePath(pod, 'kubernetes.io~nfs', volume.name);
    await this.#mountNfs(path, source, []);
    return { name: volume.name, path, readOnly: source.readOnly === true, ephemeral: false };
  }

  async #mountNfs(path: string, nfs: NfsSource, options: readonly string[]): Promise<void> {
    if (!NFS_SERVER.test(nfs.server))
      throw new Error(`NFS server ${quoteText(nfs.server)} is not a host name or address`);
    await mkdir(path, { recursive: true, mode: 0o750 });
    const host = nfs.server.includes(':') ? `[${nfs.server}]` : nfs.server;
    await this.#options.mounts.ensure(path, { source: `${host}:${nfs.path}`, type: 'nfs' }, [
      ...(nfs.readOnly === true ? ['ro'] : []),
      ...options,
    ]);
  }

  async #inlineCsi(request: SetUpRequest, source: NonNullable<Volume['csi']>): Promise<ReadyVolume> {
    const { pod, volume, signal } = request;
    const readOnly = source.readOnly === true;
    const mounted = await this.#csi().mount({
      pod,
      volumeName: volume.name,
      source: { kind: 'inline', volume: source },
      readOnly,
      signal,
    });
    if (mounted.setsGroup) await giveToGroup(pod, mounted.path);
    return { name: volume.name, readOnly, ephemeral: false, ...this.#mountFields(pod, mounted) };
  }

  async #persistent(request: SetUpRequest, reference: ClaimReference): Promise<ReadyVolume> {
    const { pod, volume } = request;
    const bound = await resolveClaim(this.#options.client, pod, reference);
    checkVolumeMode(pod, volume.name, bound.volume.spec?.volumeMode);
    this.#checkNodeAffinity(bound);
    await this.#takeExclusive(pod, bound);
    try {
      return await this.#setUpBound(request, bound);
    } catch (error) {
      if (COMPLETE_ERRORS.some((kind) => error instanceof kind)) throw error;
      // Events name the persistent volume, and not the volume of the pod.
      throw new VolumeStepError('MountVolume.SetUp', bound.volume.metadata.name, error);
    }
  }

  async #setUpBound(request: SetUpRequest, bound: BoundVolume): Promise<ReadyVolume> {
    const { pod, volume } = request;
    const spec = bound.volume.spec ?? {};
    const gid = bound.volume.metadata.annotations?.['pv.beta.kubernetes.io/gid'] ?? '';
    const base = {
      name: volume.name,
      readOnly: bound.readOnly,
      ephemeral: false,
      ...(/^[1-9]\d*$/.test(gid) ? { groupId: Number(gid) } : {}),
    };
    if (spec.hostPath !== undefined) {
      await checkHostPath(spec.hostPath.path, spec.hostPath.type ?? '');
      return { ...base, path: spec.hostPath.path };
    }
    if (spec.local !== undefined) {
      const isBlock = spec.volumeMode === 'Block';
      if ((await statIfThere(spec.local.path)) === undefined) {
        const step = isBlock ? 'MapVolume.NewBlockVolumeMapper' : 'MountVolume.NewMounter';
        const why = `path "${spec.local.path}" does not exist`;
        throw new VolumeStepError(`${step} initialization`, bound.volume.metadata.name, why);
      }
      await checkHostPath(spec.local.path, isBlock ? 'BlockDevice' : 'Directory');
      if (isBlock) return { ...base, path: spec.local.path, isBlock };
      if (!bound.readOnly) await giveToGroup(pod, spec.local.path);
      return { ...base, path: spec.local.path };
    }
    if (spec.nfs !== undefined) {
      const path = this.#volumePath(pod, 'kubernetes.io~nfs', bound.volume.metadata.name);
      await this.#mountNfs(path, spec.nfs, spec.mountOptions ?? []);
      return { ...base, path };
    }
    if (spec.csi !== undefined) return { ...base, ...(await this.#persistentCsi(request, bound)) };
    throw noPlugin(request.volume.name);
  }

  /**
   * Throws if the volume's node affinity does not match this node. A pod that names its node bypasses the scheduler, and the
   * path of a local volume of another node may be the volume of other pods here.
   */
  #checkNodeAffinity({ volume: { metadata, spec } }: BoundVolume): void {
    const required = spec?.nodeAffinity?.required;
    if (required === undefined || matchesNodeSelector(required, this.#options.node())) return;
    throw new VolumeStepError('MountVolume.NodeAffinity check', metadata.name, 'no matching NodeSelectorTerms');
  }

  /**
   * Takes a volume with the access mode ReadWriteOncePod for the pod. As in the kubelet, a volume with further access modes
   * can be shared, because a pod does not state which one it uses.
   */
  async #takeExclusive(pod: Pod, { volume: { metadata, spec } }: BoundVolume): Promise<void> {
    const [only, ...others] = spec?.accessModes ?? [];
    if (only !== 'ReadWriteOncePod' || others.length > 0) return;
    try {
      await this.#options.exclusive.take(pod.metadata.uid, metadata.name);
    } catch (error) {
      const step = spec?.volumeMode === 'Block' ? 'MapVolume.SetUpDevice' : 'MountVolume.SetUp';
      throw new VolumeStepError(step, metadata.name, error);
    }
  }

  async #persistentCsi(
    { pod, volume, signal }: SetUpRequest,
    bound: BoundVolume,
  ): Promise<Pick<ReadyVolume, 'path' | 'readOnly' | 'isBlock' | 'refreshes' | 'measure'>> {
    const readOnly = bound.readOnly || bound.volume.spec?.csi?.readOnly === true;
    const growBytes = readOnly ? undefined : sizeToGrow(bound);
    const source = { kind: 'persistent', volume: bound.volume, growBytes } as const;
    const mounted = await this.#csi().mount({ pod, volumeName: volume.name, source, readOnly, signal });
    if (mounted.setsGroup) await giveToGroup(pod, mounted.path);
    if (mounted.grown && this.#options.client !== undefined) {
      await reportGrown(this.#options.client, bound);
      this.#options.onGrown(pod, bound.volume.metadata.name);
    }
    return { readOnly, isBlock: mounted.isBlock, ...this.#mountFields(pod, mounted) };
  }

  #mountFields(pod: Pod, { path, refreshes }: CsiMount): Pick<ReadyVolume, 'path' | 'refreshes' | 'measure'> {
    return { path, refreshes, measure: () => this.#csi().usage(pod.metadata.uid, path) };
  }

  #csi(): CsiMounts {
    if (this.#options.csi === undefined) throw new Error('CSI volumes are not available on this node');
    return this.#options.csi;
  }
}

/** Whether the agent writes the files of the volume and updates them. */
export function isPayloadVolume(volume: Volume): boolean {
  return (
    volume.configMap !== undefined ||
    volume.secret !== undefined ||
    volume.downwardAPI !== undefined ||
    volume.projected !== undefined
  );
}

function payloadPlugin(volume: Volume): string {
  if (volume.configMap !== undefined) return 'kubernetes.io~configmap';
  if (volume.secret !== undefined) return 'kubernetes.io~secret';
  return volume.downwardAPI === undefined ? 'kubernetes.io~projected' : 'kubernetes.io~downward-api';
}

async function giveToGroup(pod: Pod, path: string): Promise<void> {
  const gid = pod.spec.securityContext?.fsGroup;
  if (gid === undefined) return;
  const policy = pod.spec.securityContext?.fsGroupChangePolicy === 'OnRootMismatch' ? 'OnRootMismatch' : 'Always';
  await setVolumeOwnership(path, { gid, readonly: false, policy });
}
