/**
 * Encodes and decodes `FieldsV1`, the wire form of a field set: nested objects with path elements as keys, and `.` for a path
 * that is in the set and has others below it.
 */
import type { JsonObject } from '../../meta/object.ts';
import { type FieldSet, FieldSetBuilder } from './field-set.ts';
import { compareElements, normalizeElement, pathText } from './path-element.ts';

/** Throws an `Error` if the value is not a field set. */
export function decodeFieldsV1(fields: JsonObject): FieldSet {
  const root = new FieldSetBuilder();
  if (decodeInto(root, fields)) root.wire = fields;
  return root;
}

/** Returns whether the fields are in the form that this program writes. */
function decodeInto(target: FieldSetBuilder, fields: JsonObject): boolean {
  let own = true;
  for (const key of Object.keys(fields)) {
    if (key === '.') {
      target.owned = true;
      continue;
    }
    const element = normalizeElement(key);
    if (element === undefined) throw new Error(`failed to decode the path element ${key}`);
    if (element !== key) own = false;
    const value = fields[key];
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new Error(`failed to decode the fields below ${key}`);
    }
    if (Object.keys(value).length === 0) target.own(element);
    else if (!decodeInto(target.child(element), value)) own = false;
  }
  return own;
}

/** Returns the wire form, which is shared and must not be changed. */
export function encodeFieldsV1(set: FieldSet): JsonObject {
  return set.wire ?? encodeNode(set);
}

/** The object is shared and must not be modified. */
const NOTHING: JsonObject = Object.freeze({});

function encodeNode(set: FieldSet): JsonObject {
  if (set.children === undefined) return NOTHING;
  const fields: JsonObject = {};
  if (set.owned) fields['.'] = NOTHING;
  for (const element of orderedElements(set)) {
    const child = set.children.get(element);
    if (child !== undefined) fields[element] = encodeNode(child);
  }
  return fields;
}

function orderedElements(set: FieldSet): string[] {
  const elements = [...(set.children?.keys() ?? [])];
  if (elements.length < 2) return elements;
  if (!elements.every(comparesAsText)) return elements.sort(compareElements);
  return elements.length <= FEW ? insertionSorted(elements) : elements.sort();
}

/**
 * Up to this number of elements, `insertionSorted` takes less time and memory than `Array.prototype.sort`. Most nodes of a
 * field set have fewer members.
 */
const FEW = 24;

/** Sorts in place by UTF-16 code units. */
function insertionSorted(elements: string[]): string[] {
  for (let end = 1; end < elements.length; end++) {
    const element = elements[end] ?? '';
    let at = end;
    for (; at > 0 && (elements[at - 1] ?? '') > element; at--) elements[at] = elements[at - 1] ?? '';
    elements[at] = element;
  }
  return elements;
}

/**
 * Whether the elements can be compared as text: fields, and keys and values that are texts. Their order is that of the texts,
 * which sorts fastest without a callback.
 */
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
