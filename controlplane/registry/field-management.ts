/**
 * The interface of the registry to managed fields (`managed-fields.ts`): the owners of fields after a write, and the result of
 * an apply patch. Objects are in the served version of the request.
 */
import type { KubeObject } from '../../api/meta/object.ts';
import type { StructType } from '../../api/schema/schema.ts';
import type { FieldValidation, Patch } from '../model/rest.ts';
import type { ResetFields } from './strategy.ts';

/** Who writes, and through which endpoint. */
export interface ManagedWrite {
  readonly manager: string;
  readonly apiVersion: string;
  /** The subresource through which the object is written, or `''`. */
  readonly subresource: string;
  /** Fields that this endpoint does not write. No manager can own them through it. */
  readonly resetFields: ResetFields;
  /** Whether the entry gets no time. kube-apiserver loses the time of writes through a Scale. */
  readonly isUntimed?: boolean;
}

/** How a subresource shows the ownership of its only field, whose place in the object may be another one. */
export interface ShownOwnership {
  readonly version: string;
  readonly field: string;
}

/** What an apply patch needs beyond what every write needs. */
export interface ApplyWrite extends ManagedWrite {
  readonly target: { readonly namespace: string; readonly name: string };
  readonly validation: FieldValidation;
  /** What conflicts name instead of the version of the owner and the path of the field. */
  readonly shownAs?: ShownOwnership;
  warn(text: string): void;
}

/** Another served version of the kind. If a conversion returns a promise, only the functions that work in turns can use it. */
export interface OtherVersion {
  readonly struct: StructType;
  /** Converts from the version of the request to this one. `object` is not modified. */
  convert(object: KubeObject): KubeObject | Promise<KubeObject>;
  /** Converts to the version of the request. `object` is not modified. */
  restore(object: KubeObject): KubeObject | Promise<KubeObject>;
  /** Whether the conversion keeps undeclared members. The fields of an object that has such members cannot be compared. */
  readonly keepsUndeclared?: boolean;
}

/**
 * Finds the version in which an owner wrote. `undefined` means that its fields are compared as if they were in the version of
 * the request. The owners of an `'unknown'` version are dropped. A `'refused'` version has no conversion, so no owned fields
 * can be compared.
 */
export type VersionLookup = (apiVersion: string) => OtherVersion | 'unknown' | 'refused' | undefined;

/** The managed fields of one kind in one version. */
export interface FieldManagement {
  /**
   * Returns `object` with the managed fields of this write. `live` is the stored object, which is not modified. If ownership
   * cannot be computed, the object loses its managed fields.
   */
  update(live: KubeObject | undefined, object: KubeObject, write: ManagedWrite): KubeObject;
  /** Does the same as `update`, but yields to the event loop between its steps. For large objects. */
  updateInTurns(...args: Parameters<FieldManagement['update']>): KubeObject | Promise<KubeObject>;
  /** Returns the applied object, decoded and with defaults. Throws a 409 for conflicts, a 400 and a 500 for invalid bodies. */
  apply(live: KubeObject | undefined, patch: Extract<Patch, { type: 'apply' }>, write: ApplyWrite): KubeObject;
  /** Does the same as `apply`, but yields to the event loop between its steps. For large objects. */
  applyInTurns(...args: Parameters<FieldManagement['apply']>): KubeObject | Promise<KubeObject>;
}
