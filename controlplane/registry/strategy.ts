/**
 * The strategy of a kind. The generic store (`store-write.ts`) calls its functions in a fixed order, and implements everything
 * that all kinds share (names, UID, resourceVersion, finalizers, admission, managed fields).
 *
 * Functions get objects in the stored version, already decoded and defaulted by the schema table. Functions whose name says so
 * may modify `object`; `old` is shared with the cache and is never modified. Validation returns all errors and never throws. If
 * a kind omits a member, the member's comment describes the default.
 */
import type { FieldError } from '../../api/meta/field-error.ts';
import type { NameRule } from '../../api/meta/names.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { SideWrite } from '../storage/storage.ts';
import type { RequestContext } from '../model/rest.ts';

/** The parts of the request that a strategy can use. */
export interface StrategyContext {
  readonly request: RequestContext;
  /** The resource in the version that was asked for; objects are in the stored one all the same. */
  readonly info: ResourceInfo;
  /** `''` for objects of the cluster. */
  readonly namespace: string;
  readonly dryRun: boolean;
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
}

/**
 * A reservation for an object that is not validated yet (addresses, ports). It is committed or reverted with the outcome of the
 * write.
 */
export interface Reservation {
  commit(): void;
  revert(): void;
}

/** Paths that a caller may not own through this endpoint, as arrays of names: `[['status']]`. */
export type ResetFields = readonly (readonly string[])[];

/** A page's column definition and cells: see `columns/`. */
export interface TableColumn {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'number' | 'boolean' | 'date';
  readonly format: string;
  /** A text, or the field whose documentation it is. */
  readonly description: string | { readonly struct: string; readonly field: string };
  /** 0 is always shown, 1 with `-o wide`. */
  readonly priority: number;
}

/** A cell that shows how long ago something was; its text is made when a Table is asked for. */
export interface Elapsed {
  readonly sinceMs: number;
  readonly before?: string;
  readonly after?: string;
}

export type Cell = string | number | bigint | boolean | null | Elapsed;

export interface TableRowCondition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason: string;
  readonly message: string;
}

export interface TableColumns {
  readonly columns: readonly TableColumn[];
  /** One cell a column. */
  cells(object: KubeObject): Cell[];
  /** What holds for the row as a whole (`Completed`); absent: nothing. */
  conditions?(object: KubeObject): readonly TableRowCondition[];
}

export interface GracefulDeletion {
  /**
   * Seconds that the object stays after DELETE (0: gone at once), from what was asked; may change `object` (pods: a
   * grace period of 0 for pods without a node).
   */
  gracePeriodSeconds(object: KubeObject, requested: number | undefined): number;
}

/** How a resource, its `status`, or another subresource of the same object is changed. */
export interface UpdateStrategy<Object extends KubeObject = KubeObject> {
  /** Resets what this endpoint must not change. The generation has been copied from `old` already. */
  prepareForUpdate?(object: Object, old: Object, context: StrategyContext): void;
  /** Whether the change increments the generation; absent for kinds without a generation. Called after `prepareForUpdate`. */
  changesGeneration?(object: Object, old: Object): boolean;
  /**
   * How the kind validates metadata again on an update, which repeats causes: as that of an update, as that of a whole
   * object, or as both. Absent: `both`, and `update` for subresources and custom resources.
   */
  readonly metadataChecks?: 'update' | 'whole' | 'both';
  /** Object metadata has been validated already. A promise where others get the event loop meanwhile. */
  validateUpdate?(object: Object, old: Object, context: StrategyContext): FieldError[] | Promise<FieldError[]>;
  /**
   * Validates in the version of the request, after all other validation, on creates (`old` is undefined) and updates. May call
   * a webhook.
   */
  validateServed?(object: Object, old: Object | undefined): Promise<FieldError[]>;
  warningsOnUpdate?(object: Object, old: Object, context: StrategyContext): string[];
  readonly resetFields?: ResetFields;
}

export interface Strategy<Object extends KubeObject = KubeObject> extends UpdateStrategy<Object> {
  /** Sets defaults that the schema table cannot express. Runs after decoding, for creates, updates and patches. */
  applyDefaults?(object: Object): void;

  // --- names
  /** How objects are named. Absent: `nameIsSubdomain`. */
  readonly nameRule?: NameRule;

  // --- create
  /** Resets what a client may not set. The name is drawn already. */
  prepareForCreate?(object: Object, context: StrategyContext): void;
  /** Reserves addresses, ports, …; its errors come before those of validation. `old` is set on updates. */
  reserve?(object: Object, old: Object | undefined, context: StrategyContext): Promise<Reservation | undefined>;
  /**
   * Operations on other objects in the same transaction, for objects that exist only together with this one. `object` is
   * undefined on deletion, `old` on creation.
   */
  alongside?(object: Object | undefined, old: Object | undefined, nowMs: number): readonly SideWrite[];
  validateCreate?(object: Object, context: StrategyContext): FieldError[] | Promise<FieldError[]>;
  warningsOnCreate?(object: Object, context: StrategyContext): string[];
  /** Converts a valid object to its stored form. */
  canonicalise?(object: Object): void;
  /** Generation starts at 1 and is managed; absent: what the client sent is kept. */
  readonly managesGeneration?: boolean;

  // --- update
  /** PUT of a name that is not there creates it. Absent: 404. */
  readonly allowCreateOnUpdate?: boolean;
  /** PUT without a resourceVersion is an error. Absent: it overwrites the stored object. */
  readonly requiresResourceVersion?: boolean;

  // --- delete
  readonly gracefulDeletion?: GracefulDeletion;
  /** Changes the object when it is marked as terminating (namespaces: the phase). */
  markTerminating?(object: Object): void;
  /** Finalizers beside `metadata.finalizers` that keep a terminating object (namespaces: `spec.finalizers`). */
  remainingFinalizers?(object: Object): number;
  /** The `propagationPolicy` of requests without one. Absent: `Background`. */
  readonly defaultPropagation?: 'Orphan' | 'Background' | 'Unsupported';
  /** A warning for a DELETE without a policy for the dependents. */
  readonly unsaidPropagation?: string;
  /** DELETE answers with the object that is gone instead of a Status. */
  readonly returnsDeleted?: boolean;
  /** After the object is gone from storage (addresses are given back). Must not throw. */
  afterDelete?(object: Object): void;
  /** Checks before anything is marked; throws a `StatusError`. */
  checkDelete?(object: Object, context: StrategyContext): void;

  /** Milliseconds until the object is removed by itself (events). */
  timeToLiveMs?(object: Object): number | undefined;

  // --- reads
  /** Values of the supported field selectors beside `metadata.name` and `metadata.namespace`. */
  readonly selectableFields?: Readonly<Record<string, (object: Object) => string>>;
  /** The words for any other field (`field label not supported: x`). */
  unsupportedField?(field: string): string;
  /** Of `selectableFields`, those that are asked for often (`spec.nodeName`). */
  readonly indexedFields?: readonly string[];
  readonly columns?: TableColumns;

  // --- subresources
  /** Absent: `spec` and everything but `status` and `metadata` are kept as they were. */
  readonly status?: UpdateStrategy<Object>;
  /** Others that write the same object (`ephemeralcontainers`, `approval`, …), by name. */
  readonly subresources?: Readonly<Record<string, UpdateStrategy<Object>>>;
}

/** Between a served version and the one that is stored; both get an object of their own and may change it. */
export interface Conversion {
  toStored(object: KubeObject): KubeObject;
  fromStored(object: KubeObject): KubeObject;
  /** The stored object is what `fromStored` would give, so nothing needs to be made. Absent: never. */
  isServed?(object: KubeObject): boolean;
  /** Conversions that others are asked for (webhooks): takes the place of `toStored` and `fromStored`. */
  convertAll?(objects: readonly KubeObject[], to: 'stored' | 'served'): Promise<readonly KubeObject[]>;
  /** Defaults of the served version beyond the schema's; those of the strategy apply after `toStored`. */
  readonly applyDefaults?: (object: KubeObject) => void;
  /** Fields of the served version that can be selected by, and what they are called in the stored one. Absent: the same. */
  readonly fieldNames?: Readonly<Record<string, string>>;
}

/** A kind's strategy under the names it is stored by; rows stand in `kinds.ts`. */
export interface KindRow {
  /** `''` for the core group. */
  readonly group: string;
  readonly resource: string;
  readonly strategy: Strategy;
  /** By version, for those that are served beside the stored one and differ in more than `apiVersion`. */
  readonly conversions?: Readonly<Record<string, Conversion>>;
}

/** A row from a strategy that reads its kind through a type of its own. */
export function kindRow<Object extends KubeObject>(
  group: string,
  resource: string,
  strategy: Strategy<Object>,
  conversions?: Readonly<Record<string, Conversion>>,
): KindRow {
  // Objects are decoded by the schema of the kind before a strategy sees them, so they have its shape.
  const row = { group, resource, strategy: strategy as unknown as Strategy };
  return conversions === undefined ? row : { ...row, conversions };
}
