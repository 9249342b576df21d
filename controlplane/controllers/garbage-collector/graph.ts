/**
 * Holds the graph of owners: a node for each object, linked by the UIDs of owner references. An owner that no watch has shown
 * is `virtual` in the graph; the garbage collector reads it from the API to find out whether it exists.
 */
import type { KubeObject, OwnerReference } from '../../../api/meta/object.ts';
import type { Resource } from '../../../api/client/client.ts';
import { FOREGROUND_FINALIZER, ORPHAN_FINALIZER } from '../../../api/meta/well-known-labels.ts';

/** An object, or an owner that only references name (`virtual`). Only the graph changes it. */
export interface GraphNode {
  readonly uid: string;
  resource: Resource | undefined;
  apiVersion: string;
  kind: string;
  namespace: string;
  name: string;
  owners: readonly OwnerReference[];
  dependents: Set<GraphNode>;
  /** The object is being deleted. */
  deleting: boolean;
  /** The object is being deleted after its dependents (foreground). */
  deletingDependents: boolean;
  virtual: boolean;
}

/** The objects to check after a change, and the objects whose dependents lose their reference to them. */
export interface GraphWork {
  readonly check: GraphNode[];
  readonly orphan: GraphNode[];
}

const NO_OWNERS: readonly OwnerReference[] = [];
/** The dependents of objects without any. Most objects share this set, which stays empty. */
const NO_DEPENDENTS = new Set<GraphNode>();

function addDependent(owner: GraphNode, dependent: GraphNode): void {
  if (owner.dependents === NO_DEPENDENTS) owner.dependents = new Set();
  owner.dependents.add(dependent);
}

/** All objects of the cluster by UID, and the owners to which they refer. */
export class OwnerGraph {
  readonly #nodes = new Map<string, GraphNode>();

  get(uid: string): GraphNode | undefined {
    return this.#nodes.get(uid);
  }

  get size(): number {
    return this.#nodes.size;
  }

  /** Adds or updates an object. */
  observe(resource: Resource, object: KubeObject): GraphWork {
    const work: GraphWork = { check: [], orphan: [] };
    const {
      uid = '',
      namespace = '',
      name = '',
      ownerReferences = NO_OWNERS,
      finalizers = [],
      deletionTimestamp,
    } = object.metadata;
    let node = this.#nodes.get(uid);
    if (node === undefined) {
      node = newNode(uid);
      this.#nodes.set(uid, node);
    } else if (node.virtual && (node.namespace !== namespace || node.name !== name || node.kind !== resource.kind)) {
      // Dependents that refer to this UID with another kind, namespace or name are checked again.
      for (const dependent of node.dependents) if (!refersTo(dependent, resource, object)) work.check.push(dependent);
    }
    Object.assign(node, {
      resource,
      apiVersion: object.apiVersion ?? '',
      kind: resource.kind,
      namespace,
      name,
      virtual: false,
    });
    this.#relink(node, ownerReferences, work);
    const wasDeleting = node.deleting;
    node.deleting = deletionTimestamp !== undefined;
    if (node.deleting && finalizers.includes(ORPHAN_FINALIZER)) work.orphan.push(node);
    if (node.deleting && finalizers.includes(FOREGROUND_FINALIZER)) {
      node.deletingDependents = true;
      work.check.push(...node.dependents, node);
    } else if (!wasDeleting && ownerReferences.length > 0) {
      // An owner that exists needs no check; its deletion is an event.
      if (!ownerReferences.every((reference) => this.#isSolid(reference, node))) work.check.push(node);
    }
    return work;
  }

  /** Removes a deleted object. */
  remove(uid: string): GraphWork {
    const work: GraphWork = { check: [], orphan: [] };
    const node = this.#nodes.get(uid);
    if (node === undefined) return work;
    this.#nodes.delete(uid);
    work.check.push(...node.dependents);
    for (const { uid: ownerUid } of node.owners) {
      const owner = this.#nodes.get(ownerUid);
      if (owner === undefined) continue;
      owner.dependents.delete(node);
      if (owner.deletingDependents) work.check.push(owner);
      if (owner.virtual && owner.dependents.size === 0) this.#nodes.delete(ownerUid);
    }
    return work;
  }

  #relink(node: GraphNode, owners: readonly OwnerReference[], work: GraphWork): void {
    if (owners.length === 0 && node.owners.length === 0) return;
    const formerOwners = new Map(node.owners.map((reference) => [reference.uid, reference]));
    for (const reference of owners) {
      const former = formerOwners.get(reference.uid);
      formerOwners.delete(reference.uid);
      let owner = this.#nodes.get(reference.uid);
      if (owner === undefined) {
        owner = newNode(reference.uid);
        Object.assign(owner, {
          apiVersion: reference.apiVersion,
          kind: reference.kind,
          name: reference.name,
          namespace: node.namespace,
        });
        this.#nodes.set(reference.uid, owner);
        work.check.push(node);
      }
      addDependent(owner, node);
      // An owner that waits for the deletion of this dependent is checked again.
      if (former?.blockOwnerDeletion === true && reference.blockOwnerDeletion !== true && owner.deletingDependents)
        work.check.push(owner);
    }
    for (const { uid } of formerOwners.values()) {
      const owner = this.#nodes.get(uid);
      if (owner === undefined) continue;
      owner.dependents.delete(node);
      if (owner.deletingDependents) work.check.push(owner);
      if (owner.virtual && owner.dependents.size === 0) this.#nodes.delete(uid);
    }
    node.owners = owners;
  }

  /** Whether all owners are known to exist and none is being deleted after its dependents, so that nothing is to be done. */
  isHeld(node: GraphNode): boolean {
    return node.owners.every((reference) => this.#isSolid(reference, node));
  }

  #isSolid(reference: OwnerReference, dependent: GraphNode): boolean {
    const owner = this.#nodes.get(reference.uid);
    return (
      owner !== undefined &&
      !owner.virtual &&
      !owner.deletingDependents &&
      matchesReference(owner, reference, dependent)
    );
  }
}

/** Whether the owner matches the reference. A namespaced owner must be in the namespace of the dependent. */
export function matchesReference(owner: GraphNode, reference: OwnerReference, dependent: GraphNode): boolean {
  const sameGroup = groupOf(owner.apiVersion) === groupOf(reference.apiVersion);
  return sameGroup && owner.kind === reference.kind && owner.name === reference.name && canOwn(owner, dependent);
}

/** Whether the owner is where it can own the dependent: in its namespace, or in none. */
export function canOwn(owner: GraphNode, dependent: GraphNode): boolean {
  return owner.namespace === '' || owner.namespace === dependent.namespace;
}

function refersTo(dependent: GraphNode, resource: Resource, object: KubeObject): boolean {
  const reference = dependent.owners.find(({ uid }) => uid === object.metadata.uid);
  const { namespace = '', name } = object.metadata;
  return (
    reference?.kind === resource.kind &&
    reference.name === name &&
    (namespace === '' || namespace === dependent.namespace)
  );
}

/** Returns the group of an `apiVersion`; empty for the core group. */
export function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf('/');
  return slash < 0 ? '' : apiVersion.slice(0, slash);
}

function newNode(uid: string): GraphNode {
  return {
    uid,
    resource: undefined,
    apiVersion: '',
    kind: '',
    namespace: '',
    name: '',
    owners: NO_OWNERS,
    dependents: NO_DEPENDENTS,
    deleting: false,
    deletingDependents: false,
    virtual: true,
  };
}

/** Whether an owner exists (`solid`), does not (`dangling`), or waits for its dependents to be deleted (`waiting`). */
export type Verdict = 'solid' | 'dangling' | 'waiting';

/** What happens to a dependent. */
type Decision =
  | { readonly kind: 'keep' }
  /** Some owners remain: the references to the others are removed. */
  | { readonly kind: 'drop-references'; readonly uids: ReadonlySet<string> }
  | { readonly kind: 'delete'; readonly policy: 'Foreground' | 'Background' | 'Orphan'; readonly unblock: boolean };

/** Decides what happens to an object whose owners are checked. */
export function decide(options: {
  readonly owners: readonly { readonly uid: string; readonly verdict: Verdict }[];
  readonly finalizers: readonly string[];
  readonly hasDependents: boolean;
  readonly hasDependentsBeingDeletedInForeground: boolean;
}): Decision {
  const uidsWith = (verdict: Verdict): string[] =>
    options.owners.filter((owner) => owner.verdict === verdict).map(({ uid }) => uid);
  const unneededOwners = [...uidsWith('dangling'), ...uidsWith('waiting')];
  if (options.owners.length === 0 || unneededOwners.length === 0) return { kind: 'keep' };
  if (uidsWith('solid').length > 0) return { kind: 'drop-references', uids: new Set(unneededOwners) };
  if (uidsWith('waiting').length > 0 && options.hasDependents) {
    // Breaks a cycle of owners that all wait for each other.
    return { kind: 'delete', policy: 'Foreground', unblock: options.hasDependentsBeingDeletedInForeground };
  }
  if (options.finalizers.includes(ORPHAN_FINALIZER)) return { kind: 'delete', policy: 'Orphan', unblock: false };
  if (options.finalizers.includes(FOREGROUND_FINALIZER))
    return { kind: 'delete', policy: 'Foreground', unblock: false };
  return { kind: 'delete', policy: 'Background', unblock: false };
}
