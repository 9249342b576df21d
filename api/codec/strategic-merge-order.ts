/**
 * The order of list items after a strategic merge: items of the patch in the patch's order, the server's own items in
 * theirs, and where both orders know an item the server's decides what comes first.
 */
import { jsonEqual } from '../meta/json-equality.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { newStatusError } from '../meta/status-error.ts';

/** With a merge key items are the same when their key is. */
function sameItem(a: JsonValue, b: JsonValue, mergeKey: string): boolean {
  if (mergeKey === '') return jsonEqual(a, b);
  return isObject(a) && isObject(b) && jsonEqual(a[mergeKey], b[mergeKey]);
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const indexIn = (list: readonly JsonValue[], item: JsonValue, mergeKey: string): number =>
  list.findIndex((other) => sameItem(other, item, mergeKey));

export function orderElements(
  merged: readonly JsonValue[],
  patchOrder: readonly JsonValue[],
  serverOrder: readonly JsonValue[],
  mergeKey: string,
): JsonValue[] {
  const ranked = merged.map((item) => ({
    item,
    inPatch: indexIn(patchOrder, item, mergeKey),
    onServer: indexIn(serverOrder, item, mergeKey),
  }));
  const fromPatch = ranked.filter((one) => one.inPatch >= 0).sort((a, b) => a.inPatch - b.inPatch);
  const serverOnly = ranked.filter((one) => one.inPatch < 0).sort((a, b) => a.onServer - b.onServer);
  const ordered: JsonValue[] = [];
  let left = 0;
  let right = 0;
  while (left < serverOnly.length || right < fromPatch.length) {
    const own = serverOnly[left];
    const patched = fromPatch[right];
    const ownFirst =
      own !== undefined &&
      (patched === undefined || (own.onServer >= 0 && patched.onServer >= 0 && own.onServer < patched.onServer));
    if (ownFirst) {
      ordered.push(own.item);
      left++;
    } else if (patched !== undefined) {
      ordered.push(patched.item);
      right++;
    }
  }
  return ordered;
}

/** Items of a patch must stand in `$setElementOrder` too, in the same order. */
export function checkSetElementOrder(
  patch: readonly JsonValue[] | undefined,
  order: readonly JsonValue[],
  mergeKey: string,
): void {
  let at = 0;
  for (const item of patch ?? []) {
    if (isObject(item) && item['$patch'] !== undefined) continue;
    while (at < order.length && !sameItem(order[at] ?? null, item, mergeKey)) at++;
    if (at < order.length) {
      at++;
      continue;
    }
    const message = `The order in patch list:\n${goText([...(patch ?? [])])}\n doesn't match $setElementOrder list:\n${goText([...order])}\n`;
    throw newStatusError(500, '', message);
  }
}

/** A value as Go's `%v` prints it: `map[a:1 b:x]`, `[1 2]`. */
export function goText(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return '<nil>';
  if (Array.isArray(value)) return `[${value.map(goText).join(' ')}]`;
  if (!isObject(value)) return String(value);
  const members = Object.keys(value).sort();
  return `map[${members.map((key) => `${key}:${goText(value[key])}`).join(' ')}]`;
}
