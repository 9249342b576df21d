/**
 * Defines the strategy of kinds without their own one, and the parts from which most kinds build theirs. Only the subresource
 * `status` writes the status, and changes of `spec` increment the generation.
 */
import type { KubeObject } from '../../api/meta/object.ts';
import type { StructType } from '../../api/schema/schema.ts';
import { equalFields } from '../../api/schema/semantic-equality.ts';
import type { Strategy, UpdateStrategy } from './strategy.ts';

/** Restores a field that the endpoint must not change. Removes it if the old object does not have it. */
export function restore(object: KubeObject, old: KubeObject, field: string): void {
  if (old[field] === undefined) delete object[field];
  else object[field] = old[field];
}

/** Compares `spec` semantically: an absent value equals an empty one where the type allows it. */
export function specChanged(object: KubeObject, old: KubeObject): boolean {
  return !equalFields(object, old, 'spec');
}

/**
 * The strategy of kinds with `spec` and `status`. A create drops the status and an update keeps it. A changed spec increments
 * the generation.
 */
export const specAndStatus = {
  managesGeneration: true,
  prepareForCreate(object: KubeObject): void {
    delete object['status'];
  },
  prepareForUpdate(object: KubeObject, old: KubeObject): void {
    restore(object, old, 'status');
  },
  changesGeneration: specChanged,
  resetFields: [['status']],
} as const satisfies Strategy;

/** The strategy of the subresource `status`: everything except status and metadata is kept. */
export const statusOnly: UpdateStrategy = {
  prepareForUpdate(object, old) {
    for (const field of new Set([...Object.keys(object), ...Object.keys(old)])) {
      if (field !== 'status' && field !== 'metadata' && field !== 'kind' && field !== 'apiVersion')
        restore(object, old, field);
    }
  },
  resetFields: [['spec']],
};

/** Updates the status like `statusOnly`, but keeps labels as well. */
export const statusWithoutLabels: UpdateStrategy = {
  ...statusOnly,
  prepareForUpdate(object, old, context) {
    statusOnly.prepareForUpdate?.(object, old, context);
    if (old.metadata.labels === undefined) delete object.metadata.labels;
    else object.metadata.labels = old.metadata.labels;
  },
  resetFields: [['spec'], ['metadata', 'labels']],
};

const KEPT_METADATA = ['labels', 'annotations', 'finalizers', 'ownerReferences'] as const;

/** Updates the status, and keeps spec, labels, annotations, finalizers and owners whatever the client sends. */
export const statusWithoutMetadata: UpdateStrategy = {
  prepareForUpdate(object, old) {
    restore(object, old, 'spec');
    const metadata = object.metadata as unknown as Record<string, unknown>;
    for (const field of KEPT_METADATA) {
      if (old.metadata[field] === undefined) delete metadata[field];
      else metadata[field] = old.metadata[field];
    }
  },
  resetFields: [['spec'], ['metadata']],
};

/**
 * Returns the strategy of a kind that has none of its own. The strategy is empty unless the kind has both a spec and a status.
 */
export function genericStrategy(struct: StructType): Strategy {
  const hasStatus = struct.fields.has('status');
  const hasSpec = struct.fields.has('spec');
  if (hasStatus && hasSpec) return { ...specAndStatus, status: statusOnly };
  return {};
}
