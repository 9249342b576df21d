/** Reads and writes members of objects whose keys come from outside, such as labels, annotations, data and quantities. */

/**
 * Returns the value of a key that the map itself has. `map[key]` would also find what every object inherits, such as a function
 * for the key `constructor`.
 */
export function ownMember<Value>(map: Readonly<Record<string, Value>> | undefined, key: string): Value | undefined {
  return map !== undefined && Object.hasOwn(map, key) ? map[key] : undefined;
}

/** Sets an own member of any name. A plain assignment to `__proto__` would replace the prototype. */
export function setMember(object: { [key: string]: unknown }, key: string, value: unknown): void {
  if (key === '__proto__')
    Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  else object[key] = value;
}
