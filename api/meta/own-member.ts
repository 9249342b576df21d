/** Looks up keys from outside in the maps of an object: labels, annotations, data, quantities. */

/**
 * Returns the value of a key that the map itself has. `map[key]` would also find what every object inherits, such as a function
 * for the key `constructor`.
 */
export function ownMember<Value>(map: Readonly<Record<string, Value>> | undefined, key: string): Value | undefined {
  return map !== undefined && Object.hasOwn(map, key) ? map[key] : undefined;
}
