/**
 * Binds claims to volumes: the volume that a claim names, a volume that is reserved for it, or the smallest available one that
 * matches. Claims of classes that wait for a consumer get the volume that the scheduler chose. When a claim is deleted, its
 * volume is released, and then retained, recycled, or left to its deleter.
 *
 * A claim and its volume refer to each other. The volume is written first, so that a bound claim always has a volume.
 */
import type { V1PersistentVolumeClaimStatus, V1PersistentVolumeStatus } from '@kubernetes/client-node';
import type { Informer } from '../../../api/client/informer.ts';
import type { PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Wire } from '../../../api/kinds/kinds.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import { persistentVolumeClaims, persistentVolumes, pods, storageClasses } from '../../../api/client/resources.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { newestDefault } from '../../security/admission/storage-defaults.ts';
import { keyOf, ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { delayOf, followUnscheduledPods } from './delayed-binding.ts';
import { recycle } from './volume-recycler.ts';
import { classOf, findVolume, isBoundTo, mismatch } from './volume-matching.ts';
import {
  DEFAULT_CLASS_ANNOTATIONS,
  SELECTED_NODE_ANNOTATION,
  BETA_STORAGE_CLASS_ANNOTATION,
  PROVISIONED_BY_ANNOTATION,
  BIND_COMPLETED_ANNOTATION,
} from '../../../api/meta/well-known-labels.ts';

const BOUND_BY_CONTROLLER = 'pv.kubernetes.io/bound-by-controller';
const PROVISIONER = 'volume.kubernetes.io/storage-provisioner';
const BETA_PROVISIONER = 'volume.beta.kubernetes.io/storage-provisioner';
const SCRUB_CHECK_MS = 5000;
const VOLUME_KEY = '/volume/';

/** Runs the controller. Claims and volumes share one queue; a prefix marks the keys of volumes. */
export const runVolumeBinder: RunController = (environment, signal) => {
  const { informers } = environment;
  const volumes = informers.for(persistentVolumes);
  const claims = informers.for(persistentVolumeClaims);
  const classes = informers.for(storageClasses);
  const podCache = informers.for(pods);
  volumes.addIndex('claim', ({ spec }) =>
    spec?.claimRef === undefined ? [] : [`${spec.claimRef.namespace}/${spec.claimRef.name}`],
  );
  claims.addIndex('unbound-of-class', (claim) => ((claim.spec?.volumeName ?? '') === '' ? [classOf(claim) ?? ''] : []));
  claims.addIndex('volume', ({ spec }) => ((spec?.volumeName ?? '') === '' ? [] : [spec?.volumeName ?? '']));
  const recheck = (volume: string): void => loop.queue.addAfter(`${VOLUME_KEY}${volume}`, SCRUB_CHECK_MS);
  const binder = new VolumeBinder(environment, { volumes, claims, classes, pods: podCache }, recheck);
  const loop = new ReconcileLoop(environment, {
    reconcile: (key) =>
      key.startsWith(VOLUME_KEY)
        ? binder.syncVolume(key.slice(VOLUME_KEY.length))
        : binder.syncClaim(splitKey(key).namespace, splitKey(key).name),
  });
  const enqueueVolume = (name: string | undefined): void => {
    if ((name ?? '') !== '') loop.queue.add(`${VOLUME_KEY}${name}`);
  };
  const enqueueUnbound = (className: string): void => {
    for (const claim of claims.byIndex('unbound-of-class', className)) loop.enqueue(claim);
  };
  const volumeChanged = (volume: PersistentVolume): void => {
    enqueueVolume(volume.metadata.name);
    const owner = volume.spec?.claimRef;
    if (owner !== undefined) loop.queue.add(`${owner.namespace}/${owner.name}`);
    else if (volume.status?.phase === 'Available') enqueueUnbound(classOf(volume) ?? '');
    for (const claim of claims.byIndex('volume', volume.metadata.name ?? '')) loop.enqueue(claim);
  };
  volumes.addHandler({
    add: volumeChanged,
    update: (_, volume) => volumeChanged(volume),
    delete: volumeChanged,
  });
  const claimChanged = (claim: PersistentVolumeClaim): void => {
    loop.enqueue(claim);
    enqueueVolume(claim.spec?.volumeName);
  };
  claims.addHandler({
    add: claimChanged,
    update: (_, claim) => claimChanged(claim),
    delete(claim) {
      enqueueVolume(claim.spec?.volumeName);
      for (const volume of volumes.byIndex('claim', keyOf(claim))) enqueueVolume(volume.metadata.name);
    },
  });
  const classChanged = ({ metadata }: StorageClass): void => {
    enqueueUnbound(metadata.name ?? '');
    // A claim without a class gets the default class.
    enqueueUnbound('');
  };
  classes.addHandler({ add: classChanged, update: (_, one) => classChanged(one) });
  followUnscheduledPods(podCache, (claim) => loop.queue.add(claim));
  return loop.run(signal, volumes, claims, classes, podCache);
};

interface Caches {
  readonly volumes: Informer<PersistentVolume>;
  readonly claims: Informer<PersistentVolumeClaim>;
  readonly classes: Informer<StorageClass>;
  readonly pods: Informer<Pod>;
}

type ClaimStatus = Wire<V1PersistentVolumeClaimStatus>;
type VolumeStatus = Wire<V1PersistentVolumeStatus>;

class VolumeBinder {
  readonly #environment: ControllerEnvironment;
  readonly #caches: Caches;
  readonly #recheck: (volume: string) => void;

  constructor(environment: ControllerEnvironment, caches: Caches, recheck: (volume: string) => void) {
    this.#environment = environment;
    this.#caches = caches;
    this.#recheck = recheck;
  }

  async syncClaim(namespace: string, name: string): Promise<void> {
    const claim = this.#caches.claims.get(namespace, name);
    if (claim === undefined) return;
    if (claim.metadata.annotations?.[BIND_COMPLETED_ANNOTATION] !== undefined) return this.#syncBound(claim);
    if (claim.metadata.deletionTimestamp !== undefined) return;
    if ((claim.spec?.volumeName ?? '') !== '') return this.#syncNamed(claim);
    return this.#syncUnbound(claim);
  }

  async #syncUnbound(claim: PersistentVolumeClaim): Promise<void> {
    const { volumes, classes } = this.#caches;
    if (classOf(claim) === undefined && (await this.#assignDefaultClass(claim))) return;
    const className = classOf(claim) ?? '';
    const storageClass = className === '' ? undefined : classes.get('', className);
    const waits = storageClass?.volumeBindingMode === 'WaitForFirstConsumer';
    const found =
      findVolume(claim, volumes.byIndex('claim', keyOf(claim)), { reservedOnly: true }) ??
      (waits ? undefined : findVolume(claim, volumes.list(), { reservedOnly: false }));
    if (found !== undefined) return this.#bind(found, claim);
    if (waits && claim.metadata.annotations?.[SELECTED_NODE_ANNOTATION] === undefined) {
      const { reason, message } = delayOf(claim, this.#caches.pods);
      this.#recordEvent(claim, 'Normal', reason, message);
    } else if (className !== '') {
      const current = await this.#callProvisioner(claim, className, storageClass);
      return this.#setClaimStatus(current, 'Pending', undefined);
    } else {
      this.#recordEvent(
        claim,
        'Normal',
        'FailedBinding',
        'no persistent volumes available for this claim and no storage class is set',
      );
    }
    return this.#setClaimStatus(claim, 'Pending', undefined);
  }

  /** Binds a claim that names its volume, or leaves it pending until that volume exists, fits, and is free. */
  async #syncNamed(claim: PersistentVolumeClaim): Promise<void> {
    const name = claim.spec?.volumeName ?? '';
    const volume = this.#caches.volumes.get('', name);
    if (volume === undefined) return this.#setClaimStatus(claim, 'Pending', undefined);
    if (volume.spec?.claimRef === undefined) {
      const problem = mismatch(volume, claim);
      if (problem === undefined) return this.#bind(volume, claim);
      this.#recordEvent(claim, 'Warning', 'VolumeMismatch', `Cannot bind to requested volume "${name}": ${problem}`);
    } else if (isBoundTo(volume, claim)) return this.#bind(volume, claim);
    else {
      this.#recordEvent(claim, 'Warning', 'FailedBinding', `volume "${name}" already bound to a different claim.`);
    }
    return this.#setClaimStatus(claim, 'Pending', undefined);
  }

  async #syncBound(claim: PersistentVolumeClaim): Promise<void> {
    const name = claim.spec?.volumeName ?? '';
    if (name === '') {
      return this.#markLost(
        claim,
        'ClaimLost',
        'Bound claim has lost reference to PersistentVolume. Data on the volume is lost!',
      );
    }
    const volume = this.#caches.volumes.get('', name);
    if (volume === undefined)
      return this.#markLost(
        claim,
        'ClaimLost',
        'Bound claim has lost its PersistentVolume. Data on the volume is lost!',
      );
    const owner = volume.spec?.claimRef;
    if (owner === undefined || owner.uid === claim.metadata.uid) return this.#bind(volume, claim);
    return this.#markLost(
      claim,
      'ClaimMisbound',
      'Two claims are bound to the same volume, this one is bound incorrectly',
    );
  }

  async #markLost(claim: PersistentVolumeClaim, reason: string, message: string): Promise<void> {
    if (claim.status?.phase !== 'Lost') this.#recordEvent(claim, 'Warning', reason, message);
    await this.#setClaimStatus(claim, 'Lost', undefined);
  }

  /** Sets the newest default class. Resolves to whether the claim was changed. */
  async #assignDefaultClass(claim: PersistentVolumeClaim): Promise<boolean> {
    const found = newestDefault(this.#caches.classes.list(), DEFAULT_CLASS_ANNOTATIONS)?.metadata.name;
    if (found === undefined || claim.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION] !== undefined) return false;
    await this.#environment.client.update(persistentVolumeClaims, {
      ...claim,
      spec: { ...claim.spec, storageClassName: found },
    });
    return true;
  }

  async #callProvisioner(
    claim: PersistentVolumeClaim,
    className: string,
    storageClass: StorageClass | undefined,
  ): Promise<PersistentVolumeClaim> {
    const provisioner = storageClass?.provisioner ?? '';
    if (storageClass === undefined) {
      this.#recordEvent(claim, 'Warning', 'ProvisioningFailed', `storageclass.storage.k8s.io "${className}" not found`);
      return claim;
    }
    if (provisioner.startsWith('kubernetes.io/')) {
      this.#recordEvent(claim, 'Warning', 'ProvisioningFailed', `no volume plugin matched name: ${provisioner}`);
      return claim;
    }
    const annotations = { ...claim.metadata.annotations };
    let current = claim;
    if (annotations[PROVISIONER] !== provisioner || annotations[BETA_PROVISIONER] !== provisioner) {
      annotations[PROVISIONER] = provisioner;
      annotations[BETA_PROVISIONER] = provisioner;
      current = await this.#environment.client.update(persistentVolumeClaims, {
        ...claim,
        metadata: { ...claim.metadata, annotations },
      });
    }
    this.#recordEvent(
      claim,
      'Normal',
      'ExternalProvisioning',
      `Waiting for a volume to be created either by the external provisioner '${provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.`,
    );
    return current;
  }

  async #bind(volume: PersistentVolume, claim: PersistentVolumeClaim): Promise<void> {
    const bound = await this.#setVolumeStatus(await this.#pointVolume(volume, claim), { phase: 'Bound' });
    const pointed = await this.#pointClaim(claim, bound);
    await this.#setClaimStatus(pointed, 'Bound', bound);
  }

  async #pointVolume(volume: PersistentVolume, claim: PersistentVolumeClaim): Promise<PersistentVolume> {
    const { name = '', namespace = '', uid = '', resourceVersion = '' } = claim.metadata;
    const owner = volume.spec?.claimRef;
    if (owner !== undefined && owner.uid === uid) return volume;
    const annotations = { ...volume.metadata.annotations };
    // The annotation allows the binder to remove the whole reference later. A user's reservation does not get it and stays.
    if (owner === undefined) annotations[BOUND_BY_CONTROLLER] = 'yes';
    const claimRef = { kind: 'PersistentVolumeClaim', apiVersion: 'v1', namespace, name, uid, resourceVersion };
    return this.#environment.client.update(persistentVolumes, {
      ...volume,
      metadata: { ...volume.metadata, annotations },
      spec: { ...volume.spec, claimRef },
    });
  }

  async #pointClaim(claim: PersistentVolumeClaim, volume: PersistentVolume): Promise<PersistentVolumeClaim> {
    const annotations = { ...claim.metadata.annotations };
    const named = claim.spec?.volumeName === volume.metadata.name;
    if (named && annotations[BIND_COMPLETED_ANNOTATION] !== undefined) return claim;
    if (!named) annotations[BOUND_BY_CONTROLLER] = 'yes';
    annotations[BIND_COMPLETED_ANNOTATION] = 'yes';
    return this.#environment.client.update(persistentVolumeClaims, {
      ...claim,
      metadata: { ...claim.metadata, annotations },
      spec: { ...claim.spec, volumeName: volume.metadata.name ?? '' },
    });
  }

  /**
   * Writes the phase of a claim, with the modes and the capacity of its volume. Once the claim is bound, its resizer is
   * responsible for its size.
   */
  async #setClaimStatus(
    claim: PersistentVolumeClaim,
    phase: string,
    volume: PersistentVolume | undefined,
  ): Promise<void> {
    const before = claim.status ?? {};
    const { accessModes: _modes, capacity: _capacity, ...otherFields } = before;
    const status: ClaimStatus = { ...otherFields, phase };
    if (volume !== undefined) {
      status.accessModes = [...(volume.spec?.accessModes ?? [])];
      const size = before.phase === 'Bound' ? before.capacity : volume.spec?.capacity;
      if (size !== undefined) status.capacity = { ...size };
      const attributesClass = volume.spec?.volumeAttributesClassName;
      if (before.phase !== 'Bound' && attributesClass !== undefined)
        status.currentVolumeAttributesClassName = attributesClass;
    }
    if (semanticEqual(status, before)) return;
    await this.#environment.client.update(persistentVolumeClaims, { ...claim, status }, { subresource: 'status' });
  }

  async #setVolumeStatus(volume: PersistentVolume, wanted: VolumeStatus): Promise<PersistentVolume> {
    const { phase, message = '' } = wanted;
    if (volume.status?.phase === phase && (volume.status?.message ?? '') === message) return volume;
    const { message: _message, reason: _reason, ...otherFields } = volume.status ?? {};
    const status: VolumeStatus = { ...otherFields, ...wanted };
    return this.#environment.client.update(persistentVolumes, { ...volume, status }, { subresource: 'status' });
  }

  async syncVolume(name: string): Promise<void> {
    const volume = this.#caches.volumes.get('', name);
    if (volume === undefined) return;
    const owner = volume.spec?.claimRef;
    if (owner === undefined || (owner.uid ?? '') === '') {
      if (volume.metadata.deletionTimestamp === undefined) await this.#setVolumeStatus(volume, { phase: 'Available' });
      return;
    }
    const claim = await this.#ownerOf(owner.namespace ?? '', owner.name ?? '', owner.uid ?? '');
    if (claim === undefined) return this.#release(volume);
    const target = claim.spec?.volumeName ?? '';
    if (target === name) await this.#setVolumeStatus(volume, { phase: 'Bound' });
    else if (target !== '') await this.#withdrawFromClaim(volume);
  }

  /** Returns the claim with that UID. A claim that the informer does not show is read from the API, because it may be newer. */
  async #ownerOf(namespace: string, name: string, uid: string): Promise<PersistentVolumeClaim | undefined> {
    const cached = this.#caches.claims.get(namespace, name);
    if (cached?.metadata.uid === uid) return cached;
    const { items } = await this.#environment.client.list(persistentVolumeClaims, {
      namespace,
      fieldSelector: `metadata.name=${name}`,
    });
    return items.find(({ metadata }) => metadata.uid === uid);
  }

  /** Withdraws a volume from its claim, which is bound to another volume. */
  async #withdrawFromClaim(volume: PersistentVolume): Promise<void> {
    const annotations = volume.metadata.annotations ?? {};
    const { persistentVolumeReclaimPolicy: policy } = volume.spec ?? {};
    if (annotations[PROVISIONED_BY_ANNOTATION] !== undefined && policy === 'Delete') return this.#release(volume);
    await this.#makeAvailable(volume);
  }

  /** Makes a volume available again, without its claim. A volume that a user reserved for a claim stays reserved. */
  async #makeAvailable(volume: PersistentVolume): Promise<PersistentVolume> {
    const { [BOUND_BY_CONTROLLER]: byController, ...annotations } = volume.metadata.annotations ?? {};
    const { claimRef, ...spec } = volume.spec ?? {};
    if (claimRef !== undefined && byController === undefined) {
      const { uid: _uid, resourceVersion: _version, ...reservation } = claimRef;
      Object.assign(spec, { claimRef: reservation });
    }
    const free = await this.#environment.client.update(persistentVolumes, {
      ...volume,
      metadata: { ...volume.metadata, annotations },
      spec,
    });
    return this.#setVolumeStatus(free, { phase: 'Available' });
  }

  async #release(volume: PersistentVolume): Promise<void> {
    const { phase } = volume.status ?? {};
    const released =
      phase === 'Released' || phase === 'Failed' ? volume : await this.#setVolumeStatus(volume, { phase: 'Released' });
    switch (released.spec?.persistentVolumeReclaimPolicy) {
      case 'Recycle':
        return this.#recycle(released);
      case 'Delete':
        return this.#leaveToDeleter(released);
      default:
    }
  }

  async #recycle(volume: PersistentVolume): Promise<void> {
    if (volume.status?.phase === 'Failed') return;
    const outcome = await recycle(this.#environment.client, volume);
    if (outcome === 'scrubbed') {
      this.#recordVolumeEvent(volume, 'Normal', 'VolumeRecycled', 'Volume recycled');
      await this.#makeAvailable(volume);
    } else if (outcome === 'scrubbing') this.#recheck(volume.metadata.name ?? '');
    else {
      this.#recordVolumeEvent(volume, 'Warning', 'VolumeFailedRecycle', outcome.failed);
      await this.#setVolumeStatus(volume, { phase: 'Failed', message: outcome.failed });
    }
  }

  /** Leaves the deletion of a volume to its provisioner or CSI driver. The deletion of a volume that has neither fails. */
  async #leaveToDeleter(volume: PersistentVolume): Promise<void> {
    if (volume.metadata.annotations?.[PROVISIONED_BY_ANNOTATION] !== undefined || volume.spec?.csi !== undefined)
      return;
    if (volume.status?.phase === 'Failed') return;
    const message = `error getting deleter volume plugin for volume "${volume.metadata.name}": no deletable volume plugin matched`;
    this.#recordVolumeEvent(volume, 'Warning', 'VolumeFailedDelete', message);
    await this.#setVolumeStatus(volume, { phase: 'Failed', message });
  }

  #recordEvent(claim: PersistentVolumeClaim, type: 'Normal' | 'Warning', reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(claim, persistentVolumeClaims), type, reason, message);
  }

  #recordVolumeEvent(volume: PersistentVolume, type: 'Normal' | 'Warning', reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(volume, persistentVolumes), type, reason, message);
  }
}
