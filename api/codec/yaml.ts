/**
 * Converts YAML to JSON values and back, in the dialect of Kubernetes clients: YAML 1.1 (`yes` and `on` are booleans, `014` is
 * twelve, `1_000` is a thousand). Dates stay strings, keys become strings, and `<<` merges.
 *
 * Of duplicate keys, the last value counts; `parseYaml` reports them with their lines. The depth, the number of values and the
 * size of expanded aliases are limited.
 */
import { capitalized } from '../meta/capitalized.ts';
import { quoteText } from '../meta/quote.ts';
import { trimEnd } from '../component/trim.ts';
import {
  EVENT_ID,
  NOT_RESOLVED,
  Schema,
  YAMLException,
  constructFromEvents,
  defineMappingTag,
  defineScalarTag,
  getScalarValue,
  mergeTag,
  seqTag,
  strTag,
  type Event,
} from 'js-yaml';
import type { JsonValue } from '../meta/object.ts';
import { setMember } from '../meta/own-member.ts';
import { MAX_VALUES, TOO_MANY_VALUES } from './limits.ts';
import { folded } from './yaml-fold.ts';
import { yamlErrorText } from './yaml-errors.ts';
import { MAX_DEPTH, eventsOf, firstDocument, keepMissingLineEnd } from './yaml-events.ts';
import { INT64_MAX, INT64_MIN } from '../meta/integers.ts';

/** The first document of a text. */
export interface ParsedYaml {
  readonly value: JsonValue;
  /** Messages such as `line 7: key "k" already set in map`. See `duplicates.ts`. */
  readonly duplicates: readonly string[];
}

/** The error for text that is not YAML (`yaml: line 3: …`), or has values that JSON or the limits do not allow. */
export class YamlSyntaxError extends Error {
  override readonly name = 'YamlSyntaxError';
}

// oxlint-disable-next-line no-control-regex -- go-yaml refuses control characters, also between quotes
const REFUSED = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u0084\u0086-\u009f\ufffe\uffff]/;
/** The maximum number of duplicate keys that are reported. */
const MAX_DUPLICATES = 100;
/** The longest key that go-yaml writes without `?` before it. */
const MAX_SIMPLE_KEY_BYTES = 128;

const BOOLEANS: ReadonlyMap<string, boolean> = new Map(
  (
    [
      ['y', true],
      ['yes', true],
      ['true', true],
      ['on', true],
      ['n', false],
      ['no', false],
      ['false', false],
      ['off', false],
    ] as const
  ).flatMap(([word, value]) => [
    [word, value],
    [capitalized(word), value],
    [word.toUpperCase(), value],
  ]),
);

const NULLS: ReadonlySet<string> = new Set(['', '~', 'null', 'Null', 'NULL']);
const FLOAT = /^[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?$/;
const INTEGER = /^([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9]\d*))$/;
const INFINITE = /^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/;

type ScalarValue = string | number | bigint | boolean | null;

/** Returns the value of a plain scalar, or `undefined` for a string. */
function resolvePlain(text: string): Exclude<ScalarValue, string> | undefined {
  if (NULLS.has(text)) return null;
  const boolean = BOOLEANS.get(text);
  if (boolean !== undefined) return boolean;
  if (!/^[-+.\d]/.test(text)) return undefined;
  if (INFINITE.test(text)) return Number.NaN;
  const plain = text.replaceAll('_', '');
  const integer = INTEGER.exec(plain);
  if (integer !== null) return integerOf(integer);
  const number = FLOAT.test(plain) ? Number(plain) : undefined;
  // A number that no double holds is a text, as in kube-apiserver.
  return number === undefined || Number.isFinite(number) ? number : undefined;
}

function integerOf([, sign, hex, binary, octal, decimal]: RegExpExecArray): number | bigint {
  const digits =
    hex !== undefined
      ? `0x${hex}`
      : binary !== undefined
        ? `0b${binary}`
        : octal !== undefined
          ? `0o${octal}`
          : decimal;
  const magnitude = BigInt(digits ?? '0');
  const exact = sign === '-' ? -magnitude : magnitude;
  const number = Number(exact);
  return Number.isSafeInteger(number) || exact > INT64_MAX || exact < INT64_MIN ? number : exact;
}

const plainTag = defineScalarTag<ScalarValue>('tag:yaml.org,2002:null', {
  implicit: true,
  identify: () => false,
  resolve: (source, isExplicit) => {
    if (isExplicit) return null;
    const value = resolveFinite(source);
    return value === undefined ? NOT_RESOLVED : value;
  },
});

/** Returns the value as `resolvePlain` does. Throws for infinities and NaN, which JSON does not have. */
function resolveFinite(text: string): ReturnType<typeof resolvePlain> {
  const value = resolvePlain(text);
  if (Number.isNaN(value)) throw new YamlSyntaxError(`json: unsupported value: ${text}`);
  return value;
}

/** Handles `!!int "5"` and similar tags: the text has its plain meaning, whatever tag is named. */
function explicitTag(name: string): ReturnType<typeof defineScalarTag<ScalarValue>> {
  return defineScalarTag<ScalarValue>(`tag:yaml.org,2002:${name}`, {
    identify: () => false,
    resolve: (source) => resolveFinite(source) ?? NOT_RESOLVED,
  });
}

const textTags = ['timestamp', 'binary'].map((name) =>
  defineScalarTag<string>(`tag:yaml.org,2002:${name}`, { identify: () => false, resolve: (source) => source }),
);

const mapTag = defineMappingTag<{ [key: string]: unknown }>('tag:yaml.org,2002:map', {
  create: () => ({}),
  addPair: (carrier, key, value) => {
    if (typeof key === 'object' && key !== null) return 'a key that is a map or a list';
    setMember(carrier, String(key), value);
    return '';
  },
  has: (carrier, key) => Object.hasOwn(carrier, String(key)),
  keys: (result) => Object.keys(result),
  get: (result, key) => result[String(key)],
  identify: () => false,
});

const schema = new Schema([
  strTag,
  plainTag,
  ...['bool', 'int', 'float'].map(explicitTag),
  ...textTags,
  mergeTag,
  seqTag,
  mapTag,
]);

/** Returns every document of the text. Throws `YamlSyntaxError`. */
export function parseYamlDocuments(text: string | Uint8Array): JsonValue[] {
  return load(sourceOf(text)).documents;
}

/**
 * Returns the first document, or null if there is none. The documents after it are not read, as in kube-apiserver. Throws
 * `YamlSyntaxError`.
 */
export function parseYaml(text: string | Uint8Array): ParsedYaml {
  const { documents, source, events } = load(firstDocument(sourceOf(text)));
  return { value: documents[0] ?? null, duplicates: findDuplicates(source, events) };
}

function sourceOf(text: string | Uint8Array): string {
  return typeof text === 'string' ? text : Buffer.from(text.buffer, text.byteOffset, text.byteLength).toString();
}

interface Loaded {
  readonly documents: JsonValue[];
  /** The text to which the events point. */
  readonly source: string;
  readonly events: readonly Event[];
}

/** Matches a tab in front of the first token, which js-yaml skips. Only spaces may indent. */
const LEADING_TAB = /^(?: *\n)* *\t/;

function load(original: string): Loaded {
  if (REFUSED.test(original)) throw new YamlSyntaxError('yaml: control characters are not allowed');
  if (LEADING_TAB.test(original)) throw new YamlSyntaxError('yaml: found character that cannot start any token');
  try {
    const { source, events } = eventsOf(original);
    refuseTooMany(events);
    keepMissingLineEnd(source, events);
    const documents = constructFromEvents([...events], { source, schema, json: true }) as JsonValue[];
    return { documents: source.includes('*') ? documents.map(unfold) : documents, source, events };
  } catch (error) {
    if (error instanceof YAMLException) throw new YamlSyntaxError(yamlErrorText(error), { cause: error });
    throw error;
  }
}

/** Throws if there are too many values. A key is an event of its own and counts, too. */
function refuseTooMany(events: readonly Event[]): void {
  if (events.length <= MAX_VALUES) return;
  let values = 0;
  for (const { type } of events) if (type !== EVENT_ID.POP) values += 1;
  if (values > 2 * MAX_VALUES) throw new YamlSyntaxError(`yaml: ${TOO_MANY_VALUES}`);
}

/** Copies the document, so that it is a tree. Throws for one that expands to too many values or contains itself. */
function unfold(document: JsonValue): JsonValue {
  let nodes = 0;
  const copy = (value: JsonValue, depth: number): JsonValue => {
    nodes += 1;
    if (nodes > MAX_VALUES || depth > MAX_DEPTH)
      throw new YamlSyntaxError('yaml: document contains excessive aliasing');
    if (Array.isArray(value)) return value.map((item) => copy(item, depth + 1));
    if (typeof value !== 'object' || value === null) return value;
    const out: { [key: string]: JsonValue } = {};
    for (const [key, member] of Object.entries(value)) {
      if (member !== undefined) setMember(out, key, copy(member, depth + 1));
    }
    return out;
  };
  return copy(document, 0);
}

interface OpenCollection {
  /** The keys so far. Absent for a sequence. */
  readonly keys: Set<string> | undefined;
  expectsKey: boolean;
}

function findDuplicates(source: string, events: readonly Event[]): string[] {
  const found: string[] = [];
  const open: OpenCollection[] = [];
  const closeNode = (): void => {
    const around = open.at(-1);
    if (around?.keys !== undefined) around.expectsKey = !around.expectsKey;
  };
  for (const event of events) {
    switch (event.type) {
      case EVENT_ID.MAPPING:
        open.push({ keys: new Set(), expectsKey: true });
        break;
      case EVENT_ID.SEQUENCE:
      case EVENT_ID.DOCUMENT:
        open.push({ keys: undefined, expectsKey: false });
        break;
      case EVENT_ID.POP:
        open.pop();
        closeNode();
        break;
      case EVENT_ID.SCALAR: {
        const around = open.at(-1);
        if (around?.expectsKey === true) noteKey(source, event, around, found);
        closeNode();
        break;
      }
      default:
        closeNode();
    }
  }
  return found;
}

function noteKey(
  source: string,
  event: Extract<Event, { valueStart: number }>,
  around: OpenCollection,
  found: string[],
): void {
  const key = getScalarValue(source, event);
  if (around.keys?.has(key) === true && found.length < MAX_DUPLICATES) {
    let line = 1;
    for (let at = source.indexOf('\n'); at !== -1 && at < event.valueStart; at = source.indexOf('\n', at + 1))
      line += 1;
    found.push(`line ${line}: key ${quoteText(key)} already set in map`);
  }
  around.keys?.add(key);
}

/** Encodes a value in block style with sorted keys. Lists are not indented under their key. */
export function stringifyYaml(value: unknown): string {
  return [...yamlParts(value)].join('');
}

/** Encodes a value as `stringifyYaml` does, in UTF-8. */
export function encodeYaml(value: unknown): Buffer {
  return Buffer.from(stringifyYaml(value));
}

/** Yields the text of `stringifyYaml` in parts of whole lines, so that a large value can be encoded in several turns. */
export function* yamlParts(value: unknown): Generator<string> {
  if (isScalar(value)) yield `${scalar(value, 0)}\n`;
  else yield* block(value as object, 0, '');
}

function isScalar(value: unknown): boolean {
  return typeof value !== 'object' || value === null || isEmptyCollection(value);
}

function isEmptyCollection(value: object): boolean {
  return Object.values(value).every((member) => member === undefined);
}

/** Yields the lines of a list or map in block style. */
function* block(value: object, indent: number, first: string): Generator<string> {
  const pad = ' '.repeat(indent);
  let lead = first;
  if (Array.isArray(value)) {
    for (const item of value as readonly unknown[]) {
      if (isScalar(item)) yield `${lead}- ${foldedScalar(item, indent, `${lead}- `)}\n`;
      else yield* block(item as object, indent + 2, `${lead}- `);
      lead = pad;
    }
    return;
  }
  const entries: [string, unknown][] = Object.entries(value).filter(([, member]) => member !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  for (const [key, member] of entries) {
    const simple = isSimpleKey(key);
    const name = `${lead}${simple ? '' : '? '}${scalar(key, indent)}${simple ? '' : `\n${pad}`}:`;
    lead = pad;
    if (isScalar(member)) yield `${name} ${foldedScalar(member, indent, `${name} `)}\n`;
    else if (!simple) yield* block(member as object, indent + 2, `${name} `);
    else {
      const inner = Array.isArray(member) ? indent : indent + 2;
      yield `${name}\n`;
      yield* block(member as object, inner, ' '.repeat(inner));
    }
  }
}

/**
 * Whether a key can be written without `?`. Parsers search for the colon of such a key only in its line and near its beginning.
 */
function isSimpleKey(key: string): boolean {
  return !key.includes('\n') && Buffer.byteLength(key) <= MAX_SIMPLE_KEY_BYTES;
}

function scalar(value: unknown, indent: number): string {
  if (typeof value === 'string') return text(value, indent);
  if (value === undefined || value === null) return 'null';
  if (typeof value === 'object') return Array.isArray(value) ? '[]' : '{}';
  return String(value);
}

/** Breaks a text of one line that makes its line too long. `before` is what stands before it. */
function foldedScalar(value: unknown, indent: number, before: string): string {
  const shown = scalar(value, indent);
  return typeof value === 'string' && !shown.startsWith('|') ? folded(shown, { before, indent: indent + 2 }) : shown;
}

// oxlint-disable-next-line no-control-regex -- it finds control characters
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u0084\u0086-\u009f\u2028\u2029\ufeff\ud800-\udfff]/;
const PLAIN = /^[^\s\-?:,[\]{}#&*!|>'"%@`][^\n]*$|^[-?:][^\s,[\]{}][^\n]*$/;

function text(value: string, indent: number): string {
  if (value === '') return '""';
  if (CONTROL.test(value.replaceAll(/[\ud800-\udbff][\udc00-\udfff]/g, '')) || value.includes('\t'))
    return quoteText(value);
  if (value.includes('\n')) return literal(value, indent);
  if (resolvePlain(value) !== undefined || /^\d{4}-\d\d?-\d\d?/.test(value) || value === '<<' || value === '=')
    return quoteText(value);
  if (PLAIN.test(value) && !/: |:$| #|\s$/.test(value) && !/^(?:---|\.\.\.)/.test(value)) return value;
  return `'${value.replaceAll("'", "''")}'`;
}

/** Returns a `|` block that keeps trailing newlines, or a quoted text where parsers would read a block differently. */
function literal(value: string, indent: number): string {
  const body = trimEnd(value, '\n');
  if (body === '' || /^[ \n]| \n| $/.test(body)) return quoteText(value);
  const newlines = value.length - body.length;
  const pad = ' '.repeat(indent + 2);
  const lines = body.split('\n').map((line) => (line === '' ? '' : pad + line));
  const chomp = newlines === 0 ? '-' : newlines === 1 ? '' : '+';
  return `|${chomp}\n${lines.join('\n')}${'\n'.repeat(Math.max(0, newlines - 1))}`;
}
