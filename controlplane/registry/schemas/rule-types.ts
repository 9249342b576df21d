/** Maps a schema to the CEL types of its values, with escaped names of members and maximum sizes. */
import type { SizeAt } from '../../../api/cel/cost-estimate.ts';
import { KEYWORDS, RESERVED_WORDS } from '../../../api/cel/reserved-words.ts';
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

/** The words that cannot be names of members in an expression. */
const RESERVED: ReadonlySet<string> = new Set([...KEYWORDS, ...RESERVED_WORDS]);

/**
 * Returns the names by which an expression can access a member. A reserved word has two (`__namespace__`, `namespace`), and a
 * name that cannot be escaped has none.
 */
export function namesInRules(name: string): readonly string[] {
  if (RESERVED.has(name)) return [`__${name}__`, name];
  const escaped = escapedName(name);
  return escaped === undefined ? [] : [escaped];
}

function escapedName(name: string): string | undefined {
  if (!/^[A-Za-z_.\-/][A-Za-z0-9_.\-/]*$/.test(name)) return undefined;
  return name
    .replaceAll('__', '__underscores__')
    .replaceAll('.', '__dot__')
    .replaceAll('-', '__dash__')
    .replaceAll('/', '__slash__');
}

/** The CEL type of a value, with the sizes from which costs are estimated. */
export interface RuleType {
  readonly type: CelType;
  /** The maximum number of bytes of a text, or of items or members; 0 for other types and for the keys of maps. */
  readonly maxElements: number;
  /** The minimum size of the value as JSON. */
  readonly minBytes: number;
  readonly key?: RuleType;
  readonly item?: RuleType;
  readonly fields?: ReadonlyMap<string, RuleType>;
}

const MAX_REQUEST_BYTES = 3 * 1024 * 1024;
/** The maximum size of a value without the quotes, brackets or braces around it. */
const MAX_CONTENT_BYTES = MAX_REQUEST_BYTES - 2;
/** The maximum size of a character in UTF-8. */
const BYTES_PER_CHARACTER = 4;

const scalar = (type: CelType, minBytes: number, maxElements = 0): RuleType => ({ type, minBytes, maxElements });

/** The types of strings with a format that CEL represents by another type, with the lengths that kube-apiserver assumes. */
const FORMATS: ReadonlyMap<string, RuleType> = new Map(
  Object.entries({
    duration: scalar(duration, 3, 32),
    date: scalar(timestamp, 12, 12),
    'date-time': scalar(timestamp, 21, 32),
  }),
);
const KEY = scalar(string, 2);
const TEXT: JsonSchema = { type: 'string' };

/** The members that a whole object and an embedded object have, whatever the schema is. */
const OBJECT_PROPERTIES: Readonly<Record<string, JsonSchema>> = {
  kind: TEXT,
  apiVersion: TEXT,
  metadata: { type: 'object', properties: { name: TEXT, generateName: TEXT } },
};

interface ObjectOptions {
  /** The object is a resource: it has `apiVersion`, `kind` and `metadata`, also if its schema does not list them. */
  readonly isResource: boolean;
}

/** Returns the type of an object for expressions outside of its schema, such as those of policies. */
export function celTypeOf(schema: JsonSchema, options: ObjectOptions): CelType {
  return ruleTypeOf(schema, options)?.type ?? dyn;
}

/**
 * Returns the type that a value of the schema has in rules. Returns `undefined` for values that rules cannot access, because
 * the schema does not specify their type.
 */
export function ruleTypeOf(schema: JsonSchema, options: ObjectOptions): RuleType | undefined {
  if (schema['x-kubernetes-int-or-string'] === true) {
    return scalar(dyn, 1, lengthOf(schema) ?? MAX_CONTENT_BYTES);
  }
  switch (schema.type) {
    case 'array':
      return listType(schema);
    case 'object':
      return objectType(schema, options);
    case 'boolean':
      return scalar(bool, 4);
    case 'integer':
      return scalar(int, 1);
    case 'number':
      return scalar(double, 1);
    case 'string':
      return textType(schema);
    default:
      return undefined;
  }
}

const innerType = (schema: JsonSchema): RuleType | undefined =>
  ruleTypeOf(schema, { isResource: schema['x-kubernetes-embedded-resource'] === true });

function lengthOf({ maxLength }: JsonSchema): number | undefined {
  return maxLength === undefined ? undefined : Math.max(0, maxLength) * BYTES_PER_CHARACTER;
}

function textType(schema: JsonSchema): RuleType {
  const { format = '', maxLength } = schema;
  if (format === 'byte') {
    return scalar(bytes, 2, maxLength === undefined ? MAX_CONTENT_BYTES : Math.max(0, maxLength));
  }
  const formatted = FORMATS.get(format);
  if (formatted !== undefined) return formatted;
  const values = schema.enum ?? [];
  const longest = Math.max(0, ...values.map((value) => (typeof value === 'string' ? Buffer.byteLength(value) : 0)));
  return scalar(string, 2, lengthOf(schema) ?? (values.length > 0 ? longest : MAX_CONTENT_BYTES));
}

function listType(schema: JsonSchema): RuleType | undefined {
  const items = itemsOf(schema);
  const item = items === undefined ? undefined : innerType(items);
  if (item === undefined) return undefined;
  const maxElements =
    schema.maxItems === undefined ? Math.floor(MAX_CONTENT_BYTES / (item.minBytes + 1)) : Math.max(0, schema.maxItems);
  return { type: list(item.type), maxElements, minBytes: 2, item };
}

function objectType(schema: JsonSchema, { isResource }: ObjectOptions): RuleType | undefined {
  const { additionalProperties, maxProperties } = schema;
  if (typeof additionalProperties === 'object') {
    const item = innerType(additionalProperties);
    if (item === undefined) return undefined;
    // The constant is the size of the shortest key with its quotes, the colon and the comma.
    const maxElements =
      maxProperties === undefined ? Math.floor(MAX_CONTENT_BYTES / (item.minBytes + 6)) : Math.max(0, maxProperties);
    return { type: map(string, item.type), maxElements, minBytes: 2, key: KEY, item };
  }
  const properties = isResource ? { ...schema.properties, ...OBJECT_PROPERTIES } : (schema.properties ?? {});
  const needed = new Set(schema.required);
  const fields = new Map<string, RuleType>();
  let minBytes = 2;
  for (const [name, member] of Object.entries(properties)) {
    const type = innerType(member);
    if (type === undefined) continue;
    for (const written of namesInRules(name)) fields.set(written, type);
    if (needed.has(name) && member.default === undefined) minBytes += Buffer.byteLength(name) + type.minBytes + 4;
  }
  const type: CelType = { kind: 'object', name: 'object', field: (name) => fields.get(name)?.type };
  return { type, maxElements: 0, minBytes, fields };
}

/**
 * Returns a function that returns the maximum number of elements of the value at a path, or `undefined` if it is unknown. The
 * first element of a path is the name of a variable, which is the value itself.
 */
export function sizesOf(root: RuleType): SizeAt {
  return (path) => {
    let at: RuleType | undefined = root;
    for (const step of path.slice(1)) {
      if (step === '@items' || step === '@values') at = at.item;
      else at = step === '@keys' ? at.key : at.fields?.get(step);
      if (at === undefined) return undefined;
    }
    return at.maxElements;
  };
}

/** Returns the maximum number of values of the type in an object, if its schema does not limit the number. */
export function maxCount({ minBytes }: RuleType): number {
  return Math.floor(MAX_REQUEST_BYTES / (minBytes + 1));
}
