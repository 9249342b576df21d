/** Decides whether the value at the path of an error is the same in the old object. */
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonValue } from '../../../api/meta/object.ts';
import { itemsOf, type JsonSchema, memberSchema } from './json-schema.ts';
import { KeyedItems } from './keyed-items.ts';

/** Serves one validation; the objects must not change meanwhile. */
export class Correlation {
  readonly #schema: JsonSchema;
  readonly #oldItems = new KeyedItems();
  /** The old value with which a new value was last compared, and the result, by the new value. */
  readonly #compared = new Map<object, { readonly old: JsonValue; readonly equal: boolean }>();

  constructor(schema: JsonSchema) {
    this.#schema = schema;
  }

  /**
   * Returns whether the value at the path is unchanged, or the innermost list or object around it if items of a list cannot be
   * matched or a member is missing. False for a value without a counterpart in `old`.
   */
  isUnchanged(path: string, object: JsonValue, old: JsonValue): boolean {
    if (path === '' || path === '<nil>') return this.#equal(object, old);
    let now: JsonValue | undefined = object;
    let then: JsonValue | undefined = old;
    let inner: JsonSchema | undefined = this.#schema;
    for (const [step] of path.matchAll(/[^.[\]]+|\[\d+\]/g)) {
      if (now === undefined || then === undefined) return false;
      if (step.startsWith('[')) {
        const at: JsonValue = now;
        const index = Number(step.slice(1, -1));
        const keys = inner?.['x-kubernetes-list-map-keys'];
        if (!Array.isArray(at) || !Array.isArray(then) || keys === undefined) return this.#equal(now, then);
        const item: JsonValue | undefined = at[index];
        if (!isJsonObject(item)) return false;
        then = this.#oldItems.find(then, keys, item);
        now = item;
        inner = inner === undefined ? undefined : itemsOf(inner);
      } else {
        if (!isJsonObject(now) || !isJsonObject(then)) return this.#equal(now, then);
        if (!Object.hasOwn(now, step)) return this.#equal(now, then);
        inner = inner === undefined ? undefined : memberSchema(inner, step);
        now = now[step];
        then = Object.hasOwn(then, step) ? then[step] : undefined;
      }
    }
    return now !== undefined && then !== undefined && this.#equal(now, then);
  }

  #equal(now: JsonValue, then: JsonValue): boolean {
    if (typeof now !== 'object' || now === null) return jsonEqual(now, then);
    const compared = this.#compared.get(now);
    if (compared !== undefined && compared.old === then) return compared.equal;
    const equal = jsonEqual(now, then);
    this.#compared.set(now, { old: then, equal });
    return equal;
  }
}
