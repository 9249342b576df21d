/**
 * `FieldsV1`, the wire form of a field set: nested objects keyed by path element, `.` for a path that is in the set and
 * has others below it.
 */
import type { JsonObject } from '../../meta/object.ts';
import { type FieldSet, FieldSetBuilder } from './field-set.ts';
import { compareElements, normalizeElement, pathText } from './path-element.ts';

/** Sets already read, by the (shared, unchanging) object they were read from or written to. */
const known = new WeakMap<JsonObject, FieldSet>();

/** Throws an `Error` for what is no field set. */
export function decodeFieldsV1(fields: JsonObject): FieldSet {
  const seen = known.get(fields);
  if (seen !== undefined) return seen;
  const root = new FieldSetBuilder();
  decodeInto(root, fields);
  known.set(fields, root);
  return root;
}

function decodeInto(target: FieldSetBuilder, fields: JsonObject): void {
  for (const [key, value] of Object.entries(fields)) {
    if (key === '.') {
      target.owned = true;
      continue;
    }
    const element = normalizeElement(key);
    if (element === undefined) throw new Error(`failed to decode the path element ${key}`);
    const child = target.child(element);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new Error(`failed to decode the fields below ${key}`);
    }
    if (Object.keys(value).length === 0) child.owned = true;
    else decodeInto(child, value);
  }
}

export function encodeFieldsV1(set: FieldSet): JsonObject {
  const fields = encodeNode(set);
  known.set(fields, set);
  return fields;
}

function encodeNode(set: FieldSet): JsonObject {
  const fields: JsonObject = {};
  if (set.children === undefined) return fields;
  if (set.owned) fields['.'] = {};
  for (const element of orderedElements(set)) {
    const child = set.children.get(element);
    if (child !== undefined) fields[element] = encodeNode(child);
  }
  return fields;
}

function orderedElements(set: FieldSet): string[] {
  const elements = [...(set.children?.keys() ?? [])];
  if (elements.length < 2) return elements;
  // Fields are the common case, and compare as they are.
  return elements[0]?.startsWith('f:') ? elements.sort(compareFieldsFirst) : elements.sort(compareElements);
}

function compareFieldsFirst(a: string, b: string): number {
  if (a.startsWith('f:') && b.startsWith('f:')) return a < b ? -1 : 1;
  return compareElements(a, b);
}

/** The paths of a set as messages show them: what stands at one level before what lies below. */
export function pathTexts(set: FieldSet): string[] {
  const texts: string[] = [];
  collect(set, [], texts);
  return texts;
}

function collect(set: FieldSet, prefix: readonly string[], texts: string[]): void {
  const elements = orderedElements(set);
  for (const element of elements) {
    if (set.children?.get(element)?.owned === true) texts.push(pathText([...prefix, element]));
  }
  for (const element of elements) {
    const child = set.children?.get(element);
    if (child?.children !== undefined) collect(child, [...prefix, element], texts);
  }
}
