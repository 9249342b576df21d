/** Reads and writes members of objects whose keys come from outside, such as labels, annotations, data and quantities. */

/**
 * Returns the value of a key that the map itself has. `map[key]` would also find what every object inherits, such as a function
 * for the key `constructor`.
 */
export function ownMember<Value>(map: Readonly<Record<string, Value>> | undefined, key: string): Value | undefined {
  return map !== undefined && Object.hasOwn(map, key) ? map[key] : undefined;
}

/** Sets a member, even if its key is `__proto__`. */
export function setMember(object: { [key: string]: unknown }, key: string, value: unknown): void {
  if (key === '__proto__')
    Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  else object[key] = value;
}
