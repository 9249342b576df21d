/**
 * Handles the text forms of path elements: the list item that a key names, the order of elements, and the form of a path in
 * messages.
 */
import { quoteText } from '../../meta/quote.ts';
import { JsonSyntaxError, parseJson, stringifyJson } from '../json.ts';
import { quote } from '../../meta/field-error.ts';
import { isJsonObject } from '../../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../meta/object.ts';

/** Returns the path element of an item of a set. */
export const valueElement = (value: JsonValue): string => `v:${canonicalJson(value)}`;

/** Encodes JSON with sorted members, and integers without a fraction. */
export function canonicalJson(value: JsonValue | undefined): string {
  if (typeof value === 'string') return quoteText(value);
  if (typeof value === 'bigint') return value.toString();
  if (value === undefined || value === null) return 'null';
  if (typeof value !== 'object') return stringifyJson(value);
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${quoteText(name)}:${canonicalJson(value[name])}`).join(',')}}`;
}

/** Returns the canonical form of an element from another client, or `undefined` if it is not a path element. */
export function normalizeElement(element: string): string | undefined {
  const content = element.slice(2);
  switch (element.slice(0, 2)) {
    case 'f:':
      return element;
    case 'i:':
      return /^-?[0-9]+$/.test(content) ? element : undefined;
    case 'v:': {
      const value = parse(content);
      return value === undefined ? undefined : `v:${canonicalJson(value)}`;
    }
    case 'k:': {
      // Nearly all keys have one member with a plain text, which has only one form.
      if (/^\{"[A-Za-z]+":"[^"\\<>&\s]*"\}$/.test(content)) return element;
      const value = parse(content);
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
      return `k:${canonicalJson(value)}`;
    }
    default:
      return undefined;
  }
}

function parse(text: string): JsonValue | undefined {
  try {
    return parseJson(text).value;
  } catch (error) {
    if (error instanceof JsonSyntaxError) return undefined;
    throw error;
  }
}

const RANKS: ReadonlyMap<string, number> = new Map(Object.entries({ f: 0, k: 1, v: 2, i: 3 }));

/** Orders fields by name, and then keys, values and indices by their content. */
export function compareElements(a: string, b: string): number {
  const rank = (RANKS.get(a.charAt(0)) ?? 4) - (RANKS.get(b.charAt(0)) ?? 4);
  if (rank !== 0) return rank;
  switch (a.charAt(0)) {
    case 'k':
      return compareKeys(parse(a.slice(2)) as JsonObject, parse(b.slice(2)) as JsonObject);
    case 'v':
      return compareValues(parse(a.slice(2)) ?? null, parse(b.slice(2)) ?? null);
    case 'i':
      return Number(a.slice(2)) - Number(b.slice(2));
    default:
      return a < b ? -1 : a > b ? 1 : 0;
  }
}

function compareKeys(a: JsonObject, b: JsonObject): number {
  const namesA = Object.keys(a).sort();
  const namesB = Object.keys(b).sort();
  for (const [index, name] of namesA.entries()) {
    const other = namesB[index];
    if (other === undefined) return 1;
    if (name !== other) return name < other ? -1 : 1;
    const order = compareValues(a[name] ?? null, b[other] ?? null);
    if (order !== 0) return order;
  }
  return namesA.length - namesB.length;
}

const TYPE_RANKS: ReadonlyMap<string, number> = new Map(Object.entries({ number: 0, string: 1, boolean: 2 }));

function compareValues(a: JsonValue, b: JsonValue): number {
  const rank = (TYPE_RANKS.get(typeof a) ?? 3) - (TYPE_RANKS.get(typeof b) ?? 3);
  if (rank !== 0) return rank;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  if (typeof a === 'boolean' && typeof b === 'boolean') return Number(a) - Number(b);
  const textA = typeof a === 'string' ? a : canonicalJson(a);
  const textB = typeof b === 'string' ? b : canonicalJson(b);
  return textA < textB ? -1 : textA > textB ? 1 : 0;
}

/** Formats a path, for example `.spec.containers[name="a"].image`. */
export function pathText(elements: readonly string[]): string {
  return elements.map(elementText).join('');
}

/** Returns the form of a path element in messages: `.name`, `[key=value]`, `[=value]` or `[0]`. */
export function elementText(element: string): string {
  const content = element.slice(2);
  switch (element.charAt(0)) {
    case 'k': {
      const keys = parse(content) as JsonObject;
      const texts = Object.keys(keys)
        .sort()
        .map((name) => `${name}=${valueText(keys[name])}`);
      return `[${texts.join(',')}]`;
    }
    case 'v':
      return `[=${valueText(parse(content))}]`;
    case 'i':
      return `[${content}]`;
    default:
      return `.${content}`;
  }
}

/** Formats a value as structured-merge-diff does, which writes the members of an object without brackets and separators. */
function valueText(value: JsonValue | undefined): string {
  if (typeof value === 'string') return quote(value);
  if (Array.isArray(value)) return `[${value.map(valueText).join(',')}]`;
  if (!isJsonObject(value)) return canonicalJson(value);
  return Object.keys(value)
    .sort()
    .map((name) => `${name}=${valueText(value[name])}`)
    .join('');
}
