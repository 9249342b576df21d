/**
 * Writes the schemas of types as OpenAPI 2 and 3 from the type model, with the extensions that clients read (list types, merge
 * keys, groups and kinds).
 */
import { setImmediate } from 'node:timers/promises';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import type { Field, ResourceInfo, Scalar, Schema, StructType, TypeNode } from '../../../api/schema/schema.ts';
import { groupVersionKindOf } from '../../../api/schema/table.ts';

/** The two versions differ in references, default values and the schemas of a few types. */
type OpenApiVersion = 2 | 3;

const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.';
const EXTENSIONS = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.';

/** Scalars that are named types in the documents. */
const NAMED_SCALARS: Partial<Readonly<Record<Scalar, string>>> = {
  time: `${META}Time`,
  microTime: `${META}MicroTime`,
  duration: `${META}Duration`,
  quantity: 'io.k8s.apimachinery.pkg.api.resource.Quantity',
  intOrString: 'io.k8s.apimachinery.pkg.util.intstr.IntOrString',
  rawExtension: 'io.k8s.apimachinery.pkg.runtime.RawExtension',
  fieldsV1: `${META}FieldsV1`,
  any: `${EXTENSIONS}JSON`,
};

const MESSAGES = {
  schemaOrBool: `${EXTENSIONS}JSONSchemaPropsOrBool`,
  schemaOrArray: `${EXTENSIONS}JSONSchemaPropsOrArray`,
  schemaOrStringArray: `${EXTENSIONS}JSONSchemaPropsOrStringArray`,
} as const;

/** The number of definitions that are built without a pause. */
const BATCH = 20;

interface SpecialSchema {
  readonly description: string;
  readonly v2: JsonObject;
  readonly v3?: JsonObject;
}

const SPECIAL: ReadonlyMap<string, SpecialSchema> = new Map(
  Object.entries({
    [`${META}Time`]: {
      description: 'A time in RFC 3339, UTC, to the second.',
      v2: { type: 'string', format: 'date-time' },
    },
    [`${META}MicroTime`]: {
      description: 'A time in RFC 3339, UTC, to the microsecond.',
      v2: { type: 'string', format: 'date-time' },
    },
    [`${META}Duration`]: { description: 'A span of time such as 1h2m3s.', v2: { type: 'string' } },
    [`${META}FieldsV1`]: { description: 'A set of fields, as a tree of their names.', v2: { type: 'object' } },
    [`${META}Patch`]: { description: 'A body in one of the patch formats.', v2: { type: 'object' } },
    'io.k8s.apimachinery.pkg.api.resource.Quantity': {
      description: 'A number with a unit: 500m, 2Gi, 1e3. Kept exactly, written in its shortest form.',
      v2: { type: 'string' },
      v3: { oneOf: [{ type: 'string' }, { type: 'number' }] },
    },
    'io.k8s.apimachinery.pkg.util.intstr.IntOrString': {
      description: 'A number, or a string such as a name or a percentage.',
      v2: { type: 'string', format: 'int-or-string' },
      v3: { format: 'int-or-string', oneOf: [{ type: 'integer' }, { type: 'string' }] },
    },
    'io.k8s.apimachinery.pkg.runtime.RawExtension': { description: 'An object of any kind.', v2: { type: 'object' } },
    [`${EXTENSIONS}JSON`]: { description: 'Any JSON value.', v2: {} },
    [MESSAGES.schemaOrBool]: { description: 'A schema, or true or false.', v2: {} },
    [MESSAGES.schemaOrArray]: { description: 'A schema, or a list of schemas.', v2: {} },
    [MESSAGES.schemaOrStringArray]: { description: 'A schema, or a list of strings.', v2: {} },
  }),
);

const PLAIN: Partial<Readonly<Record<Scalar, JsonObject>>> = {
  string: { type: 'string' },
  boolean: { type: 'boolean' },
  int32: { type: 'integer', format: 'int32' },
  int64: { type: 'integer', format: 'int64' },
  double: { type: 'number', format: 'double' },
  bytes: { type: 'string', format: 'byte' },
};

/** The default values that OpenAPI 3 documents give to fields that are always serialized. */
const ZEROS: ReadonlyMap<string, JsonValue> = new Map(Object.entries({ string: '', boolean: false, integer: 0 }));

/** The types to which the paths and definitions of custom resources refer. */
export const CUSTOM_REFERENCES: readonly string[] = ['ObjectMeta', 'ListMeta', 'DeleteOptions', 'Patch', 'Status'].map(
  (name) => META + name,
);

/** The schema of a custom resource in both versions. */
export interface CustomSchema {
  readonly name: string;
  /** Differs if the schemas differ. */
  readonly revision: string;
  readonly v2: JsonObject;
  readonly v3: JsonObject;
  /** The value of `x-kubernetes-selectable-fields`. */
  readonly selectableFields?: JsonValue | undefined;
}

/** Collects the definitions of one document. */
export class SchemaWriter {
  readonly version: OpenApiVersion;
  readonly schema: Schema;
  /** The groups and versions whose requests may use the options types. */
  readonly #groupVersions: readonly { readonly group: string; readonly version: string }[];
  readonly #definitions = new Map<string, JsonObject>();
  readonly #waiting: string[] = [];
  readonly #customNames = new Set<string>();
  readonly #customs = new Map<ResourceInfo, CustomSchema | undefined>();

  constructor(version: OpenApiVersion, schema: Schema, groupVersions: readonly { group: string; version: string }[]) {
    this.version = version;
    this.schema = schema;
    this.#groupVersions = groupVersions;
  }

  /** Returns a reference to the type. The document will contain its definition. */
  reference(name: string): JsonObject {
    if (!this.#definitions.has(name)) {
      this.#definitions.set(name, {});
      this.#waiting.push(name);
    }
    return { $ref: this.version === 2 ? `#/definitions/${name}` : `#/components/schemas/${name}` };
  }

  /** Adds a definition that was built elsewhere, and the types to which it refers. */
  custom(custom: CustomSchema): JsonObject {
    if (this.#customNames.has(custom.name)) return this.reference(custom.name);
    this.#customNames.add(custom.name);
    const definition = this.version === 2 ? custom.v2 : custom.v3;
    this.#definitions.set(custom.name, definition);
    for (const name of referencesIn(definition)) this.reference(name);
    return this.reference(custom.name);
  }

  /** Returns the schemas of a row's kind. `find` is called once for each row. */
  customOf(
    row: ResourceInfo,
    find: ((row: ResourceInfo) => CustomSchema | undefined) | undefined,
  ): CustomSchema | undefined {
    if (!this.#customs.has(row)) this.#customs.set(row, find?.(row));
    return this.#customs.get(row);
  }

  /** Returns the definitions that were built elsewhere, without those of the types to which they refer. */
  customDefinitions(): JsonObject {
    const names = [...this.#customNames].sort();
    return Object.fromEntries(names.map((name) => [name, this.#definitions.get(name)]));
  }

  /** Returns every type that was referred to, directly or indirectly, sorted by name. Yields to the event loop meanwhile. */
  async definitions(): Promise<JsonObject> {
    for (let name = this.#waiting.pop(), count = 1; name !== undefined; name = this.#waiting.pop(), count += 1) {
      this.#definitions.set(name, this.#definition(name));
      if (count % BATCH === 0) await setImmediate();
    }
    return Object.fromEntries([...this.#definitions].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  #definition(name: string): JsonObject {
    const special = SPECIAL.get(name);
    if (special !== undefined) {
      const shape = this.version === 3 ? (special.v3 ?? special.v2) : special.v2;
      return { description: special.description, ...shape };
    }
    const struct = this.schema.struct(name);
    return struct === undefined ? { type: 'object' } : this.#struct(struct);
  }

  #struct(struct: StructType): JsonObject {
    const description = this.schema.description(struct.name);
    const properties: JsonObject = {};
    for (const field of struct.fields.values()) properties[field.name] = this.#field(struct, field);
    const required = requiredOf(struct);
    const kinds = this.#kindsOf(struct.name);
    return {
      ...(description === undefined ? {} : { description }),
      ...(required.length === 0 ? {} : { required }),
      ...(struct.fields.size === 0 ? {} : { properties }),
      type: 'object',
      ...(kinds.length === 0 ? {} : { 'x-kubernetes-group-version-kind': kinds }),
      ...(struct.mapType === undefined ? {} : { 'x-kubernetes-map-type': struct.mapType }),
      ...(struct.unions === undefined ? {} : { 'x-kubernetes-unions': [...struct.unions] }),
    };
  }

  #kindsOf(name: string): JsonObject[] {
    if (name.startsWith(META)) {
      const kind = name.slice(META.length);
      if (kind === 'DeleteOptions' || kind === 'WatchEvent') return this.#groupVersions.map((gv) => ({ ...gv, kind }));
      const single = ['Status', 'APIGroup', 'APIGroupList', 'APIResourceList', 'APIVersions'].includes(kind);
      return single ? [{ group: '', version: 'v1', kind }] : [];
    }
    const found = groupVersionKindOf(name);
    return found === undefined ? [] : [{ ...found }];
  }

  #field(struct: StructType, field: Field): JsonObject {
    const fieldText = this.schema.description(struct.name, field.name);
    const isReference =
      field.type.kind === 'struct' || (field.type.kind === 'scalar' && PLAIN[field.type.scalar] === undefined);
    // Clients show only these texts in a list of fields, so a reference has the description of its type.
    const typeText = field.type.kind === 'struct' ? this.schema.description(field.type.struct.name) : undefined;
    const description = fieldText ?? typeText;
    const preset = this.#default(field);
    const members: JsonObject = {
      ...(description === undefined ? {} : { description }),
      ...(preset === undefined ? {} : { default: preset }),
      ...extensionsOf(field),
    };
    const type = withValues(this.#type(field.type), field.enum);
    if (!isReference || this.version === 2) return { ...members, ...type };
    return Object.keys(members).length === 0 ? type : { ...members, allOf: [type] };
  }

  #default(field: Field): JsonValue | undefined {
    // OpenAPI 2 documents have no default values.
    if (this.version === 2) return undefined;
    if (field.default !== undefined) return field.default;
    if (field.presence !== 'print') return undefined;
    if (field.type.kind === 'struct') return {};
    // Bytes are a slice in Go, which has no default value.
    const plain =
      field.type.kind === 'scalar' && field.type.scalar !== 'bytes' ? PLAIN[field.type.scalar]?.['type'] : undefined;
    return typeof plain === 'string' ? ZEROS.get(plain) : undefined;
  }

  #type(type: TypeNode): JsonObject {
    switch (type.kind) {
      case 'struct':
        return this.reference(type.struct.name);
      case 'list':
        return { type: 'array', items: this.#type(type.items) };
      case 'map':
        return { type: 'object', additionalProperties: this.#type(type.values) };
      case 'scalar': {
        if (type.message !== undefined) return this.reference(MESSAGES[type.message]);
        const named = NAMED_SCALARS[type.scalar];
        return named === undefined ? { ...PLAIN[type.scalar] } : this.reference(named);
      }
    }
  }
}

/** The required fields of Go types that stand in another order than their protobuf numbers. */
const REQUIRED: ReadonlyMap<string, readonly string[]> = new Map([
  [`${META}APIResource`, ['name', 'singularName', 'namespaced', 'kind', 'verbs']],
  [
    'io.k8s.apimachinery.pkg.version.Info',
    [
      ...['major', 'minor', 'gitVersion', 'gitCommit', 'gitTreeState'],
      ...['buildDate', 'goVersion', 'compiler', 'platform'],
    ],
  ],
  [`${META}OwnerReference`, ['apiVersion', 'kind', 'name', 'uid']],
  ['io.k8s.api.networking.v1.HTTPIngressPath', ['pathType', 'backend']],
]);

/** Returns the names of the required fields in the order of the Go type. */
function requiredOf({ name, fields }: StructType): string[] {
  const listed = REQUIRED.get(name);
  if (listed !== undefined) return [...listed];
  const required = [...fields.values()].filter((field) => field.required);
  return required.sort((a, b) => (a.protobufNumber ?? 0) - (b.protobufNumber ?? 0)).map((field) => field.name);
}

/** Adds the values that a string, the items of a list or the entries of a map may have. */
function withValues(type: JsonObject, values: readonly string[] | undefined): JsonObject {
  if (values === undefined) return type;
  for (const member of ['items', 'additionalProperties'] as const) {
    const inner = type[member];
    if (inner !== undefined) return { ...type, [member]: { ...(inner as JsonObject), enum: [...values] } };
  }
  return { ...type, enum: [...values] };
}

function extensionsOf(field: Field): JsonObject {
  const { listType, listMapKeys, mapType, patchStrategy, patchMergeKey } = field;
  return {
    ...(listMapKeys === undefined ? {} : { 'x-kubernetes-list-map-keys': [...listMapKeys] }),
    ...(listType === undefined ? {} : { 'x-kubernetes-list-type': listType }),
    ...(mapType === undefined ? {} : { 'x-kubernetes-map-type': mapType }),
    ...(patchMergeKey === undefined ? {} : { 'x-kubernetes-patch-merge-key': patchMergeKey }),
    ...(patchStrategy === undefined ? {} : { 'x-kubernetes-patch-strategy': patchStrategy.join(',') }),
  };
}

const REFERENCE = /^#\/(?:definitions|components\/schemas)\/(.+)$/;

/** Collects the names of the definitions to which a schema refers. */
function referencesIn(schema: JsonValue, found: Set<string> = new Set()): Set<string> {
  if (typeof schema !== 'object' || schema === null) return found;
  for (const [key, value] of Object.entries(schema)) {
    if (value === undefined) continue;
    const name = key === '$ref' && typeof value === 'string' ? REFERENCE.exec(value)?.[1] : undefined;
    if (name === undefined) referencesIn(value, found);
    else found.add(name);
  }
  return found;
}
