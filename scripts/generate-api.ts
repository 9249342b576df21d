/**
 * Generates `api/schema/table.json` and `api/schema/resources.json` from the facts in `api/schema/facts` and the models of
 * `@kubernetes/client-node`, which this script alone loads.
 *
 * The facts hold what the models lack: protobuf numbers, list types, merge keys, defaults, what an empty field becomes. The
 * models prove that the facts are complete: every field of a model must be in the facts with the same JSON type, and the other
 * way round; otherwise nothing is written. `--check` writes nothing and fails if the files are out of date.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { modelNames } from '../api/schema/descriptions.ts';

const root = new URL('../', import.meta.url);
const facts = new URL('api/schema/facts/', root);
const models = new URL('node_modules/@kubernetes/client-node/dist/gen/models/', root);

type Presence = 'print' | 'null' | 'keep' | 'omit';

interface FieldFacts {
  name: string;
  number: string;
  type: string;
  required: boolean;
  options: Record<string, string>;
}

interface TypeFacts {
  name: string;
  options: Record<string, string>;
  fields: FieldFacts[];
}

const SCALARS: Readonly<Record<string, string>> = {
  string: 's',
  bool: 'b',
  int32: 'i',
  int64: 'l',
  double: 'f',
  bytes: 'y',
  time: 't',
  microTime: 'm',
  duration: 'd',
  quantity: 'q',
  intOrString: 'n',
  any: 'a',
  schemaOrBool: 'aB',
  schemaOrArray: 'aA',
  schemaOrStringArray: 'aS',
  rawExtension: 'r',
  fieldsV1: 'v',
};

function lines(file: string): string[] {
  return readFileSync(new URL(file, facts), 'utf8')
    .split('\n')
    .filter((line) => line.trim() !== '' && !line.startsWith('#'));
}

function options(words: readonly string[]): Record<string, string> {
  const found: Record<string, string> = {};
  for (const word of words) {
    const at = word.indexOf('=');
    if (at === -1) found[word] = '';
    else found[word.slice(0, at)] = word.slice(at + 1);
  }
  return found;
}

function readTypes(): TypeFacts[] {
  const types: TypeFacts[] = [];
  let pkg = '';
  for (const line of lines('types.txt')) {
    const words = splitWords(line.trim());
    const [first = '', second = '', third = ''] = words;
    if (line.startsWith('package ')) pkg = second;
    else if (line.startsWith('type '))
      types.push({ name: `${pkg}.${second}`, options: options(words.slice(2)), fields: [] });
    else {
      const extra = options(words.slice(3));
      types.at(-1)?.fields.push({
        name: first,
        number: second,
        type: qualify(third, pkg),
        required: 'required' in extra,
        options: extra,
      });
    }
  }
  return types;
}

/** Splits a line into words. What follows `unions=` or `default=` is JSON and may have blanks. */
function splitWords(line: string): string[] {
  const json = /\b(?:unions|default)=.*$/.exec(line);
  if (json === null) return line.split(/\s+/);
  return [...line.slice(0, json.index).trim().split(/\s+/), json[0]];
}

function qualify(type: string, pkg: string): string {
  const parts = /^(\*?\[\]|map\[)?(.*?)(\])?$/.exec(type);
  const inner = parts?.[2] ?? type;
  if (inner.startsWith('*[]') || inner in SCALARS || inner.includes('.')) return type;
  return `${parts?.[1] ?? ''}${pkg}.${inner}${parts?.[3] ?? ''}`;
}

/** Returns the values of fields by `type field`, as JSON. */
function readEnums(): ReadonlyMap<string, string> {
  return new Map(
    lines('enums.txt').map((line) => {
      const at = line.indexOf(' [');
      return [line.slice(0, at), line.slice(at + 1)];
    }),
  );
}

interface PresenceRule {
  mode: Presence;
  type: string;
  fields: Set<string>;
}

function readPresence(): PresenceRule[] {
  return lines('presence.txt').map((line) => {
    const [mode = '', type = '', ...fields] = line.split(' ');
    return { mode: mode as Presence, type, fields: new Set(fields) };
  });
}

/**
 * Returns what an empty field becomes: by the last rule that names its type, else by the first one for all types (`*`). Without
 * a rule, a required field is printed, and the others depend on their type. A rule `print` for all types applies to structs
 * and times alone.
 */
function presenceOf(
  type: TypeFacts,
  field: FieldFacts,
  rules: readonly PresenceRule[],
  structs: ReadonlySet<string>,
): Presence {
  const isStruct = structs.has(field.type);
  let best: PresenceRule | undefined;
  for (const rule of rules) {
    if (!rule.fields.has(field.name)) continue;
    if (rule.type === '*') {
      if (rule.mode === 'print' && !isStruct && field.type !== 'time' && field.type !== 'microTime') continue;
      best ??= rule;
    } else if (type.name.endsWith(`.${rule.type}`)) best = rule;
  }
  if (best !== undefined) return best.mode;
  if (field.required) return 'print';
  return isStruct || ['time', 'microTime', 'quantity', 'intOrString'].includes(field.type) ? 'keep' : 'omit';
}

function encodeType(type: string, index: ReadonlyMap<string, number>): string {
  if (type.startsWith('*[]')) return `*${encodeType(type.slice(3), index)}`;
  if (type.startsWith('[]')) return `[${encodeType(type.slice(2), index)}`;
  if (type.startsWith('map[')) return `{${encodeType(type.slice(4, -1), index)}`;
  const scalar = SCALARS[type];
  if (scalar !== undefined) return scalar;
  const at = index.get(type);
  if (at === undefined) throw new Error(`a field has the unknown type ${type}`);
  return String(at);
}

const PRESENCE_CODES: Readonly<Record<Presence, string>> = { omit: '', keep: '?', print: '!', null: '0' };

/** Lists fields that `order=` of a type lacks, and those that the type lacks. `kind` and `apiVersion` always come first. */
export function orderProblems(types: readonly TypeFacts[] = readTypes()): string[] {
  return types.flatMap(({ name, options: { order }, fields }) => {
    if (order === undefined) return [];
    const ordered = new Set(order.split(','));
    const names = new Set(fields.map((field) => field.name));
    const missing = [...names].filter((field) => !ordered.has(field) && field !== 'kind' && field !== 'apiVersion');
    return [
      ...missing.map((field) => `${name}.${field} is not in order= of the type`),
      ...[...ordered]
        .filter((field) => !names.has(field))
        .map((field) => `${name} has no field ${field} of its order=`),
    ];
  });
}

/**
 * Returns the content of `table.json`: a line for each type. A field is `[name, type + presence, number, required 0|1,
 * options?]`; `api/schema/table.ts` reads it.
 */
export function buildTable(): string {
  const types = readTypes();
  const rules = readPresence();
  const index = new Map(types.map((type, at) => [type.name, at]));
  const structs = new Set(index.keys());
  const enums = new Map(readEnums());
  const rows = types.map((type) => {
    const fields = type.fields.map((field) => {
      const path =
        field.number === '-'
          ? 0
          : field.number.includes('/')
            ? field.number.split('/').map(Number)
            : Number(field.number);
      const code = `${PRESENCE_CODES[presenceOf(type, field, rules, structs)]}${encodeType(field.type, index)}`;
      const { required: _required, ...rest } = field.options;
      const key = `${type.name} ${field.name}`;
      const values = enums.get(key);
      if (values !== undefined) rest['enum'] = values;
      enums.delete(key);
      const row: unknown[] = [field.name, code, path, field.required ? 1 : 0];
      if (Object.keys(rest).length > 0) row.push(rest);
      return row;
    });
    return Object.keys(type.options).length === 0 ? [type.name, fields] : [type.name, fields, type.options];
  });
  if (enums.size > 0)
    throw new Error(`enums.txt has fields that are not in types.txt: ${[...enums.keys()].join(', ')}`);
  return `[\n${rows.map((row) => JSON.stringify(row)).join(',\n')}\n]\n`;
}

interface ResourceRow {
  group: string;
  version: string;
  resource: string;
  kind: string;
  singular: string;
  shortNames: string[];
  categories: string[];
  namespaced: boolean;
  verbs: string[];
  subresources: { name: string; group: string; version: string; kind: string; verbs: string[] }[];
}

/** Returns the text of `resources.json`. */
export function buildResources(): string {
  const rows: ResourceRow[] = [];
  const list = (word: string): string[] => (word === '-' ? [] : word.split(','));
  for (const line of lines('resources.txt')) {
    const [
      g = '',
      version = '',
      path = '',
      kindWord = '',
      scope = '',
      singular = '',
      short = '',
      categories = '',
      verbs = '',
    ] = line.split(' ');
    const group = g === '-' ? '' : g;
    const [resource = '', subresource] = path.split('/');
    const kindParts = kindWord.split('/');
    const kind = kindParts.at(-1) ?? '';
    if (subresource === undefined) {
      rows.push({
        group,
        version,
        resource,
        kind,
        singular,
        shortNames: list(short),
        categories: list(categories),
        namespaced: scope === 'Namespaced',
        verbs: list(verbs),
        subresources: [],
      });
      continue;
    }
    const owner = rows.find((row) => row.group === group && row.version === version && row.resource === resource);
    if (owner === undefined) throw new Error(`${path} stands before its resource`);
    const foreign =
      kindParts.length === 3 ? { group: kindParts[0] ?? '', version: kindParts[1] ?? '' } : { group, version };
    owner.subresources.push({ name: subresource, ...foreign, kind, verbs: list(verbs) });
  }
  return `[\n${rows.map((row) => JSON.stringify(row)).join(',\n')}\n]\n`;
}

/** Returns the client package's class of a type: `V1Pod`, or `CoreV1Event` where two groups have the name. */
function modelName(type: string, known: ReadonlySet<string>): string | undefined {
  return modelNames(type).find((candidate) => known.has(candidate));
}

function modelType(type: string, known: ReadonlySet<string>): string[] {
  if (type.startsWith('*[]')) return [`Array<${modelType(type.slice(3), known)[0]}>`];
  if (type.startsWith('[]')) return modelType(type.slice(2), known).map((inner) => `Array<${inner}>`);
  if (type.startsWith('map['))
    return modelType(type.slice(4, -1), known).map((inner) => `{ [key: string]: ${inner}; }`);
  switch (type) {
    case 'string':
    case 'bytes':
    case 'quantity':
    case 'duration':
      return ['string'];
    case 'bool':
      return ['boolean'];
    case 'int32':
    case 'int64':
    case 'double':
      return ['number'];
    case 'time':
      return ['Date', 'V1MicroTime'];
    case 'microTime':
      return ['V1MicroTime', 'Date'];
    case 'intOrString':
      return ['IntOrString'];
    default:
      return type in SCALARS ? ['any'] : [modelName(type, known) ?? 'any'];
  }
}

interface Attribute {
  baseName: string;
  type: string;
}

async function loadModels(): Promise<Map<string, readonly Attribute[]>> {
  const classes = new Map<string, readonly Attribute[]>();
  for (const file of readdirSync(models)) {
    if (!/^[A-Z].*\.js$/.test(file) || file === 'ObjectSerializer.js') continue;
    const module = (await import(new URL(file, models).href)) as Record<
      string,
      { attributeTypeMap?: readonly Attribute[] }
    >;
    for (const [name, value] of Object.entries(module)) {
      if (value.attributeTypeMap !== undefined) classes.set(name, value.attributeTypeMap);
    }
  }
  return classes;
}

/** Lists the differences between facts and models. */
export async function disagreements(): Promise<string[]> {
  const classes = await loadModels();
  const known = new Set(classes.keys());
  const wrong: string[] = [];
  for (const type of readTypes()) {
    const attributes = classes.get(modelName(type.name, known) ?? '');
    if (attributes === undefined) continue;
    const byName = new Map(attributes.map((attribute) => [attribute.baseName, attribute.type]));
    for (const field of type.fields) {
      const model = byName.get(field.name);
      if (model === undefined) wrong.push(`${type.name}.${field.name} is not in the models`);
      else if (!modelType(field.type, known).includes(model) && model !== 'any') {
        wrong.push(`${type.name}.${field.name} is ${field.type} in the facts and ${model} in the models`);
      }
      byName.delete(field.name);
    }
    for (const name of byName.keys()) wrong.push(`${type.name}.${name} is not in the facts`);
  }
  return wrong;
}

async function main(args: readonly string[]): Promise<number> {
  const misplaced = orderProblems();
  if (misplaced.length > 0) {
    process.stderr.write(
      `${misplaced.join('\n')}\norder= in api/schema/facts/types.txt lists the fields of a type as its Go struct declares them\n`,
    );
    return 1;
  }
  const wrong = await disagreements();
  if (wrong.length > 0) {
    process.stderr.write(
      `${wrong.join('\n')}\nA field must be in api/schema/facts/types.txt and in the models of @kubernetes/client-node, whose release is in package.json\n`,
    );
    return 1;
  }
  const outputs: [URL, string][] = [
    [new URL('api/schema/table.json', root), buildTable()],
    [new URL('api/schema/resources.json', root), buildResources()],
  ];
  for (const [file, text] of outputs) {
    if (!args.includes('--check')) writeFileSync(file, text);
    else if (readFileSync(file, 'utf8') !== text) {
      process.stderr.write(`${file.pathname} is not what the facts say: run scripts/generate-api\n`);
      return 1;
    }
  }
  return 0;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) process.exitCode = await main(process.argv.slice(2));
