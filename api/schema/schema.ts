/**
 * What the program knows of the shape of API types: one model for the built-in types (from the generated table, `table.ts`)
 * and for custom resources (from their structural schema).
 *
 * Pruning, unknown-field detection, defaulting, strategic merge, structured merge, protobuf, OpenAPI and Tables read this
 * model; none of them knows a kind by name.
 */
import type { JsonValue } from '../meta/object.ts';

export type Scalar =
  | 'string'
  | 'boolean'
  | 'int32'
  | 'int64'
  | 'double'
  | 'bytes' // base64 in JSON
  | 'time' // RFC 3339, seconds
  | 'microTime' // RFC 3339, microseconds
  | 'duration' // Go's "1h2m3s"
  | 'quantity' // resource.Quantity
  | 'intOrString'
  | 'any' // free JSON (apiextensions JSON, custom resources' unknown parts)
  | 'rawExtension' // an embedded object, kept as it is
  | 'fieldsV1';

export type TypeNode =
  /** `message`: the protobuf form of a JSON value that has one of several types (schemas of custom resources). */
  | {
      readonly kind: 'scalar';
      readonly scalar: Scalar;
      readonly message?: 'schemaOrBool' | 'schemaOrArray' | 'schemaOrStringArray';
    }
  /** `wrapped`: protobuf has a message with one repeated field in its place. */
  | { readonly kind: 'list'; readonly items: TypeNode; readonly wrapped?: true }
  | { readonly kind: 'map'; readonly values: TypeNode }
  | { readonly kind: 'struct'; readonly struct: StructType };

/**
 * What becomes of a field that is absent, null or empty:
 * `print`: it is there with its zero value; `null`: there, null where absent; `keep`: absent stays absent, zero stays; `omit`: zero vanishes.
 */
export type Presence = 'print' | 'null' | 'keep' | 'omit';

export interface Field {
  readonly name: string;
  readonly type: TypeNode;
  /** OpenAPI's `required`. */
  readonly required: boolean;
  /** Absent where the field has no protobuf form. */
  readonly protobufNumber?: number;
  /** Numbers of the messages around it that JSON does not show, outermost first. */
  readonly protobufInline?: readonly number[];
  /** Absent for custom resources: what is there stays. */
  readonly presence?: Presence;
  /** Absent: `atomic` for scalars' lists is the default of structured merge. */
  readonly listType?: 'atomic' | 'set' | 'map';
  readonly listMapKeys?: readonly string[];
  /** Of a map or struct value. */
  readonly mapType?: 'atomic' | 'granular';
  readonly patchStrategy?: readonly string[];
  readonly patchMergeKey?: string;
  readonly default?: JsonValue;
  readonly enum?: readonly string[];
  /** Custom resources: null is a value of its own here. */
  readonly nullable?: boolean;
}

/** A struct. `fields` is filled on first use, so that types may refer to themselves. */
export interface StructType {
  /** `io.k8s.api.core.v1.Pod`; for custom resources a name made of group, version and kind. */
  readonly name: string;
  readonly fields: ReadonlyMap<string, Field>;
  /** Of the struct itself, where its type says so for every use. */
  readonly mapType?: 'atomic' | 'granular';
  /** Discriminated unions among the fields, as OpenAPI shows them. */
  readonly unions?: readonly JsonValue[];
  /** Keep what the schema does not name (custom resources). */
  readonly preserveUnknown?: boolean;
  /** No schema describes the value: it may be a scalar or a list as well. */
  readonly untyped?: boolean;
  /** Values of fields that are not named (custom resources with both properties and additionalProperties do not exist; kept for embedded resources). */
  readonly embeddedResource?: boolean;
}

/** A resource of the table: one row a served path. */
export interface ResourceInfo {
  readonly group: string;
  readonly version: string;
  /** Plural, lower case. */
  readonly resource: string;
  readonly kind: string;
  readonly singular: string;
  readonly shortNames: readonly string[];
  readonly categories: readonly string[];
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
  readonly subresources: readonly SubresourceInfo[];
  /** Of a custom resource. */
  readonly custom?: {
    readonly listKind: string;
    /** Warning for a version that is going away; `''` for others. */
    readonly deprecation: string;
  };
}

export interface SubresourceInfo {
  readonly name: string;
  /** Group and version of its kind where they differ from the resource's (`autoscaling/v1` `Scale`). */
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly verbs: readonly string[];
}

export interface Schema {
  /** By full type name. */
  struct(name: string): StructType | undefined;
  /** The struct of a kind that is served. */
  kind(group: string, version: string, kind: string): StructType | undefined;
  /** The text of a type or of a field; loaded on first use, costly: for OpenAPI only. */
  description(structName: string, fieldName?: string): string | undefined;
  structNames(): Iterable<string>;
}
