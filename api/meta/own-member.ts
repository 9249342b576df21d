/** Look-ups by text from outside in the maps of an object: labels, annotations, data, quantities. */

/**
 * The value of a key that the map itself has. `map[key]` would also find what every object inherits: a function for the key
 * `constructor`.
 */
export function ownMember<Value>(map: Readonly<Record<string, Value>> | undefined, key: string): Value | undefined {
  return map !== undefined && Object.hasOwn(map, key) ? map[key] : undefined;
}
