/** Returns the metadata errors of an update, in kube-apiserver's number and order. The generic store calls it. */
import type { FieldError } from '../../api/meta/field-error.ts';
import { nameIsPathSegment } from '../../api/meta/names.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { validateMetadata, validateMetadataUpdate } from '../../api/meta/validation.ts';
import type { Endpoint, Store } from './store.ts';

/**
 * kube-apiserver validates the metadata of every update in two ways, and most kinds do so again in their own validation.
 * Each time adds a cause to the Status.
 */
export function changedMetadataErrors(
  store: Store,
  endpoint: Endpoint,
  object: KubeObject,
  old: KubeObject,
): FieldError[] {
  const { builtIn, info } = store;
  const whole = (withKinds: boolean): FieldError[] =>
    validateMetadata(object.metadata, { namespaced: info.namespaced, nameRule: nameIsPathSegment, builtIn: withKinds });
  const update = (withKinds: boolean): FieldError[] =>
    validateMetadataUpdate(object.metadata, old.metadata, { builtIn: withKinds });
  const first = [whole(false), update(builtIn)];
  if (first.every((errors) => errors.length === 0)) return [];
  const repeated = endpoint.strategy.metadataChecks ?? (builtIn && endpoint.subresource === '' ? 'both' : 'update');
  return [
    ...(first[0] ?? []),
    ...update(false),
    ...(repeated === 'whole' ? [] : update(builtIn)),
    ...(repeated === 'update' ? [] : whole(builtIn)),
  ];
}
