/**
 * Provides the built-in API types from the generated `table.json`. The fields of a struct are built on first use.
 */
import { readFileSync } from 'node:fs';
import type { JsonValue } from '../meta/object.ts';
import { describe } from './descriptions.ts';
import { builtinResources } from './resources.ts';
import type { Field, Presence, Scalar, Schema, StructType, TypeNode } from './schema.ts';

/** A field in the form that `scripts/generate-api.ts` writes. */
type FieldRow = readonly [
  name: string,
  type: string,
  number: number | readonly number[],
  required: number,
  options?: Readonly<Record<string, string>>,
];
type TypeRow = readonly [name: string, fields: readonly FieldRow[], options?: Readonly<Record<string, string>>];

const SCALARS: ReadonlyMap<string, Scalar> = new Map(
  Object.entries({
    s: 'string',
    b: 'boolean',
    i: 'int32',
    l: 'int64',
    f: 'double',
    y: 'bytes',
    t: 'time',
    m: 'microTime',
    d: 'duration',
    q: 'quantity',
    n: 'intOrString',
    a: 'any',
    r: 'rawExtension',
    v: 'fieldsV1',
  }),
);

const PRESENCE: ReadonlyMap<string, Presence> = new Map(Object.entries({ '?': 'keep', '!': 'print', '0': 'null' }));

const MESSAGES = { aB: 'schemaOrBool', aA: 'schemaOrArray', aS: 'schemaOrStringArray' } as const;

class TableStruct implements StructType {
  readonly name: string;
  declare readonly mapType?: 'atomic' | 'granular';
  declare readonly goOrder?: readonly string[];
  declare readonly unions?: readonly JsonValue[];
  readonly #rows: readonly FieldRow[];
  readonly #table: BuiltinSchema;
  #fields: ReadonlyMap<string, Field> | undefined;

  constructor(row: TypeRow, table: BuiltinSchema) {
    this.name = row[0];
    this.#rows = row[1];
    this.#table = table;
    const mapType = row[2]?.['mapType'];
    if (mapType === 'atomic' || mapType === 'granular') this.mapType = mapType;
    const order = row[2]?.['order'];
    if (order !== undefined) this.goOrder = order.split(',');
    const unions = row[2]?.['unions'];
    if (unions !== undefined) this.unions = JSON.parse(unions) as JsonValue[];
  }

  get fields(): ReadonlyMap<string, Field> {
    return this.#fields ?? this.#buildFields();
  }

  #buildFields(): ReadonlyMap<string, Field> {
    this.#fields = new Map(this.#rows.map((row) => [row[0], this.#table.field(row)]));
    return this.#fields;
  }
}

class BuiltinSchema implements Schema {
  readonly #structs: readonly TableStruct[];
  readonly #byName: ReadonlyMap<string, TableStruct>;
  readonly #byKind = new Map<string, TableStruct | undefined>();

  constructor(rows: readonly TypeRow[]) {
    this.#structs = rows.map((row) => new TableStruct(row, this));
    this.#byName = new Map(this.#structs.map((struct) => [struct.name, struct]));
  }

  struct(name: string): StructType | undefined {
    return this.#byName.get(name);
  }

  kind(group: string, version: string, kind: string): StructType | undefined {
    const key = `${group}/${version}/${kind}`;
    if (!this.#byKind.has(key))
      this.#byKind.set(key, this.#byName.get(typeNameOf(group, version, kind)) ?? this.#optionsOf(group, kind));
    return this.#byKind.get(key);
  }

  /** Returns a type of `meta/v1` by its kind, such as `Status`. Options are kinds of every group (`apps/v1 DeleteOptions`). */
  #optionsOf(group: string, kind: string): TableStruct | undefined {
    if (group !== '' && group !== 'meta.k8s.io' && !kind.endsWith('Options')) return undefined;
    return this.#byName.get(`io.k8s.apimachinery.pkg.apis.meta.v1.${kind}`);
  }

  description(structName: string, fieldName?: string): string | undefined {
    return describe(structName, fieldName);
  }

  structNames(): Iterable<string> {
    return this.#byName.keys();
  }

  field(row: FieldRow): Field {
    const [name, code, path, required, options = {}] = row;
    const presence = PRESENCE.get(code.charAt(0));
    const typed = this.#type(/^[?!]/.test(code) || /^0./.test(code) ? code.slice(1) : code, options['go']);
    const number = typeof path === 'number' ? path : (path.at(-1) ?? 0);
    return {
      name,
      type: typed,
      required: required === 1,
      presence: presence !== undefined && /^[?!0]./.test(code) ? presence : 'omit',
      ...(number === 0 ? {} : { protobufNumber: number }),
      ...(typeof path === 'number' ? {} : { protobufInline: path.slice(0, -1) }),
      ...optionsOf(options),
    };
  }

  /** Decodes the code of a type. `goName` is its Go type, if the table names one. */
  #type(code: string, goName?: string): TypeNode {
    const named = goName === undefined ? {} : { goName };
    switch (code.charAt(0)) {
      case '[':
        return { kind: 'list', items: this.#type(code.slice(1), inner(goName)), ...named };
      case '*':
        return { kind: 'list', items: this.#type(code.slice(1), inner(goName)), wrapped: true, ...named };
      case '{':
        return { kind: 'map', values: this.#type(code.slice(1), inner(goName)), ...named };
      default: {
        if (code === 'aB' || code === 'aA' || code === 'aS')
          return { kind: 'scalar', scalar: 'any', message: MESSAGES[code] };
        const scalar = SCALARS.get(code);
        if (scalar !== undefined) return { kind: 'scalar', scalar, ...named };
        const struct = this.#structs[Number(code)];
        if (struct === undefined) throw new Error(`table.json names the unknown type ${code}`);
        return { kind: 'struct', struct };
      }
    }
  }
}

/** Returns the Go type of the items of `[]T` or of the values of `map[K]T`. */
function inner(goName = ''): string | undefined {
  return /^(?:map)?\[[\w.]*\](.+)$/.exec(goName)?.[1];
}

function optionsOf(options: Readonly<Record<string, string>>): Partial<Field> {
  const { listType, keys, fieldMapType, patch, mergeKey } = options;
  return {
    ...(listType === 'atomic' || listType === 'set' || listType === 'map' ? { listType } : {}),
    ...(keys === undefined ? {} : { listMapKeys: keys.split(',') }),
    ...(fieldMapType === 'atomic' || fieldMapType === 'granular' ? { mapType: fieldMapType } : {}),
    ...(patch === undefined ? {} : { patchStrategy: patch.split(',') }),
    ...(mergeKey === undefined ? {} : { patchMergeKey: mergeKey }),
    ...(options['in'] === undefined ? {} : { goEmbedded: options['in'] }),
    ...(options['enum'] === undefined ? {} : { enum: JSON.parse(options['enum']) as string[] }),
    ...(options['default'] === undefined ? {} : { default: JSON.parse(options['default']) as JsonValue }),
  };
}

/** The packages whose name is not the first label of the group. */
const PACKAGES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    '': 'io.k8s.api.core',
    'apiextensions.k8s.io': 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions',
    'apiregistration.k8s.io': 'io.k8s.kube-aggregator.pkg.apis.apiregistration',
    'flowcontrol.apiserver.k8s.io': 'io.k8s.api.flowcontrol',
    'internal.apiserver.k8s.io': 'io.k8s.api.apiserverinternal',
    'meta.k8s.io': 'io.k8s.apimachinery.pkg.apis.meta',
    'rbac.authorization.k8s.io': 'io.k8s.api.rbac',
  }),
);

/** The groups of built-in types that are not served as resources. */
const UNSERVED = ['admission.k8s.io', 'apidiscovery.k8s.io', 'imagepolicy.k8s.io', 'meta.k8s.io'];

let groups: ReadonlySet<string> | undefined;

/**
 * Returns the type name of a kind: `io.k8s.api.apps.v1.Deployment` for `apps`, `v1`, `Deployment`. For other groups it is the
 * name in OpenAPI, `com.example.v1.Thing`, even if their first label is that of a built-in group.
 */
export function typeNameOf(group: string, version: string, kind: string): string {
  groups ??= new Set([...builtinResources().map((row) => row.group), ...UNSERVED]);
  if (!groups.has(group)) return `${group.split('.').toReversed().join('.')}.${version}.${kind}`;
  return `${PACKAGES.get(group) ?? `io.k8s.api.${group.split('.')[0] ?? ''}`}.${version}.${kind}`;
}

/** Returns the group, version and kind of the type name of a served kind or of its list, and `undefined` for other types. */
export function groupVersionKindOf(structName: string): { group: string; version: string; kind: string } | undefined {
  return kindsByType().get(structName);
}

let byType: ReadonlyMap<string, { group: string; version: string; kind: string }> | undefined;

function kindsByType(): ReadonlyMap<string, { group: string; version: string; kind: string }> {
  if (byType === undefined) {
    const found = new Map<string, { group: string; version: string; kind: string }>();
    for (const row of builtinResources()) {
      const kinds = [row, ...row.subresources];
      for (const { group, version, kind } of kinds) {
        for (const name of [kind, `${kind}List`])
          found.set(typeNameOf(group, version, name), { group, version, kind: name });
      }
    }
    byType = found;
  }
  return byType;
}

let builtin: BuiltinSchema | undefined;

/** Returns the types of the served release. They are parsed once for each process. */
export function loadSchema(): Schema {
  builtin ??= new BuiltinSchema(JSON.parse(readFileSync(new URL('table.json', import.meta.url), 'utf8')) as TypeRow[]);
  return builtin;
}
