/**
 * Orders list items after a strategic merge. The items of the patch keep the order of the patch, and the items of the server
 * keep theirs.
 */
import { jsonEqual } from '../meta/json-equality.ts';
import { isJsonObject } from '../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { newErrorWithoutReason, type StatusError } from '../meta/status-error.ts';

/** Whether two items are the same. With a merge key, they are if their keys are equal. */
function sameItem(a: JsonValue, b: JsonValue, mergeKey: string): boolean {
  if (mergeKey === '') return jsonEqual(a, b);
  return isJsonObject(a) && isJsonObject(b) && jsonEqual(a[mergeKey], b[mergeKey]);
}

/** Returns a text that is the same for equal scalars, or `undefined` for lists and objects, which must be compared. */
function scalarText(value: JsonValue | undefined): string | undefined {
  if (typeof value === 'object' && value !== null) return undefined;
  if (typeof value === 'number' && Number.isInteger(value)) return `bigint ${BigInt(value)}`;
  return `${typeof value} ${String(value)}`;
}

/** Finds items in a growing list. */
export class ItemIndex {
  readonly #mergeKey: string;
  readonly #scalars = new Map<string, number>();
  readonly #others: { readonly identity: JsonValue | undefined; readonly at: number }[] = [];
  #length = 0;

  constructor(items: readonly JsonValue[], mergeKey: string) {
    this.#mergeKey = mergeKey;
    for (const item of items) this.push(item);
  }

  push(item: JsonValue): void {
    const at = this.#length++;
    if (this.#mergeKey !== '' && !isJsonObject(item)) return;
    const identity = this.#identity(item);
    const text = scalarText(identity);
    if (text === undefined) this.#others.push({ identity, at });
    else if (!this.#scalars.has(text)) this.#scalars.set(text, at);
  }

  /** Returns the index of the first item that is the same, or -1. */
  indexOf(item: JsonValue): number {
    if (this.#mergeKey !== '' && !isJsonObject(item)) return -1;
    const identity = this.#identity(item);
    const text = scalarText(identity);
    if (text !== undefined) return this.#scalars.get(text) ?? -1;
    return this.#others.find((other) => jsonEqual(other.identity, identity))?.at ?? -1;
  }

  #identity(item: JsonValue): JsonValue | undefined {
    return this.#mergeKey !== '' && isJsonObject(item) ? item[this.#mergeKey] : item;
  }
}

/** Returns the merged items in their order. `mergeKey` is '' for lists of scalars. */
export function orderElements(
  merged: readonly JsonValue[],
  patchOrder: readonly JsonValue[],
  serverOrder: readonly JsonValue[],
  mergeKey: string,
): JsonValue[] {
  const patched = new ItemIndex(patchOrder, mergeKey);
  const served = new ItemIndex(serverOrder, mergeKey);
  const ranked = merged.map((item) => ({ item, inPatch: patched.indexOf(item), onServer: served.indexOf(item) }));
  const fromPatch = ranked.filter((one) => one.inPatch >= 0).sort((a, b) => a.inPatch - b.inPatch);
  const serverOnly = inServerOrder(ranked.filter((one) => one.inPatch < 0));
  const ordered: JsonValue[] = [];
  let left = 0;
  let right = 0;
  while (left < serverOnly.length || right < fromPatch.length) {
    const serverItem = serverOnly[left];
    const next = fromPatch[right];
    const serverFirst =
      serverItem !== undefined &&
      (next === undefined || (serverItem.onServer >= 0 && next.onServer >= 0 && serverItem.onServer < next.onServer));
    if (serverFirst) {
      ordered.push(serverItem.item);
      left++;
    } else if (next !== undefined) {
      ordered.push(next.item);
      right++;
    }
  }
  return ordered;
}

interface Placed {
  readonly onServer: number;
}

/** Up to this length, Go sorts a list by insertion. */
const INSERTION_LENGTH = 20;

/**
 * Sorts by the place on the server. For kube-apiserver an item that the server lacks is less than any other one, so the result
 * depends on how Go sorts. Short lists have the same order here.
 */
function inServerOrder<T extends Placed>(items: T[]): T[] {
  if (items.length > INSERTION_LENGTH || items.every(({ onServer }) => onServer >= 0))
    return items.sort((a, b) => a.onServer - b.onServer);
  const isLess = (a: Placed, b: Placed): boolean => a.onServer < 0 || b.onServer < 0 || a.onServer < b.onServer;
  const sorted: T[] = [];
  for (const item of items) {
    let at = sorted.length;
    for (let left = sorted[at - 1]; left !== undefined && isLess(item, left); left = sorted[at - 1]) at--;
    sorted.splice(at, 0, item);
  }
  return sorted;
}

/**
 * Requires that `$setElementOrder` contains the items of the patch in the same order, unless one of the lists is empty. Throws
 * a 500 without a reason otherwise, and for an item without its key.
 */
export function checkSetElementOrder(
  patch: readonly JsonValue[] | undefined,
  order: readonly JsonValue[],
  mergeKey: string,
): void {
  if (order.length === 0 || patch === undefined || patch.length === 0) return;
  const placed = mergeKey === '' ? patch : patch.filter((item) => requireMap(item)['$patch'] !== 'delete');
  let at = 0;
  let found = 0;
  while (found < placed.length && at < order.length) {
    const item = placed[found] ?? null;
    if (isJsonObject(item) && Object.hasOwn(item, '$patch')) {
      found++;
      continue;
    }
    if (hasSameKey(item, order[at] ?? null, mergeKey)) found++;
    at++;
  }
  if (found === placed.length) return;
  const message = `The order in patch list:\n${goText([...patch])}\n doesn't match $setElementOrder list:\n${goText([...order])}\n`;
  throw newErrorWithoutReason(message);
}

/** Whether two items have the same merge key. Both must have one. */
function hasSameKey(a: JsonValue, b: JsonValue, mergeKey: string): boolean {
  if (mergeKey === '') return jsonEqual(a, b);
  for (const item of [requireMap(a), requireMap(b)]) requireMergeKey(item, mergeKey);
  return sameItem(a, b, mergeKey);
}

/** Returns the item of a list, which must be an object. */
export function requireMap(item: JsonValue): JsonObject {
  if (!isJsonObject(item)) throw unexpectedType('map[string]interface {}', item);
  return item;
}

/** Requires that an item of a list that merges by key has the key. */
export function requireMergeKey(item: JsonObject, mergeKey: string): void {
  if (Object.hasOwn(item, mergeKey)) return;
  throw newErrorWithoutReason(`map: ${goText(item)} does not contain declared merge key: ${mergeKey}`);
}

/** Creates the error for a value of a patch that has the wrong type. */
export const unexpectedType = (expected: string, found: JsonValue | undefined): StatusError =>
  newErrorWithoutReason(`expected a ${expected}, but received a ${goTypeName(found)}`);

/** Returns the name of the Go type into which a JSON value is decoded. */
export function goTypeName(value: JsonValue | undefined): string {
  if (value === null || value === undefined) return '%!s(<nil>)';
  if (Array.isArray(value)) return '[]interface {}';
  if (typeof value === 'object') return 'map[string]interface {}';
  if (typeof value === 'bigint') return 'int64';
  if (typeof value === 'number') return Number.isInteger(value) ? 'int64' : 'float64';
  return typeof value === 'boolean' ? 'bool' : 'string';
}

/** Formats a value as Go's `%v` does: `map[a:1 b:x]`, `[1 2]`. */
export function goText(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return '<nil>';
  if (Array.isArray(value)) return `[${value.map(goText).join(' ')}]`;
  if (!isJsonObject(value)) return String(value);
  const members = Object.keys(value).sort();
  return `map[${members.map((key) => `${key}:${goText(value[key])}`).join(' ')}]`;
}
