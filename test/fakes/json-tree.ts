/** Reads parsed JSON in tests without declaring its type: `at(body, 'items', 0, 'metadata', 'name')`. */

/** Returns the value at the keys, or `undefined` if there is none. */
export function at(value: unknown, ...keys: readonly (string | number)[]): unknown {
  let here: unknown = value;
  for (const key of keys) {
    if (typeof here !== 'object' || here === null) return undefined;
    here = (here as Record<string | number, unknown>)[key];
  }
  return here;
}

/** Returns the members of an object or the items of a list. */
export function members(value: unknown): [string, unknown][] {
  return typeof value === 'object' && value !== null ? Object.entries(value) : [];
}
