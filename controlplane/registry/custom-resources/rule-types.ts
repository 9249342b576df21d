/** What expressions see of a schema: its types, with names that CEL cannot write escaped. */
import {
  bool,
  bytes,
  type CelType,
  double,
  duration,
  dyn,
  int,
  list,
  map,
  string,
  timestamp,
} from '../../../api/cel/types.ts';
import { itemsOf, type JsonSchema } from './json-schema.ts';

const RESERVED: ReadonlySet<string> = new Set(
  'true false null in as break const continue else for function if import let loop package namespace return var void while'.split(
    ' ',
  ),
);

/** A member's name as an expression writes it. */
export function escapedName(name: string): string | undefined {
  if (RESERVED.has(name)) return `__${name}__`;
  if (!/^[A-Za-z_][A-Za-z0-9_.\-/]*$/.test(name)) return undefined;
  return name
    .replaceAll('__', '__underscores__')
    .replaceAll('.', '__dot__')
    .replaceAll('-', '__dash__')
    .replaceAll('/', '__slash__');
}

const METADATA: CelType = {
  kind: 'object',
  name: 'ObjectMeta',
  field: (name) => (name === 'name' || name === 'generateName' ? string : undefined),
};

/** `isResource`: kind, version and the names of metadata are there too. */
export function celTypeOf(schema: JsonSchema, isResource: boolean): CelType {
  if (schema['x-kubernetes-int-or-string'] === true) return dyn;
  switch (schema.type) {
    case 'array': {
      const items = itemsOf(schema);
      return list(items === undefined ? dyn : celTypeOf(items, items['x-kubernetes-embedded-resource'] === true));
    }
    case 'object':
      return objectType(schema, isResource);
    case 'boolean':
      return bool;
    case 'integer':
      return int;
    case 'number':
      return double;
    case 'string':
      return stringType(schema.format);
    default:
      return dyn;
  }
}

function stringType(format: string | undefined): CelType {
  switch (format) {
    case 'byte':
      return bytes;
    case 'duration':
      return duration;
    case 'date':
    case 'date-time':
      return timestamp;
    default:
      return string;
  }
}

function objectType(schema: JsonSchema, isResource: boolean): CelType {
  const { additionalProperties, properties } = schema;
  if (typeof additionalProperties === 'object') {
    return map(
      string,
      celTypeOf(additionalProperties, additionalProperties['x-kubernetes-embedded-resource'] === true),
    );
  }
  if (properties === undefined && schema['x-kubernetes-preserve-unknown-fields'] === true && !isResource) return dyn;
  const fields = new Map<string, CelType>();
  if (isResource) {
    fields.set('apiVersion', string);
    fields.set('kind', string);
    fields.set('metadata', METADATA);
  }
  for (const [name, inner] of Object.entries(properties ?? {})) {
    const written = escapedName(name);
    if (written === undefined || (isResource && name === 'metadata')) continue;
    const embedded = inner['x-kubernetes-embedded-resource'] === true;
    const known = inner['x-kubernetes-preserve-unknown-fields'] !== true || inner.properties !== undefined;
    fields.set(
      written,
      known || inner.type !== 'object' ? celTypeOf(inner, embedded) : embedded ? celTypeOf(inner, true) : dyn,
    );
  }
  return { kind: 'object', name: 'object', field: (name) => fields.get(name) };
}
