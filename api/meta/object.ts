/**
 * Defines the fields that all API objects share, and the JSON values of which objects consist.
 *
 * Objects are plain JSON values in their wire format (times and quantities are strings). Objects from a cache are shared and
 * must never be mutated: copy them with `structuredClone` first.
 */

type JsonPrimitive = string | number | bigint | boolean | null;
/** A JSON value. A 64-bit integer that a double cannot represent is a `bigint`, which every codec preserves. */
export type JsonValue = JsonPrimitive | JsonValue[] | JsonObject;
export interface JsonObject {
  [key: string]: JsonValue | undefined;
}

/** An owner, whose deletion the garbage collector follows. */
export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
}

/** The fields that one manager has set. */
export interface ManagedFieldsEntry {
  manager?: string;
  operation?: string;
  apiVersion?: string;
  time?: string;
  fieldsType?: string;
  fieldsV1?: JsonObject;
  subresource?: string;
}

/** The metadata of an object. Absent fields are omitted. */
export interface ObjectMeta {
  name?: string;
  generateName?: string;
  namespace?: string;
  selfLink?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string | null;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  finalizers?: string[];
  managedFields?: ManagedFieldsEntry[];
}

/**
 * Any API object. Kinds add `spec`, `status`, `data` and other fields. Code that reads them casts once to the type of the
 * kind in `kinds/kinds.ts`.
 */
export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
  [field: string]: unknown;
}

interface ListMeta {
  resourceVersion?: string;
  continue?: string;
  remainingItemCount?: number;
  selfLink?: string;
}

/** A list with the resource version at which it was read. */
export interface KubeList<T = KubeObject> {
  apiVersion?: string;
  kind?: string;
  metadata: ListMeta;
  items: T[];
}

/** An API version. The group of core resources is ''. */
export interface GroupVersion {
  readonly group: string;
  readonly version: string;
}

/** A kind in a version. */
export interface GroupVersionKind extends GroupVersion {
  readonly kind: string;
}

/** A resource in a version. */
export interface GroupVersionResource extends GroupVersion {
  readonly resource: string;
}

/** Returns `v1` or `apps/v1`. */
export function apiVersionOf(gv: GroupVersion): string {
  return gv.group === '' ? gv.version : `${gv.group}/${gv.version}`;
}

/** Parses an apiVersion. Returns `undefined` if it contains more than one slash. */
export function parseApiVersion(apiVersion: string): GroupVersion | undefined {
  const parts = apiVersion.split('/');
  if (parts.length === 1) return { group: '', version: apiVersion };
  if (parts.length !== 2) return undefined;
  return { group: parts[0] ?? '', version: parts[1] ?? '' };
}
