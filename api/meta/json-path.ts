/** Writes paths in JSON values, by which errors name the value: `spec.containers[0].name`. */

/** Returns the path of keys (texts) and indexes (numbers); `''` is the whole value. */
export function jsonPath(parts: readonly (string | number)[]): string {
  let path = '';
  for (const part of parts) {
    if (typeof part === 'number') path += `[${part}]`;
    else path += path === '' ? part : `.${part}`;
  }
  return path;
}
