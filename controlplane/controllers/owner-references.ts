/**
 * Finds the controller of an object. Also claims objects: a controller adopts objects that match its selector and have no
 * controller, and releases its own objects that no longer match.
 */
import { type KubeObject, type OwnerReference, apiVersionOf } from '../../api/meta/object.ts';
import type { Selector } from '../../api/meta/selector.ts';
import { isInvalid, isNotFound } from '../../api/meta/status-error.ts';
import type { Informer } from '../../api/client/informer.ts';
import type { Resource } from '../../api/client/client.ts';
import type { ResourceOf } from '../../api/client/resources.ts';
import type { TypedClient } from '../../api/client/typed-client.ts';

/** Returns the one owner that manages the object, or undefined. */
export function controllerOf(object: KubeObject): OwnerReference | undefined {
  return object.metadata.ownerReferences?.find((reference) => reference.controller === true);
}

/** Returns the reference by which `owner` manages an object. A foreground deletion of the owner waits for the object. */
export function controllerReference(owner: KubeObject, resource: Resource): OwnerReference {
  return {
    apiVersion: apiVersionOf(resource),
    kind: resource.kind,
    name: owner.metadata.name ?? '',
    uid: owner.metadata.uid ?? '',
    controller: true,
    blockOwnerDeletion: true,
  };
}

/** Returns the key of the owner in its namespace, if the object's controller is of that resource. */
export function ownerKey(object: KubeObject, resource: Resource): string | undefined {
  const reference = controllerOf(object);
  if (reference?.kind !== resource.kind || reference.apiVersion.split('/')[0] !== apiVersionOf(resource).split('/')[0])
    return undefined;
  return `${object.metadata.namespace ?? ''}/${reference.name}`;
}

const BY_CONTROLLER = 'controller-uid';
const ORPHANS = 'orphans-of-namespace';

/**
 * Indexes objects by namespace and UID of their controller, and those without one by namespace. The namespace is part of the
 * key, because users can write the UID of another namespace's controller into an owner reference.
 */
export function indexByController<T extends KubeObject>(informer: Informer<T>): void {
  informer.addIndex(BY_CONTROLLER, (object) => {
    const uid = controllerOf(object)?.uid;
    return uid === undefined ? [] : [controllerKey(object.metadata.namespace, uid)];
  });
  informer.addIndex(ORPHANS, (object) => (controllerOf(object) === undefined ? [object.metadata.namespace ?? ''] : []));
}

const controllerKey = (namespace = '', uid = ''): string => `${namespace}/${uid}`;

/** Returns the objects that `owner` manages, from the index. */
export function ownedBy<T>(informer: Informer<T>, { metadata }: KubeObject): T[] {
  return informer.byIndex(BY_CONTROLLER, controllerKey(metadata.namespace, metadata.uid));
}

/** Returns the objects of the informer that have the same controller as the object; `undefined` if it has no controller. */
export function withSameController<T>(informer: Informer<T>, object: KubeObject): T[] | undefined {
  const uid = controllerOf(object)?.uid;
  if (uid === undefined) return undefined;
  return informer.byIndex(BY_CONTROLLER, controllerKey(object.metadata.namespace, uid));
}

function orphansIn<T>(informer: Informer<T>, namespace: string): T[] {
  return informer.byIndex(ORPHANS, namespace);
}

/** Which objects a controller may adopt or release, and with which client. */
interface Claim<T extends KubeObject, Owner extends KubeObject> {
  readonly client: TypedClient;
  readonly owner: Owner;
  readonly ownerResource: ResourceOf<Owner>;
  readonly resource: ResourceOf<T>;
  readonly informer: Informer<T>;
  readonly selector: Selector;
  /**
   * Whether a selected object may belong to the owner. The others are neither adopted nor released, and are not in the
   * result.
   */
  readonly matches?: (object: T) => boolean;
  /** Receives the server's response to an adoption. */
  readonly onWritten?: (object: T) => void;
  /** The finalizers that an adopted object gets. */
  readonly finalizers?: readonly string[];
}

/**
 * Returns the objects of the owner after adoptions and releases. An owner that is being deleted neither adopts nor releases.
 * Rejects before an adoption if the API server no longer has the owner or deletes it.
 */
export async function claim<T extends KubeObject, Owner extends KubeObject>(options: Claim<T, Owner>): Promise<T[]> {
  const { owner, informer, selector, matches = () => true } = options;
  const isDeleting = owner.metadata.deletionTimestamp !== undefined;
  const claimed: T[] = [];
  for (const object of ownedBy(informer, owner)) {
    if (selector.matches(object.metadata.labels)) {
      if (matches(object)) claimed.push(object);
    } else if (!isDeleting) await release(options, object);
  }
  if (isDeleting) return claimed;
  let isChecked = false;
  for (const object of orphansIn(informer, owner.metadata.namespace ?? '')) {
    if (object.metadata.deletionTimestamp !== undefined) continue;
    if (!selector.matches(object.metadata.labels) || !matches(object)) continue;
    if (!isChecked) await checkAlive(options);
    isChecked = true;
    const adopted = await adopt(options, object);
    if (adopted !== undefined) claimed.push(adopted);
  }
  return claimed;
}

/** Rejects if the API server no longer has the owner or is deleting it, which the informer may not show yet. */
async function checkAlive<T extends KubeObject, Owner extends KubeObject>({
  client,
  owner,
  ownerResource,
}: Claim<T, Owner>): Promise<void> {
  const current: KubeObject = await client.get(
    ownerResource,
    owner.metadata.namespace ?? '',
    owner.metadata.name ?? '',
  );
  if (current.metadata.uid !== owner.metadata.uid) {
    throw new Error(
      `original ${ownerResource.kind} ${owner.metadata.namespace}/${owner.metadata.name} is gone: got uid ${current.metadata.uid}, wanted ${owner.metadata.uid}`,
    );
  }
  if (current.metadata.deletionTimestamp !== undefined) {
    throw new Error(
      `${owner.metadata.namespace}/${owner.metadata.name} has just been deleted at ${current.metadata.deletionTimestamp}`,
    );
  }
}

async function adopt<T extends KubeObject, Owner extends KubeObject>(
  options: Claim<T, Owner>,
  object: T,
): Promise<T | undefined> {
  const { client, owner, ownerResource, resource, finalizers } = options;
  const metadata = {
    ownerReferences: [controllerReference(owner, ownerResource)],
    uid: object.metadata.uid,
    ...(finalizers === undefined ? {} : { finalizers }),
  };
  try {
    const adopted = await client.patch(resource, object.metadata.namespace ?? '', object.metadata.name ?? '', {
      type: 'strategic',
      body: { metadata },
    });
    options.onWritten?.(adopted);
    return adopted;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}

async function release<T extends KubeObject, Owner extends KubeObject>(
  options: Claim<T, Owner>,
  object: T,
): Promise<void> {
  const { client, owner, resource } = options;
  const metadata = { ownerReferences: [{ $patch: 'delete', uid: owner.metadata.uid }], uid: object.metadata.uid };
  try {
    await client.patch(resource, object.metadata.namespace ?? '', object.metadata.name ?? '', {
      type: 'strategic',
      body: {
        metadata,
      },
    });
  } catch (error) {
    // The object is deleted, or another object of that name exists.
    if (!isNotFound(error) && !isInvalid(error)) throw error;
  }
}
