/**
 * Defines the strategy of a kind.
 *
 * Functions get objects in the stored version, already decoded and defaulted by the schema table. Those of a custom resource
 * that a webhook converts are in the version of the request. `applyDefaults`, `reserve`, `canonicalise`, `markTerminating`,
 * `gracePeriodSeconds` and those that prepare may modify `object`. `old` is shared with the cache and is never modified.
 * Validation returns its errors and does not throw them. The comment of a member describes the default for kinds that omit it.
 */
import type { FieldError } from '../../api/meta/field-error.ts';
import type { NameRule } from '../../api/meta/names.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { TransactionWrite } from '../storage/storage.ts';
import type { RequestContext } from '../model/rest.ts';

/** The parts of the request that a strategy can use. */
export interface StrategyContext {
  readonly request: RequestContext;
  /** The resource in the version of the request, which need not be that of the objects. */
  readonly info: ResourceInfo;
  /** Empty for cluster-scoped objects. */
  readonly namespace: string;
  readonly dryRun: boolean;
  /** The wall-clock time in milliseconds. */
  readonly nowMs: number;
  /** The errors of the object's metadata, which the store reports itself. Only validation gets them. */
  readonly metadataErrors?: readonly FieldError[];
}

/**
 * A reservation for an object that is not validated yet (addresses, ports). It is committed or reverted with the outcome of the
 * write.
 */
export interface Reservation {
  commit(): void;
  revert(): void;
}

/** A write whose transaction may contain operations on other objects. */
interface TransactionChange<Object extends KubeObject = KubeObject> {
  /** The object after the write; `undefined` on deletion. */
  readonly object: Object | undefined;
  /** The object before the write; `undefined` on creation. */
  readonly old: Object | undefined;
  readonly nowMs: number;
}

/** The paths that a client cannot own through this endpoint, as arrays of names: `[['status']]`. */
export type ResetFields = readonly (readonly string[])[];

/** The definition of a column. See `columns/`. */
export interface TableColumn {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'number' | 'boolean' | 'date';
  readonly format: string;
  /** A text, or the field whose description it is. */
  readonly description: string | { readonly struct: string; readonly field: string };
  /** Columns of priority 0 are always shown, and those of priority 1 only with `-o wide`. */
  readonly priority: number;
}

/** A cell that shows how long ago something happened. Its text is computed when a Table is requested. */
export interface Elapsed {
  readonly sinceMs: number;
  /** The text before the duration. */
  readonly before?: string;
  /** The text after the duration. */
  readonly after?: string;
}

/** A value of a Table row. Elapsed times become text when the row is sent. */
export type Cell = string | number | bigint | boolean | null | Elapsed;

/** A condition of a whole row, such as `Completed` of a pod that has terminated. */
export interface TableRowCondition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason: string;
  readonly message: string;
}

/** The columns of a kind's Table, and the cells of its rows. */
export interface TableColumns {
  readonly columns: readonly TableColumn[];
  /** Returns a cell for each column. */
  cells(object: KubeObject): Cell[];
  conditions?(object: KubeObject): readonly TableRowCondition[];
  /** Compares two objects for the order of their rows. By default, rows have the order of the list. */
  rowOrder?(a: KubeObject, b: KubeObject): number;
}

interface GracefulDeletion {
  /**
   * Returns the seconds that the object stays after a DELETE; 0 removes it at once. `requested` is the value of the request.
   * May modify `object`.
   */
  gracePeriodSeconds(object: KubeObject, requested: number | undefined): number;
}

/**
 * A validation of metadata: as a whole object, or compared with the stored object. The plain forms accept finalizers of any
 * name: they are those of apimachinery, where the others add the rules of the core group.
 */
export type MetadataCheck = 'update' | 'whole' | 'plainUpdate' | 'plainWhole';

/** What differs between kinds in updates of an endpoint: the object itself or a subresource. */
export interface UpdateStrategy<Object extends KubeObject = KubeObject> {
  /** Resets the fields that this endpoint must not change. The generation has already been copied from `old`. */
  prepareForUpdate?(object: Object, old: Object, context: StrategyContext): void;
  /** Whether the change increments the generation. Absent for kinds without a generation. Called after `prepareForUpdate`. */
  changesGeneration?(object: Object, old: Object): boolean;
  /**
   * How the kind itself validates metadata on an update, in this order, after the generic store has. The default is
   * `['update', 'whole']`, and `['update']` for subresources, custom resources and their definitions.
   */
  readonly metadataChecks?: readonly MetadataCheck[];
  /** The group in which the kind does not validate metadata itself, if it is served in two. */
  readonly uncheckedGroup?: string;
  /** Validates a change. The metadata has already been validated. Returns a promise if it yields to the event loop. */
  validateUpdate?(object: Object, old: Object, context: StrategyContext): FieldError[] | Promise<FieldError[]>;
  warningsOnUpdate?(object: Object, old: Object, context: StrategyContext): string[];
  readonly resetFields?: ResetFields;
}

/** What differs between kinds. Every member may be absent. */
export interface Strategy<Object extends KubeObject = KubeObject> extends UpdateStrategy<Object> {
  /** Sets defaults that the schema table cannot express. Runs after decoding, for creates, updates and patches. */
  applyDefaults?(object: Object): void;

  /** The rule for names. The default is `nameIsSubdomain`. */
  readonly nameRule?: NameRule;
  /** The rule for the name of an object whose other fields decide it. It replaces `nameRule`. */
  nameRuleOf?(object: Object): NameRule;
  /** What `generateName` is instead of a validated prefix: one that is not validated, or the whole name. */
  readonly generateName?: 'unchecked' | 'name';

  /** Resets the fields that a client must not set. The name has already been generated. */
  prepareForCreate?(object: Object, context: StrategyContext): void;
  /**
   * Reserves addresses, ports and the like. Its errors come before those of validation. `old` is set on updates. Resolves to
   * `undefined` if it reserves nothing.
   */
  reserve?(object: Object, old: Object | undefined, context: StrategyContext): Promise<Reservation | undefined>;
  /**
   * Calls `write` with the operations of the same transaction on other objects, which exist only together with this one.
   * StorageError `occupied` means that another server was faster, and that the object has to be reserved again.
   */
  inTransaction?<T>(
    change: TransactionChange<Object>,
    write: (operations: readonly TransactionWrite[]) => Promise<T>,
  ): Promise<T>;
  validateCreate?(object: Object, context: StrategyContext): FieldError[] | Promise<FieldError[]>;
  warningsOnCreate?(object: Object, context: StrategyContext): string[];
  /** Converts a valid object to its stored form. */
  canonicalise?(object: Object): void;
  /** Whether the server manages the generation, beginning with 1. By default, the value of the client is kept. */
  readonly managesGeneration?: boolean;

  /** Whether a PUT creates an object that does not exist. The default is a 404. */
  readonly allowCreateOnUpdate?: boolean;
  /** Whether a PUT without a resourceVersion is an error. By default, it overwrites the stored object. */
  readonly requiresResourceVersion?: boolean;

  readonly gracefulDeletion?: GracefulDeletion;
  /** Modifies the object when it is marked as terminating (namespaces: the phase). */
  markTerminating?(object: Object): void;
  /** Returns the number of finalizers besides `metadata.finalizers` that keep a terminating object. */
  remainingFinalizers?(object: Object): number;
  /** The `propagationPolicy` of requests without one. The default is `Background`. */
  readonly defaultPropagation?: 'Orphan' | 'Background' | 'Unsupported';
  /** The warning for a DELETE without a policy for the dependents. */
  readonly defaultPropagationWarning?: string;
  /** Whether the response to a DELETE is the removed object instead of a Status. */
  readonly returnsDeleted?: boolean;
  /** Checks the deletion before anything is marked. Throws a `StatusError`. */
  checkDelete?(object: Object, context: StrategyContext): void;

  /** Returns the milliseconds until the object expires (events), or `undefined` if it does not expire. */
  timeToLiveMs?(object: Object): number | undefined;

  /** The values of the supported field selectors besides `metadata.name` and `metadata.namespace`. */
  readonly selectableFields?: Readonly<Record<string, (object: Object) => string>>;
  /** Returns the message for any other field (`field label not supported: x`). */
  unsupportedField?(field: string): string;
  /** The fields of `selectableFields` that are selected often and have an index (`spec.nodeName`). */
  readonly indexedFields?: readonly string[];
  readonly columns?: TableColumns;

  /** The strategy of the subresource `status`. By default, everything except `status` and `metadata` is kept. */
  readonly status?: UpdateStrategy<Object>;
  /** Other subresources that write the same object (`ephemeralcontainers`, `approval`, …), by name. */
  readonly subresources?: Readonly<Record<string, UpdateStrategy<Object>>>;
}

/** Converts between a served version and the stored one. Both functions get an object of their own and may modify it. */
export interface Conversion {
  toStored(object: KubeObject): KubeObject;
  fromStored(object: KubeObject): KubeObject;
  /**
   * Whether an object may differ from itself after a conversion to the stored version and back. Managers then own the fields
   * that it has after both.
   */
  readonly isLossy?: true;
  /** Whether the stored object equals the result of `fromStored`, so that no conversion is needed. By default it does not. */
  isServed?(object: KubeObject): boolean;
  /** Returns the served object from which `toStored` made this one, if the stored version lacks some of its members. */
  asWritten?(stored: KubeObject): KubeObject | undefined;
  /** Converts many objects by a request to another server (a webhook). It replaces the functions above. */
  convertAll?(objects: readonly KubeObject[], to: 'stored' | 'served'): Promise<readonly KubeObject[]>;
  /** Sets defaults of the served version that the schema does not have. Those of the strategy apply after `toStored`. */
  readonly applyDefaults?: (object: KubeObject) => void;
  /** Changes the object in place, so that the strategy sets no defaults that the served version does not have. */
  withholdDefaults?(stored: KubeObject): void;
  /** Maps the selectable fields of the served version to those of the stored one. By default, they are the same. */
  readonly fieldNames?: Readonly<Record<string, string>>;
}

/** The strategy of a kind with the group and resource under which it is stored. `kinds.ts` lists the rows. */
export interface KindRow {
  /** Empty for the core group. */
  readonly group: string;
  readonly resource: string;
  readonly strategy: Strategy;
  /**
   * The conversions of served versions that differ from the stored one in more than `apiVersion`, by version. The key of a
   * version of another group is `group/version`.
   */
  readonly conversions?: Readonly<Record<string, Conversion>>;
}

/** Creates a row from a strategy that reads its kind with a type of its own. */
export function kindRow<Object extends KubeObject>(
  group: string,
  resource: string,
  strategy: Strategy<Object>,
  conversions?: Readonly<Record<string, Conversion>>,
): KindRow {
  // The schema decodes objects before a strategy gets them, so they have the shape of the type.
  const row = { group, resource, strategy: strategy as unknown as Strategy };
  return conversions === undefined ? row : { ...row, conversions };
}
