/** Attaches the volumes of CSI drivers to the nodes of their pods, and detaches them when no pod there needs them. */
import { stringifyJson } from '../../../api/codec/json.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Node, PersistentVolumeClaim, Pod, VolumeAttachment } from '../../../api/kinds/kinds.ts';
import {
  csiDrivers,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  volumeAttachments,
} from '../../../api/client/resources.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { isAlreadyExists, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { type ControllerEnvironment, ReconcileLoop, type RunController } from '../controller.ts';
import { indexByNode, podsOn } from '../node/node-lifecycle.ts';
import { controllerOf } from '../owner-references.ts';
import {
  claimsOf,
  exclusiveElsewhere,
  isHealthy,
  isOutOfService,
  type StorageLookup,
  nameOnNode,
  type WantedAttachment,
  wantedAttachments,
} from './attach-detach-core.ts';
import { CONTROLLER_ATTACHES_ANNOTATION } from '../../../api/meta/well-known-labels.ts';
import { attachmentName } from '../../../api/kinds/attached-volumes.ts';

/** The time after which a volume counts as unmounted from an unhealthy node that does not report it. */
const UNMOUNT_PATIENCE_MS = 6 * 60_000;
const BY_NODE = 'node';

/** Attaches and detaches the volumes of CSI drivers whose CSIDriver objects do not exclude that. */
export const runAttachDetach: RunController = (environment, signal) => {
  const controller = new AttachDetach(environment);
  return controller.run(signal);
};

class AttachDetach {
  readonly #environment: ControllerEnvironment;
  readonly #caches;
  readonly #loop: ReconcileLoop;
  /** The time since when no pod needs a volume, by attachment. */
  readonly #unwantedSince = new Map<string, number>();
  /** What the last event of each attachment reported, so that it is not recorded again. */
  readonly #recordedEvents = new Map<string, string>();

  constructor(environment: ControllerEnvironment) {
    const { informers } = environment;
    this.#environment = environment;
    this.#caches = {
      pods: informers.for(pods),
      nodes: informers.for(nodes),
      claims: informers.for(persistentVolumeClaims),
      volumes: informers.for(persistentVolumes),
      attachments: informers.for(volumeAttachments),
      drivers: informers.for(csiDrivers),
    };
    indexByNode(this.#caches.pods);
    this.#caches.attachments.addIndex(BY_NODE, ({ spec }) => [spec.nodeName]);
    this.#loop = new ReconcileLoop(environment, { reconcile: (nodeName) => this.#reconcile(nodeName) });
  }

  run(signal: AbortSignal): Promise<void> {
    const { pods: podCache, nodes: nodeCache, claims, volumes, attachments, drivers } = this.#caches;
    const { queue } = this.#loop;
    const enqueueNodeOf = (pod: Pod): void => {
      const nodeName = pod.spec?.nodeName ?? '';
      if (nodeName !== '' && claimsOf(pod).length > 0) queue.add(nodeName);
    };
    const enqueueNode = (node: Node): void => void queue.add(node.metadata.name ?? '');
    const claimBound = (claim: PersistentVolumeClaim): void => {
      const { namespace = '', name = '' } = claim.metadata;
      for (const pod of podCache.list(namespace))
        if (claimsOf(pod).some((entry) => entry.name === name)) enqueueNodeOf(pod);
    };
    const attachmentChanged = ({ spec }: VolumeAttachment): void => void queue.add(spec.nodeName);
    podCache.addHandler({ add: enqueueNodeOf, update: (_before, pod) => enqueueNodeOf(pod), delete: enqueueNodeOf });
    nodeCache.addHandler({
      add: enqueueNode,
      update: (before, node) => {
        if (detachmentFields(before) !== detachmentFields(node)) enqueueNode(node);
      },
      delete: enqueueNode,
    });
    claims.addHandler({
      update: (before, claim) => {
        if (before.status?.phase !== claim.status?.phase) claimBound(claim);
      },
    });
    attachments.addHandler({
      add: attachmentChanged,
      update: (_before, attachment) => attachmentChanged(attachment),
      delete: (attachment) => {
        // Nodes that wait for the volume are reconciled again.
        for (const pod of podCache.list()) if (attachment.spec.nodeName !== pod.spec?.nodeName) enqueueNodeOf(pod);
        attachmentChanged(attachment);
      },
    });
    return this.#loop.run(signal, podCache, nodeCache, claims, volumes, attachments, drivers);
  }

  get #lookup(): StorageLookup {
    const { claims, volumes, drivers } = this.#caches;
    return {
      volumeOfClaim: (namespace, claimName, owner) => {
        const claim = claims.get(namespace, claimName);
        if (owner !== undefined && claim !== undefined && controllerOf(claim)?.uid !== owner.metadata.uid)
          return undefined;
        const volume = volumes.get('', claim?.spec?.volumeName ?? '');
        return volume?.spec?.claimRef?.uid === claim?.metadata.uid ? volume : undefined;
      },
      attaches: (driver) => drivers.get('', driver)?.spec.attachRequired !== false,
    };
  }

  async #reconcile(nodeName: string): Promise<void> {
    const node = this.#caches.nodes.get('', nodeName);
    const present = this.#attachmentsOf(nodeName);
    const wanted = this.#wanted(nodeName, node);
    const unwanted = present.filter((attachment) => !wanted.has(attachment.metadata.name ?? ''));
    const detachable = unwanted.filter((attachment) => this.#mayDetach(attachment, node));
    for (const name of wanted.keys()) this.#unwantedSince.delete(name);
    // The status of the node is written first, so that its kubelet waits for the next attachment.
    if (node !== undefined) await this.#reportAttached(node, present, new Set(detachable));
    for (const attachment of detachable) await this.#detach(attachment);
    for (const attachment of wanted.values()) {
      const existing = present.find(({ metadata }) => metadata.name === attachment.name);
      if (existing === undefined) await this.#attach(attachment, nodeName);
      else this.#recordOutcome(attachment, existing);
    }
  }

  #wanted(nodeName: string, node: Node | undefined): ReadonlyMap<string, WantedAttachment> {
    if (node?.metadata.annotations?.[CONTROLLER_ATTACHES_ANNOTATION] !== 'true') return new Map();
    return wantedAttachments(nodeName, podsOn(this.#caches.pods, nodeName), this.#lookup);
  }

  /** Returns the attachments of existing volumes that have the names that this controller gives; it ignores all others. */
  #attachmentsOf(nodeName: string): VolumeAttachment[] {
    return this.#caches.attachments.byIndex(BY_NODE, nodeName).filter(({ metadata, spec }) => {
      const volume = this.#caches.volumes.get('', spec.source.persistentVolumeName ?? '');
      const handle = volume?.spec?.csi?.volumeHandle;
      return handle !== undefined && metadata.name === attachmentName(handle, spec.attacher, nodeName);
    });
  }

  #mayDetach(attachment: VolumeAttachment, node: Node | undefined): boolean {
    const { clock } = this.#environment;
    if (attachment.metadata.deletionTimestamp !== undefined) return true;
    const volume = this.#caches.volumes.get('', attachment.spec.source.persistentVolumeName ?? '');
    if (node === undefined || volume === undefined || isOutOfService(node)) return true;
    if (!(node.status?.volumesInUse ?? []).includes(nameOnNode(volume))) return true;
    const name = attachment.metadata.name ?? '';
    const since = this.#unwantedSince.get(name) ?? clock.now();
    this.#unwantedSince.set(name, since);
    if (isHealthy(node)) return false;
    const leftMs = since + UNMOUNT_PATIENCE_MS - clock.now();
    if (leftMs > 0) this.#loop.queue.addAfter(attachment.spec.nodeName, leftMs);
    return leftMs <= 0;
  }

  async #reportAttached(
    node: Node,
    present: readonly VolumeAttachment[],
    detachable: ReadonlySet<VolumeAttachment>,
  ): Promise<void> {
    const attached = present
      .filter((attachment) => attachment.status?.attached === true && !detachable.has(attachment))
      .flatMap(({ spec }) => {
        const volume = this.#caches.volumes.get('', spec.source.persistentVolumeName ?? '');
        return volume === undefined ? [] : [{ name: nameOnNode(volume), devicePath: '' }];
      })
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
    if (jsonEqual(attached, node.status?.volumesAttached ?? [])) return;
    const patch = { status: { volumesAttached: attached } };
    await this.#environment.client.patch(nodes, '', node.metadata.name ?? '', {
      type: 'merge',
      body: patch,
      subresource: 'status',
    });
  }

  async #attach({ name, driver, volume, pods: users }: WantedAttachment, nodeName: string): Promise<void> {
    const { client, recorder } = this.#environment;
    const volumeName = volume.metadata.name ?? '';
    const blocking = exclusiveElsewhere(volume, nodeName, this.#caches.attachments.list());
    if (blocking !== undefined) {
      this.#once(name, 'elsewhere', () => {
        for (const pod of users)
          recorder.event(
            referenceTo(pod, pods),
            'Warning',
            'FailedAttachVolume',
            `Multi-Attach error for volume "${volumeName}" Volume is already exclusively attached to one node and can't be attached to another`,
          );
      });
      return;
    }
    await tolerate(
      client.create(volumeAttachments, '', {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'VolumeAttachment',
        metadata: { name },
        spec: { attacher: driver, nodeName, source: { persistentVolumeName: volumeName } },
      }),
      isAlreadyExists,
    );
  }

  #recordOutcome({ name, volume, pods: users }: WantedAttachment, { status }: VolumeAttachment): void {
    const { recorder } = this.#environment;
    const volumeName = volume.metadata.name ?? '';
    const problem = status?.attachError?.message;
    if (status?.attached === true) {
      this.#once(name, 'attached', () => {
        for (const pod of users)
          recorder.event(
            referenceTo(pod, pods),
            'Normal',
            'SuccessfulAttachVolume',
            `AttachVolume.Attach succeeded for volume "${volumeName}"`,
          );
      });
    } else if (problem !== undefined) {
      this.#once(name, problem, () => {
        for (const pod of users)
          recorder.event(
            referenceTo(pod, pods),
            'Warning',
            'FailedAttachVolume',
            `AttachVolume.Attach failed for volume "${volumeName}" : ${problem}`,
          );
      });
    }
  }

  #once(name: string, outcome: string, record: () => void): void {
    if (this.#recordedEvents.get(name) === outcome) return;
    this.#recordedEvents.set(name, outcome);
    record();
  }

  async #detach(attachment: VolumeAttachment): Promise<void> {
    const { metadata } = attachment;
    const name = metadata.name ?? '';
    this.#unwantedSince.delete(name);
    this.#recordedEvents.delete(name);
    if (metadata.deletionTimestamp !== undefined) return;
    await tolerate(
      this.#environment.client.delete(volumeAttachments, '', name, {
        ...(metadata.uid === undefined ? {} : { preconditions: { uid: metadata.uid } }),
      }),
      isNotFound,
    );
  }
}

/** Returns the fields of a node that decide whether its volumes can be detached. */
function detachmentFields(node: Node): string {
  return stringifyJson([
    node.status?.volumesInUse,
    isOutOfService(node),
    isHealthy(node),
    node.metadata.annotations?.[CONTROLLER_ATTACHES_ANNOTATION],
  ]);
}
