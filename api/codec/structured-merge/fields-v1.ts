/**
 * Encodes and decodes `FieldsV1`, the wire form of a field set: nested objects with path elements as keys, and `.` for a path
 * that is in the set and has others below it.
 */
import type { JsonObject } from '../../meta/object.ts';
import { type FieldSet, FieldSetBuilder } from './field-set.ts';
import { compareElements, normalizeElement, pathText } from './path-element.ts';

/** Returns the field set of a wire form. Throws an `Error` if the value is not one. */
export function decodeFieldsV1(fields: JsonObject): FieldSet {
  const root = new FieldSetBuilder();
  if (decodeInto(root, fields)) root.wire = fields;
  return root;
}

/**
 * Adds the decoded fields to `target`. Returns whether all path elements are in the form that this program writes. Throws an
 * `Error` if they are not a field set.
 */
function decodeInto(target: FieldSetBuilder, fields: JsonObject): boolean {
  let isCanonical = true;
  for (const key of Object.keys(fields)) {
    if (key === '.') {
      target.owned = true;
      continue;
    }
    const element = normalizeElement(key);
    if (element === undefined) throw new Error(`failed to decode the path element ${key}`);
    if (element !== key) isCanonical = false;
    const value = fields[key];
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new Error(`failed to decode the fields below ${key}`);
    }
    if (Object.keys(value).length === 0) target.own(element);
    else if (!decodeInto(target.child(element), value)) isCanonical = false;
  }
  return isCanonical;
}

/** Returns the wire form, which is shared and must not be changed. */
export function encodeFieldsV1(set: FieldSet): JsonObject {
  if (set.wire !== undefined) return set.wire;
  if (set.children === undefined) return NO_FIELDS;
  const fields: JsonObject = {};
  if (set.owned) fields['.'] = NO_FIELDS;
  for (const element of orderedElements(set)) {
    const child = set.children.get(element);
    if (child !== undefined) fields[element] = encodeFieldsV1(child);
  }
  return fields;
}

/** The wire form of a path that has none below it. It is shared and must not be modified. */
export const NO_FIELDS: JsonObject = Object.freeze({});

const orderedElements = (set: FieldSet): string[] => sortElements([...(set.children?.keys() ?? [])]);

/** Sorts elements of one node, in place. */
export function sortElements(elements: string[]): string[] {
  if (elements.length < 2) return elements;
  return elements.every(comparesAsText) ? sortTexts(elements) : elements.sort(compareElements);
}

/** Up to this number of texts, insertion takes less time and memory than `Array.prototype.sort`. */
const FEW = 24;

/** Sorts by UTF-16 code units, in place. */
export function sortTexts(texts: string[]): string[] {
  if (texts.length > FEW) return texts.sort();
  for (let end = 1; end < texts.length; end++) {
    const text = texts[end] ?? '';
    let at = end;
    for (; at > 0 && (texts[at - 1] ?? '') > text; at--) texts[at] = texts[at - 1] ?? '';
    texts[at] = text;
  }
  return texts;
}

/** Whether the elements can be compared as text: fields, and keys and values that are texts. */
function comparesAsText(element: string, _index: number, all: readonly string[]): boolean {
  if (element.charAt(0) !== (all[0] ?? '').charAt(0)) return false;
  switch (element.charAt(0)) {
    case 'f':
      return true;
    case 'k':
      return element.charAt(element.indexOf('":') + 2) === '"';
    case 'v':
      return element.charAt(2) === '"';
    default:
      return false;
  }
}

/** Yields the paths of a set as messages list them: the paths of one level come before those below it. */
export function* pathTexts(set: FieldSet, prefix: readonly string[] = []): Generator<string, void, undefined> {
  const elements = orderedElements(set);
  for (const element of elements) {
    if (set.children?.get(element)?.owned === true) yield pathText([...prefix, element]);
  }
  for (const element of elements) {
    const child = set.children?.get(element);
    if (child?.children !== undefined) yield* pathTexts(child, [...prefix, element]);
  }
}
