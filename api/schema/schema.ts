/**
 * Defines the model of API types, for the built-in types (from the generated table, `table.ts`) and for custom resources (from
 * their structural schema).
 */
import type { JsonValue } from '../meta/object.ts';

/** The type of a value without members. */
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

/**
 * Returns the zero value that Go serializes for a field of the type. `undefined` for durations and types whose zero is null.
 */
export function zeroOfScalar(scalar: Scalar): '' | false | 0 | '0' | undefined {
  switch (scalar) {
    case 'string':
      return '';
    case 'boolean':
      return false;
    case 'int32':
    case 'int64':
    case 'double':
    case 'intOrString':
      return 0;
    case 'quantity':
      return '0';
    default:
      return undefined;
  }
}

/** The type of a field. `goName` is the name of its Go type if that is not the plain one: `types.UID`, `v1.ResourceList`. */
export type TypeNode =
  /** `message` is the protobuf form of a JSON value with one of several types (schemas of custom resources). */
  | {
      readonly kind: 'scalar';
      /** Set for texts of custom resources with a format: an apply takes any scalar, which the validation checks afterwards. */
      readonly takesAnyScalar?: true;
      readonly scalar: Scalar;
      readonly message?: 'schemaOrBool' | 'schemaOrArray' | 'schemaOrStringArray';
      readonly goName?: string;
    }
  /** `wrapped` means that protobuf has a message with one repeated field in its place. */
  | { readonly kind: 'list'; readonly items: TypeNode; readonly wrapped?: true; readonly goName?: string }
  | { readonly kind: 'map'; readonly values: TypeNode; readonly goName?: string }
  | { readonly kind: 'struct'; readonly struct: StructType };

/**
 * The treatment of a field that is absent, null or empty:
 * `print`: the field is always present, with its zero value. `null`: the field is always present, and null if absent. `keep`:
 * an absent field stays absent, and a zero value stays. `omit`: a zero value is dropped.
 */
export type Presence = 'print' | 'null' | 'keep' | 'omit';

/** A field of a struct. */
export interface Field {
  readonly name: string;
  readonly type: TypeNode;
  /** The `required` of OpenAPI. */
  readonly required: boolean;
  /** Absent if the field has no protobuf form. */
  readonly protobufNumber?: number;
  /** The field numbers of the messages around the field that JSON does not show, outermost first. */
  readonly protobufInline?: readonly number[];
  /** The embedded Go structs around the field that JSON does not show, outermost first: `RuleWithOperations.Rule`. */
  readonly goEmbedded?: string;
  /** Absent for custom resources, whose values are kept as they are. */
  readonly presence?: Presence;
  /** If absent, structured merge treats a list as `atomic`. */
  readonly listType?: 'atomic' | 'set' | 'map';
  readonly listMapKeys?: readonly string[];
  /** The map type of a map or struct value. */
  readonly mapType?: 'atomic' | 'granular';
  readonly patchStrategy?: readonly string[];
  readonly patchMergeKey?: string;
  readonly default?: JsonValue;
  /** The values of the field, of its items or of its entries, for OpenAPI. Validation has its own lists. */
  readonly enum?: readonly string[];
  /** Whether null is a value of its own, as it can be in custom resources. */
  readonly nullable?: boolean;
}

/** A struct. `fields` is filled on first use, so that types may refer to themselves. */
export interface StructType {
  /** `io.k8s.api.core.v1.Pod`. The name for custom resources consists of group, version and kind. */
  readonly name: string;
  readonly fields: ReadonlyMap<string, Field>;
  /** The map type of the struct, if its type sets it for every use. */
  readonly mapType?: 'atomic' | 'granular';
  /** The fields as Go serializes them, if that is not the order of the protobuf numbers. */
  readonly goOrder?: readonly string[];
  /** The discriminated unions among the fields, as in OpenAPI. */
  readonly unions?: readonly JsonValue[];
  /** Whether unknown fields are kept (custom resources). */
  readonly preserveUnknown?: boolean;
  /** The value has no schema. It may also be a scalar or a list. */
  readonly untyped?: boolean;
  /** Whether the value is a whole object (`x-kubernetes-embedded-resource`). */
  readonly embeddedResource?: boolean;
}

/** A served resource in one of its versions, with its subresources. */
export interface ResourceInfo {
  readonly group: string;
  readonly version: string;
  /** The plural in lower case. */
  readonly resource: string;
  readonly kind: string;
  readonly singular: string;
  readonly shortNames: readonly string[];
  readonly categories: readonly string[];
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
  readonly subresources: readonly SubresourceInfo[];
  /** Set for custom resources and for resources of aggregated servers. */
  readonly custom?: {
    readonly listKind: string;
    /** The warning for a deprecated version. It is empty for other versions. */
    readonly deprecation: string;
    /** The version in which the objects are stored. Absent for resources of aggregated servers. */
    readonly storedVersion?: string;
  };
}

/** A subresource, as discovery lists it. */
export interface SubresourceInfo {
  readonly name: string;
  /** The group and version of the kind if they differ from those of the resource (`autoscaling/v1` `Scale`). */
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly verbs: readonly string[];
}

/** The types of one API. It is immutable. */
export interface Schema {
  /** Returns a struct by its full type name. */
  struct(name: string): StructType | undefined;
  /** Returns the struct of a served kind. */
  kind(group: string, version: string, kind: string): StructType | undefined;
  /** Returns the description of a type or field. It is loaded on first use, which is slow. OpenAPI and tables show it. */
  description(structName: string, fieldName?: string): string | undefined;
  structNames(): Iterable<string>;
}
