/** Reading parsed JSON in tests without saying its type: `at(body, 'items', 0, 'metadata', 'name')`. */

/** The value behind the keys; `undefined` where the way ends. */
export function at(value: unknown, ...keys: readonly (string | number)[]): unknown {
  let here: unknown = value;
  for (const key of keys) {
    if (typeof here !== 'object' || here === null) return undefined;
    here = (here as Record<string | number, unknown>)[key];
  }
  return here;
}

/** The members of an object, or the items of a list. */
export function members(value: unknown): [string, unknown][] {
  return typeof value === 'object' && value !== null ? Object.entries(value) : [];
}
