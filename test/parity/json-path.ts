/**
 * Reads values by path (`items.0.metadata.name`, `groups.[name=apps].versions`, `data.k|base64`), and fills saved values into
 * templates.
 */

/** The saved values of a scenario by name. */
export type Variables = Record<string, unknown>;

/** Replaces `{{name}}` with the saved value, in texts, keys, lists and objects. */
export function fill<T>(value: T, variables: Variables): T {
  return fillAny(value, variables) as T;
}

function fillAny(value: unknown, variables: Variables): unknown {
  if (typeof value === 'string') {
    return value.replaceAll(/\{\{([\w.-]+)\}\}/g, (whole, name: string) =>
      name in variables ? String(variables[name]) : whole,
    );
  }
  if (Array.isArray(value)) return value.map((item) => fillAny(item, variables));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [String(fillAny(key, variables)), fillAny(item, variables)]),
  );
}

/** Returns the value at the path, or `undefined`. */
export function pick(value: unknown, path: string): unknown {
  const [keys = '', filter] = path.split('|');
  // A stream of a single document was parsed as that document.
  const single =
    keys.startsWith('stream.') && isObject(value) && value['type'] !== undefined && value['stream'] === undefined;
  let found: unknown = single ? { stream: [value] } : value;
  for (const key of keys.match(/\[[^\]]*\]|[^.]+/g) ?? []) {
    if (found === null || found === undefined) return undefined;
    const match = /^\[([\w.]+)=(.*)\]$/.exec(key);
    if (match !== null) {
      const [, field = '', wanted = ''] = match;
      found = Array.isArray(found) ? found.find((item) => String(pick(item, field)) === wanted) : undefined;
    } else found = (found as Record<string, unknown>)[key];
  }
  return filter === 'base64' && typeof found === 'string' ? Buffer.from(found, 'base64').toString('utf8') : found;
}

/** Whether a value is an object, and no list. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
