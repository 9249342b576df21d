/** Finds items of keyed lists by their keys. */
import { canonicalJson } from '../../../api/codec/structured-merge/path-element.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';

/** All lookups in a list must name the same keys, and the list must not change, because it is indexed once. */
export class KeyedItems {
  readonly #indexes = new Map<readonly JsonValue[], ReadonlyMap<string, JsonObject>>();

  /** Returns the first item of `list` that has the same keys as `item`, or `undefined` if there is none. */
  find(list: readonly JsonValue[], keys: readonly string[], item: JsonObject): JsonObject | undefined {
    let index = this.#indexes.get(list);
    if (index === undefined) {
      index = indexOf(list, keys);
      this.#indexes.set(list, index);
    }
    return index.get(keyText(item, keys));
  }
}

function indexOf(list: readonly JsonValue[], keys: readonly string[]): ReadonlyMap<string, JsonObject> {
  const index = new Map<string, JsonObject>();
  for (const item of list) {
    if (!isJsonObject(item)) continue;
    const text = keyText(item, keys);
    if (!index.has(text)) index.set(text, item);
  }
  return index;
}

/** Returns the key values of an item as one text. An absent key differs from one that is null. */
const keyText = (item: JsonObject, keys: readonly string[]): string =>
  keys
    .map((key) => (Object.hasOwn(item, key) ? item[key] : undefined))
    .map((value) => (value === undefined ? '' : canonicalJson(value)))
    .join(',');
