/**
 * Implements the Node authorizer: of secrets, volumes and the like, a kubelet can only read those that pods bound to its node
 * refer to.
 *
 * It counts the references from each node to each object and updates the counts when pods change, so that a decision is a
 * lookup.
 */
import type {
  PersistentVolume,
  Pod,
  PodCertificateRequest,
  ResourceSlice,
  VolumeAttachment,
} from '../../../api/kinds/kinds.ts';
import {
  persistentVolumes,
  podCertificateRequests,
  pods,
  resourceSlices,
  volumeAttachments,
} from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { quote } from '../../../api/meta/field-error.ts';
import type { ListerChange, Listers } from '../../model/listers.ts';
import type { UserInfo } from '../../model/user-info.ts';
import { rule } from './bootstrap-rules.ts';
import { ALLOW, csiNode, lease, noOpinion, nodeObject, selects } from './node-objects.ts';
import { podReferences } from './pod-references.ts';
import { ruleAllows, ruleQuery, type PolicyRule } from './rbac-rules.ts';
import type { AuthorizationAttributes, Authorizer, Decision, RuleResolver } from './authorization.ts';
import { NODES_GROUP, NODE_USER_PREFIX } from '../../../api/meta/system-users.ts';
import { MIRROR_ANNOTATION } from '../../../api/kinds/pod-annotations.ts';
import { groupResourceName } from '../../../api/meta/group-resource.ts';

/**
 * Returns the name of the node that a user is. Returns `undefined` if the user is not a node, and an empty string for a node
 * without a name.
 */
export function nodeNameOf(user: UserInfo): string | undefined {
  return user.name.startsWith(NODE_USER_PREFIX) && user.groups.includes(NODES_GROUP)
    ? user.name.slice(NODE_USER_PREFIX.length)
    : undefined;
}

/** An object that belongs to a node. */
type OfNode = KubeObject & { readonly spec?: { readonly nodeName?: string } };

/** The permissions of every node that do not depend on the object. */
const RULES: readonly PolicyRule[] = [
  rule('create', 'authentication.k8s.io', 'tokenreviews'),
  rule('create', 'authorization.k8s.io', 'localsubjectaccessreviews subjectaccessreviews'),
  rule('get list watch', '', 'services'),
  rule('create patch update', ',events.k8s.io', 'events'),
  rule('get', '', 'endpoints'),
  rule('create get list watch', 'certificates.k8s.io', 'certificatesigningrequests'),
  rule('get list watch', 'storage.k8s.io', 'csidrivers'),
  rule('get list watch', 'node.k8s.io', 'runtimeclasses'),
  rule('create', 'authentication.k8s.io', 'selfsubjectreviews'),
  rule('get list watch', 'certificates.k8s.io', 'clustertrustbundles'),
];

/** Counts references: target (`secrets/ns/name`) → node → number of references. */
class Reach {
  readonly #counts = new Map<string, Map<string, number>>();

  add(target: string, node: string): void {
    let nodes = this.#counts.get(target);
    if (nodes === undefined) this.#counts.set(target, (nodes = new Map()));
    nodes.set(node, (nodes.get(node) ?? 0) + 1);
  }

  remove(target: string, node: string): void {
    const nodes = this.#counts.get(target);
    const count = nodes?.get(node);
    if (nodes === undefined || count === undefined) return;
    if (count > 1) nodes.set(node, count - 1);
    else nodes.delete(node);
    if (nodes.size === 0) this.#counts.delete(target);
  }

  has(target: string, node: string): boolean {
    return this.#counts.get(target)?.has(node) ?? false;
  }
}

/** Subscribes to the objects in its constructor. It has no opinion on clients that are not nodes. */
export class NodeAuthorizer implements Authorizer, RuleResolver {
  readonly #reach = new Reach();
  /** The claim (as a target) that each PersistentVolume is bound to. */
  readonly #claimOfVolume = new Map<string, string>();
  /** The PersistentVolumes that use each secret (as a target). */
  readonly #volumesOfSecret = new Map<string, Set<string>>();

  constructor(listers: Listers) {
    listers.of(pods).subscribe((change) => this.#takePod(change));
    listers.of(persistentVolumes).subscribe((change) => this.#takeVolume(change));
    listers
      .of(volumeAttachments)
      .subscribe((change) => this.#takeOfNode<VolumeAttachment>('volumeattachments', change));
    listers.of(resourceSlices).subscribe((change) => this.#takeOfNode<ResourceSlice>('resourceslices', change));
    listers
      .of(podCertificateRequests)
      .subscribe((change) => this.#takeOfNode<PodCertificateRequest>('podcertificaterequests', change));
  }

  #takePod({ current, previous }: ListerChange<Pod>): void {
    const before = previous?.spec?.nodeName ?? '';
    const after = current?.spec?.nodeName ?? '';
    // Most changes of a pod do not change its references.
    if (previous !== undefined && current !== undefined && before === after) {
      if (previous.metadata.uid === current.metadata.uid && sameReferences(previous, current)) return;
    }
    if (previous !== undefined && before !== '')
      for (const target of targetsOf(previous)) this.#reach.remove(target, before);
    if (current !== undefined && after !== '') for (const target of targetsOf(current)) this.#reach.add(target, after);
  }

  #takeVolume({ current, previous }: ListerChange<PersistentVolume>): void {
    const name = current?.metadata.name ?? previous?.metadata.name ?? '';
    if (previous !== undefined) {
      this.#claimOfVolume.delete(name);
      for (const secret of secretsOfVolume(previous)) this.#volumesOfSecret.get(secret)?.delete(name);
    }
    const claim = current?.spec?.claimRef;
    if (current === undefined || claim === undefined || claim === null) return;
    this.#claimOfVolume.set(name, `persistentvolumeclaims/${claim.namespace}/${claim.name}`);
    for (const secret of secretsOfVolume(current)) {
      const volumes = this.#volumesOfSecret.get(secret);
      if (volumes === undefined) this.#volumesOfSecret.set(secret, new Set([name]));
      else volumes.add(name);
    }
  }

  /** Takes a change of a resource whose objects name the node that they belong to. */
  #takeOfNode<T extends OfNode>(resource: string, { current, previous }: ListerChange<T>): void {
    const change = (object: T | undefined, how: 'add' | 'remove'): void => {
      const node = object?.spec?.nodeName ?? '';
      if (object === undefined || node === '') return;
      this.#reach[how](`${resource}/${object.metadata.namespace ?? ''}/${object.metadata.name}`, node);
    };
    change(previous, 'remove');
    change(current, 'add');
  }

  /**
   * Whether the object belongs to the node, or a pod of the node refers to it, directly or through the claim of a
   * PersistentVolume.
   */
  reaches(node: string, resource: string, namespace: string, name: string): boolean {
    const target = `${resource}/${namespace}/${name}`;
    if (this.#reach.has(target, node)) return true;
    if (resource === 'persistentvolumes') {
      const claim = this.#claimOfVolume.get(name);
      return claim !== undefined && this.#reach.has(claim, node);
    }
    if (resource !== 'secrets') return false;
    for (const volume of this.#volumesOfSecret.get(target) ?? []) {
      const claim = this.#claimOfVolume.get(volume);
      if (claim !== undefined && this.#reach.has(claim, node)) return true;
    }
    return false;
  }

  authorize(attributes: AuthorizationAttributes): Decision {
    const node = nodeNameOf(attributes.user);
    if (node === undefined) return noOpinion('');
    if (node === '') return noOpinion(`unknown node for user ${quote(attributes.user.name)}`);
    if (attributes.isResourceRequest) {
      const decision = this.#decideByResource(node, attributes);
      if (decision !== undefined) return decision;
    }
    const query = ruleQuery(attributes);
    return RULES.some((one) => ruleAllows(one, query)) ? ALLOW : noOpinion('');
  }

  /**
   * Decides requests for objects that only some nodes may access. Returns `undefined` if the decision does not depend on the
   * object.
   */
  #decideByResource(node: string, attributes: AuthorizationAttributes): Decision | undefined {
    switch (groupResourceName(attributes)) {
      case 'secrets':
      case 'configmaps':
        return this.#read(node, attributes);
      case 'persistentvolumeclaims':
        return attributes.subresource === 'status' ? this.#updateStatus(node, attributes) : this.#get(node, attributes);
      case 'persistentvolumes':
      case 'resourceclaims.resource.k8s.io':
      case 'volumeattachments.storage.k8s.io':
        return this.#get(node, attributes);
      case 'serviceaccounts':
        return this.#serviceAccount(node, attributes);
      case 'leases.coordination.k8s.io':
        return lease(node, attributes);
      case 'csinodes.storage.k8s.io':
        return csiNode(node, attributes);
      case 'resourceslices.resource.k8s.io':
        return this.#slice(node, attributes);
      case 'podcertificaterequests.certificates.k8s.io':
        return this.#podCertificate(node, attributes);
      case 'nodes':
        return nodeObject(node, attributes);
      case 'pods':
        return this.#pod(node, attributes);
      default:
        return undefined;
    }
  }

  #related(node: string, { resource, namespace, name }: AuthorizationAttributes): Decision {
    if (name === '') return noOpinion('No Object name found');
    return this.reaches(node, resource, namespace, name)
      ? ALLOW
      : noOpinion(`no relationship found between node '${node}' and this object`);
  }

  #read(node: string, attributes: AuthorizationAttributes): Decision {
    if (!['get', 'list', 'watch'].includes(attributes.verb)) return noOpinion('can only read resources of this type');
    if (attributes.subresource !== '') return noOpinion('cannot read subresource');
    if (attributes.namespace === '') return noOpinion('can only read namespaced object of this type');
    return this.#related(node, attributes);
  }

  #get(node: string, attributes: AuthorizationAttributes): Decision {
    if (attributes.verb !== 'get') return noOpinion('can only get individual resources of this type');
    if (attributes.subresource !== '') return noOpinion('cannot get subresource');
    return this.#related(node, attributes);
  }

  #updateStatus(node: string, attributes: AuthorizationAttributes): Decision {
    if (attributes.verb !== 'update' && attributes.verb !== 'patch')
      return noOpinion('can only get/update/patch this type');
    return this.#related(node, attributes);
  }

  #serviceAccount(node: string, attributes: AuthorizationAttributes): Decision {
    if (attributes.verb === 'get' && attributes.subresource === '') return this.#related(node, attributes);
    if (attributes.verb !== 'create' || attributes.name === '')
      return noOpinion('can only create tokens for individual service accounts');
    if (attributes.subresource !== 'token') return noOpinion('can only create token subresource of service account');
    return this.#related(node, attributes);
  }

  #slice(node: string, attributes: AuthorizationAttributes): Decision {
    if (attributes.subresource !== '') return noOpinion('cannot authorize ResourceSlice subresources');
    switch (attributes.verb) {
      case 'create':
        return ALLOW;
      case 'get':
      case 'update':
      case 'patch':
      case 'delete':
        return this.#related(node, attributes);
      case 'list':
      case 'watch':
      case 'deletecollection':
        return selects(attributes, 'spec.nodeName', node)
          ? ALLOW
          : noOpinion('can only list/watch/deletecollection resourceslices with nodeName field selector');
      default:
        return noOpinion(
          'only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection',
        );
    }
  }

  #podCertificate(node: string, attributes: AuthorizationAttributes): Decision {
    const { verb, subresource } = attributes;
    if (subresource !== '') return noOpinion('nodes may not access the status subresource of PodCertificateRequests');
    // The NodeRestriction admission plugin checks what a node creates.
    if (verb === 'create') return ALLOW;
    if (verb === 'get') return this.#related(node, attributes);
    if (verb !== 'list' && verb !== 'watch') return noOpinion(`nodes may not ${verb} podcertificaterequests`);
    return selects(attributes, 'spec.nodeName', node)
      ? ALLOW
      : noOpinion('can only list/watch podcertificaterequests with nodeName field selector');
  }

  #pod(node: string, attributes: AuthorizationAttributes): Decision {
    const { verb, subresource } = attributes;
    if (subresource === 'status') return verb === 'update' || verb === 'patch' ? ALLOW : noOpinion('');
    if (subresource === 'eviction') return verb === 'create' ? ALLOW : noOpinion('');
    if (subresource !== '') return noOpinion('');
    if (verb === 'create' || verb === 'delete') return ALLOW;
    if (verb === 'get') return this.#related(node, attributes);
    if (verb !== 'list' && verb !== 'watch') return noOpinion('');
    if (selects(attributes, 'spec.nodeName', node)) return ALLOW;
    if (attributes.name !== '' && attributes.namespace !== '') return this.#related(node, attributes);
    return noOpinion('can only list/watch pods with spec.nodeName field selector');
  }

  rulesFor(user: UserInfo): ReturnType<RuleResolver['rulesFor']> {
    if (nodeNameOf(user) === undefined) return { resourceRules: [], nonResourceRules: [], incomplete: false };
    return {
      resourceRules: [],
      nonResourceRules: [],
      incomplete: true,
      evaluationError: 'node authorizer does not support user rule resolution',
    };
  }
}

function sameReferences(a: Pod, b: Pod): boolean {
  const isShared =
    a.spec === b.spec &&
    a.status?.resourceClaimStatuses === b.status?.resourceClaimStatuses &&
    a.status?.extendedResourceClaimStatus === b.status?.extendedResourceClaimStatus &&
    a.metadata.annotations?.[MIRROR_ANNOTATION] === b.metadata.annotations?.[MIRROR_ANNOTATION];
  if (isShared) return true;
  const before = targetsOf(a);
  const after = targetsOf(b);
  return before.length === after.length && before.every((target, i) => after[i] === target);
}

/**
 * Returns the objects that the pod's node may read because of the pod, without duplicates. A mirror pod only gives
 * access to itself: the node creates it, so its references must not extend the node's permissions.
 */
function targetsOf(pod: Pod): string[] {
  const namespace = pod.metadata.namespace ?? '';
  const targets = [`pods/${namespace}/${pod.metadata.name}`];
  if (pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined) return targets;
  const references = podReferences(pod);
  const account = pod.spec?.serviceAccountName ?? '';
  if (account !== '') targets.push(`serviceaccounts/${namespace}/${account}`);
  const push = (resource: string, names: ReadonlySet<string>): void => {
    for (const name of names) targets.push(`${resource}/${namespace}/${name}`);
  };
  push('secrets', references.secrets);
  push('configmaps', references.configMaps);
  push('persistentvolumeclaims', references.claims);
  push('resourceclaims', references.resourceClaims);
  return targets;
}

/** Returns the secrets that a node needs to mount the volume. Those of the controllers of a CSI driver are not among them. */
function secretsOfVolume(volume: PersistentVolume): string[] {
  const { spec } = volume;
  const namespace = spec?.claimRef?.namespace ?? '';
  if (spec === undefined) return [];
  const references = [
    spec.csi?.nodeExpandSecretRef,
    spec.csi?.nodePublishSecretRef,
    spec.csi?.nodeStageSecretRef,
    spec.cephfs?.secretRef,
    spec.flexVolume?.secretRef,
    spec.iscsi?.secretRef,
    spec.rbd?.secretRef,
    spec.scaleIO?.secretRef,
    spec.storageos?.secretRef,
  ];
  const found = references.flatMap((one) =>
    one === undefined || one === null || one.name === undefined
      ? []
      : [`secrets/${one.namespace ?? namespace}/${one.name}`],
  );
  if (spec.azureFile !== undefined && spec.azureFile !== null) {
    found.push(`secrets/${spec.azureFile.secretNamespace ?? namespace}/${spec.azureFile.secretName}`);
  }
  return found;
}
