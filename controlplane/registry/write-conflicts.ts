/** Builds the errors of writes that meet an existing object, or another object than the one that the request names. */
import type { KubeObject } from '../../api/meta/object.ts';
import { newAlreadyExists, newConflict, newStatusError, type StatusError } from '../../api/meta/status-error.ts';
import { builtInPath } from '../storage/etcd/keys.ts';
import { subjectOf, type Store } from './store.ts';
import type { WriteTarget } from './write-admission.ts';

/**
 * Returns a 409. Its message reports whether the existing object is being deleted. A body with a `generateName` gets
 * Retry-After, because the next attempt may generate a free name; as in kube-apiserver, also if the body has a name as well.
 */
export function alreadyExists(store: Store, namespace: string, { metadata }: KubeObject): Error {
  const { name = '', generateName = '' } = metadata;
  const error = generateName === '' ? newAlreadyExists(subjectOf(store), name) : nameNotGenerated(store, name);
  const existing = store.cache.get(namespace, name);
  if (existing?.object.metadata.deletionTimestamp === undefined) return error;
  const { message, details } = error.status;
  return newStatusError(
    409,
    'AlreadyExists',
    `object is being deleted: ${message ?? ''}`,
    details === undefined ? {} : { details },
  );
}

function nameNotGenerated(store: Store, name: string): StatusError {
  const error = newAlreadyExists(subjectOf(store), name);
  const message = `${error.message}, the server was not able to generate a unique name for the object`;
  return newStatusError(409, 'AlreadyExists', message, { details: { ...error.status.details, retryAfterSeconds: 1 } });
}

/** Returns the error of a patch with a UID whose object does not exist. Such a patch never creates the object. */
export function uidWithoutObject(store: Store, name: string, uid: string): Error {
  const text = `uid mismatch: the provided object specified uid ${uid}, and no existing object was found`;
  return newConflict(subjectOf(store), name, text);
}

/**
 * Creates a 409 for a body whose UID is not that of the stored object. It names the key of the object in kube-apiserver's etcd.
 */
export function uidConflict(
  store: Store,
  target: Pick<WriteTarget, 'namespace' | 'name' | 'options'>,
  values: { readonly wanted: string; readonly found: string },
): Error {
  return preconditionConflict(store, target, { ...values, field: 'UID' });
}

/** Returns the conflict of a precondition of a write, with the error of kube-apiserver's storage. */
export function preconditionConflict(
  store: Store,
  { namespace, name, options }: Pick<WriteTarget, 'namespace' | 'name' | 'options'>,
  {
    field,
    wanted,
    found,
  }: { readonly field: 'UID' | 'ResourceVersion'; readonly wanted: string; readonly found: string },
): Error {
  const path = namespace === '' ? name : `${namespace}/${name}`;
  const { group, resource } = store.info;
  const prefix = store.builtIn ? builtInPath(group, resource) : `${group}/${resource}`;
  // A dry run does not reach etcd, which adds its prefix.
  const root = options.dryRun ? '' : '/registry';
  return newConflict(
    subjectOf(store),
    name,
    `StorageError: invalid object, Code: 4, Key: ${root}/${prefix}/${path}, ResourceVersion: 0, ` +
      `AdditionalErrorMsg: Precondition failed: ${field} in precondition: ${wanted}, ${field} in object meta: ${found}`,
  );
}
