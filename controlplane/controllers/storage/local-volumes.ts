/**
 * Provisions the volumes of local storage classes on the node that the scheduler chose, expands them, and removes released ones
 * with the reclaim policy Delete. A request names the volume, so that no path of an object of the API ever reaches the agent.
 *
 * A finalizer keeps a volume with the reclaim policy Delete until its folder or its node is gone, also if a user deletes the
 * object first.
 */
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Node, PersistentVolume, PersistentVolumeClaim, StorageClass } from '../../../api/kinds/kinds.ts';
import { nodes, persistentVolumeClaims, persistentVolumes, storageClasses } from '../../../api/client/resources.ts';
import { compareQuantities, parseQuantity, wholeUnits } from '../../../api/meta/quantity.ts';
import { isAlreadyExists, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { classOf } from './volume-matching.ts';
import {
  DEFAULT_CLASS_ANNOTATION,
  HOSTNAME_LABEL,
  SELECTED_NODE_ANNOTATION,
  PROVISIONED_BY_ANNOTATION,
} from '../../../api/meta/well-known-labels.ts';
import { LOCAL_VOLUMES } from '../../../api/meta/orchlet-annotations.ts';

/** The provisioner of storage classes that this controller serves. */
export const LOCAL_PROVISIONER = 'orchlet.local/local-volumes';
const FINALIZER = 'orchlet.local/local-volume';
/** The annotation of a volume with the name of the node whose agent created it. A node may change its host name label. */
const CREATED_ON = 'orchlet.local/node';
const CLASS = 'local';
const CLASS_KEY = '/class';
const VOLUME_KEY = '/volume/';
const RETRY = { baseDelayMs: 1_000, maxDelayMs: 60_000 };
/** The number of claims and volumes that are processed at the same time, since each may wait for an agent. */
const WORKERS = 4;
const MODES: ReadonlySet<string> = new Set(['ReadWriteOnce', 'ReadWriteOncePod']);

interface LocalFolder {
  /** The path on the node. */
  readonly path: string;
  /** Why the folder may hold more than its capacity, in the words of the agent; an empty string if it may not. */
  readonly unlimited: string;
}

/** The agents of nodes. Each call rejects with a text for the user. */
export interface VolumeAgents {
  /** Creates the folder unless it exists, and limits it to the capacity in bytes. */
  create(node: Node, name: string, capacity: bigint): Promise<LocalFolder>;
  /** Removes the folder if it exists. */
  remove(node: Node, name: string): Promise<void>;
}

/** Builds the controller; `agents` reaches the agent of each node. */
export function localVolumes(agents: VolumeAgents): RunController {
  return (environment, signal) => {
    const { informers } = environment;
    const caches = {
      volumes: informers.for(persistentVolumes),
      claims: informers.for(persistentVolumeClaims),
      classes: informers.for(storageClasses),
      nodes: informers.for(nodes),
    };
    const provisioner = new LocalProvisioner(environment, caches, agents);
    const loop = new ReconcileLoop(environment, {
      ...RETRY,
      workers: WORKERS,
      reconcile(key) {
        if (key === CLASS_KEY) return provisioner.ensureClass();
        if (key.startsWith(VOLUME_KEY)) return provisioner.syncVolume(key.slice(VOLUME_KEY.length));
        const { namespace, name } = splitKey(key);
        return provisioner.syncClaim(namespace, name);
      },
    });
    loop.follow(caches.claims);
    const volumeChanged = ({ metadata }: PersistentVolume): void =>
      void loop.queue.add(`${VOLUME_KEY}${metadata.name ?? ''}`);
    caches.volumes.addHandler({ add: volumeChanged, update: (_, volume) => volumeChanged(volume) });
    const nodeChanged = ({ metadata }: Node): void => {
      if (metadata.annotations?.[LOCAL_VOLUMES] === 'true') loop.queue.add(CLASS_KEY);
    };
    caches.nodes.addHandler({ add: nodeChanged });
    return loop.run(signal, caches.volumes, caches.claims, caches.classes, caches.nodes);
  };
}

interface Caches {
  readonly volumes: Informer<PersistentVolume>;
  readonly claims: Informer<PersistentVolumeClaim>;
  readonly classes: Informer<StorageClass>;
  readonly nodes: Informer<Node>;
}

class LocalProvisioner {
  readonly #environment: ControllerEnvironment;
  readonly #caches: Caches;
  readonly #agents: VolumeAgents;

  constructor(environment: ControllerEnvironment, caches: Caches, agents: VolumeAgents) {
    this.#environment = environment;
    this.#caches = caches;
    this.#agents = agents;
  }

  /** Creates the storage class. Without a default class, claims that name none would wait for ever. */
  async ensureClass(): Promise<void> {
    const classes = this.#caches.classes.list();
    if (classes.some(({ metadata }) => metadata.name === CLASS)) return;
    const hasDefault = classes.some(({ metadata }) => metadata.annotations?.[DEFAULT_CLASS_ANNOTATION] === 'true');
    const local: StorageClass = {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: CLASS, ...(hasDefault ? {} : { annotations: { [DEFAULT_CLASS_ANNOTATION]: 'true' } }) },
      provisioner: LOCAL_PROVISIONER,
      reclaimPolicy: 'Delete',
      volumeBindingMode: 'WaitForFirstConsumer',
      allowVolumeExpansion: true,
    };
    await tolerate(this.#environment.client.create(storageClasses, '', local), isAlreadyExists);
  }

  async syncClaim(namespace: string, name: string): Promise<void> {
    const claim = this.#caches.claims.get(namespace, name);
    if (claim === undefined || claim.metadata.deletionTimestamp !== undefined) return;
    if ((claim.spec?.volumeName ?? '') !== '') return this.#expand(claim);
    const storageClass = this.#caches.classes.get('', classOf(claim) ?? '');
    if (storageClass?.provisioner !== LOCAL_PROVISIONER) return;
    const volumeName = `pvc-${claim.metadata.uid ?? ''}`;
    if (this.#caches.volumes.get('', volumeName) !== undefined) return;
    const fault = claimFault(claim, storageClass);
    if (fault !== undefined) return this.#recordClaimEvent(claim, 'Warning', 'ProvisioningFailed', fault);
    const nodeName = claim.metadata.annotations?.[SELECTED_NODE_ANNOTATION];
    // The scheduler chooses the node when a pod uses the claim.
    if (nodeName === undefined) return;
    const node = this.#caches.nodes.get('', nodeName);
    if (node === undefined) return this.#chooseAgain(claim, nodeName);
    let unlimited: string;
    try {
      const folder = await this.#agents.create(node, volumeName, bytesOf(requestOf(claim)));
      unlimited = folder.unlimited;
      await this.#createVolume(claim, storageClass, { name: volumeName, path: folder.path, node });
    } catch (error) {
      const message = `failed to provision volume with StorageClass "${storageClass.metadata.name}" on node ${nodeName}: ${(error as Error).message}`;
      this.#recordClaimEvent(claim, 'Warning', 'ProvisioningFailed', message);
      throw error;
    }
    this.#recordClaimEvent(claim, 'Normal', 'ProvisioningSucceeded', `Successfully provisioned volume ${volumeName}`);
    if (unlimited === '') return;
    const message = `volume ${volumeName} may use more than ${requestOf(claim)} on node ${nodeName}: ${unlimited}`;
    this.#recordClaimEvent(claim, 'Normal', 'CapacityNotLimited', message);
  }

  async #createVolume(
    claim: PersistentVolumeClaim,
    storageClass: StorageClass,
    { name, path, node }: { readonly name: string; readonly path: string; readonly node: Node },
  ): Promise<void> {
    const { namespace = '', name: claimName = '', uid = '', resourceVersion = '' } = claim.metadata;
    const storage = requestOf(claim);
    const volume: PersistentVolume = {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: {
        name,
        annotations: { [PROVISIONED_BY_ANNOTATION]: LOCAL_PROVISIONER, [CREATED_ON]: node.metadata.name ?? '' },
        finalizers: [FINALIZER],
      },
      spec: {
        capacity: { storage },
        accessModes: [...(claim.spec?.accessModes ?? [])],
        persistentVolumeReclaimPolicy: storageClass.reclaimPolicy ?? 'Delete',
        storageClassName: storageClass.metadata.name ?? '',
        volumeMode: 'Filesystem',
        claimRef: { apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace, name: claimName, uid, resourceVersion },
        local: { path },
        nodeAffinity: {
          required: {
            nodeSelectorTerms: [
              {
                matchExpressions: [{ key: HOSTNAME_LABEL, operator: 'In', values: [hostnameOf(node)] }],
                // The path is the answer of this node's agent. A node chooses its label of the host name, but not its name.
                matchFields: [{ key: 'metadata.name', operator: 'In', values: [node.metadata.name ?? ''] }],
              },
            ],
          },
        },
      },
    };
    await tolerate(this.#environment.client.create(persistentVolumes, '', volume), isAlreadyExists);
  }

  /** Removes the selected node of a claim, because that node no longer exists. The scheduler then chooses another one. */
  async #chooseAgain(claim: PersistentVolumeClaim, nodeName: string): Promise<void> {
    this.#recordClaimEvent(claim, 'Warning', 'ProvisioningFailed', `node ${nodeName} does not exist any more`);
    const { namespace = '', name = '', resourceVersion } = claim.metadata;
    const metadata = { resourceVersion, annotations: { [SELECTED_NODE_ANNOTATION]: null } };
    await this.#environment.client.patch(persistentVolumeClaims, namespace, name, {
      type: 'merge',
      body: { metadata },
    });
  }

  /**
   * Expands the volume of a claim. The agent, if its node exists, raises the limit of the folder before the API shows the new
   * size.
   */
  async #expand(claim: PersistentVolumeClaim): Promise<void> {
    const volume = this.#caches.volumes.get('', claim.spec?.volumeName ?? '');
    const wanted = claim.spec?.resources?.requests?.['storage'];
    const capacity = claim.status?.capacity?.['storage'];
    if (volume === undefined || !isOurs(volume) || volume.spec?.claimRef?.uid !== claim.metadata.uid) return;
    if (
      claim.status?.phase !== 'Bound' ||
      wanted === undefined ||
      capacity === undefined ||
      !isLarger(wanted, capacity)
    )
      return;
    const { client } = this.#environment;
    await this.#raiseLimit(claim, volume, wanted);
    if (isLarger(wanted, volume.spec?.capacity?.['storage'] ?? '0')) {
      const spec = { capacity: { storage: wanted } };
      await client.patch(persistentVolumes, '', volume.metadata.name ?? '', { type: 'merge', body: { spec } });
    }
    const { namespace = '', name = '' } = claim.metadata;
    const status = { capacity: { storage: wanted } };
    await client.patch(persistentVolumeClaims, namespace, name, {
      type: 'merge',
      body: { status },
      subresource: 'status',
    });
    this.#recordClaimEvent(claim, 'Normal', 'VolumeResizeSuccessful', 'Resize volume succeeded');
  }

  async #raiseLimit(claim: PersistentVolumeClaim, volume: PersistentVolume, wanted: string): Promise<void> {
    const node = this.#caches.nodes.get('', volume.metadata.annotations?.[CREATED_ON] ?? '');
    if (node === undefined) return;
    try {
      await this.#agents.create(node, volume.metadata.name ?? '', bytesOf(wanted));
    } catch (error) {
      this.#recordClaimEvent(claim, 'Warning', 'VolumeResizeFailed', (error as Error).message);
      throw error;
    }
  }

  async syncVolume(name: string): Promise<void> {
    const volume = this.#caches.volumes.get('', name);
    if (volume === undefined || !isOurs(volume)) return;
    const isDeleted = volume.metadata.deletionTimestamp !== undefined;
    const { phase } = volume.status ?? {};
    // A bound volume is kept, also after a user has deleted it.
    if (phase !== 'Released' && phase !== 'Failed' && !(isDeleted && phase !== 'Bound')) return;
    const { client } = this.#environment;
    if (volume.spec?.persistentVolumeReclaimPolicy === 'Delete') {
      await this.#removeFolder(volume);
      if (!isDeleted) {
        const preconditions = { uid: volume.metadata.uid ?? '' };
        await tolerate(client.delete(persistentVolumes, '', name, { preconditions }), isNotFound);
      }
    }
    if (isDeleted) await this.#removeFinalizer(volume);
  }

  async #removeFolder(volume: PersistentVolume): Promise<void> {
    const { name = '' } = volume.metadata;
    const nodeName = volume.metadata.annotations?.[CREATED_ON] ?? '';
    const node = this.#caches.nodes.get('', nodeName);
    if (node === undefined) {
      const message = `the node ${nodeName} does not exist any more: if it comes back, its disk still has the data`;
      this.#recordVolumeEvent(volume, 'Warning', 'VolumeLeftBehind', message);
      return;
    }
    try {
      await this.#agents.remove(node, name);
    } catch (error) {
      this.#recordVolumeEvent(volume, 'Warning', 'VolumeFailedDelete', (error as Error).message);
      throw error;
    }
  }

  async #removeFinalizer(volume: PersistentVolume): Promise<void> {
    const { name = '', resourceVersion, finalizers = [] } = volume.metadata;
    if (!finalizers.includes(FINALIZER)) return;
    const metadata = { resourceVersion, finalizers: finalizers.filter((finalizer) => finalizer !== FINALIZER) };
    await tolerate(
      this.#environment.client.patch(persistentVolumes, '', name, { type: 'merge', body: { metadata } }),
      isNotFound,
    );
  }

  #recordClaimEvent(claim: PersistentVolumeClaim, type: 'Normal' | 'Warning', reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(claim, persistentVolumeClaims), type, reason, message);
  }

  #recordVolumeEvent(volume: PersistentVolume, type: 'Normal' | 'Warning', reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(volume, persistentVolumes), type, reason, message);
  }
}

/** Returns why a folder on one node cannot be the volume of the claim, or `undefined` if it can. */
function claimFault({ spec = {} }: PersistentVolumeClaim, { volumeBindingMode }: StorageClass): string | undefined {
  const mode = spec.accessModes?.find((one) => !MODES.has(one));
  if (mode !== undefined)
    return `local volumes are on one node: access mode ${mode} is not possible, ReadWriteOnce and ReadWriteOncePod are`;
  if (spec.volumeMode === 'Block') return 'local volumes are folders: volumeMode Block is not possible';
  if (spec.selector !== undefined) return 'claim.Spec.Selector is not supported';
  if (spec.dataSource !== undefined || spec.dataSourceRef !== undefined)
    return 'local volumes cannot be made from a data source';
  if (volumeBindingMode !== 'WaitForFirstConsumer')
    return 'the class needs volumeBindingMode WaitForFirstConsumer: the scheduler chooses the node of a local volume';
  return undefined;
}

function isOurs({ metadata, spec }: PersistentVolume): boolean {
  return metadata.annotations?.[PROVISIONED_BY_ANNOTATION] === LOCAL_PROVISIONER && spec?.local !== undefined;
}

const requestOf = ({ spec }: PersistentVolumeClaim): string => spec?.resources?.requests?.['storage'] ?? '0';
const bytesOf = (quantity: string): bigint => wholeUnits(parseQuantity(quantity));

function isLarger(a: string, b: string): boolean {
  return compareQuantities(parseQuantity(a), parseQuantity(b)) > 0;
}

function hostnameOf({ metadata }: Node): string {
  return metadata.labels?.[HOSTNAME_LABEL] ?? metadata.name ?? '';
}
