/**
 * Makes responses of two servers comparable. Values that differ between any two runs (generated names, times, versions,
 * addresses, tokens) become placeholders.
 */
import { isObject, pick, type Variables } from './json-path.ts';

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;
const TIME = /\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d( \w+)?)/g;
const LONG_CHARS = 40;
const PORTS: ReadonlySet<string> = new Set(['nodePort', 'healthCheckNodePort']);
const ADDRESSES: ReadonlySet<string> = new Set(['clusterIP', 'podIP', 'hostIP']);

/** Returns the value with placeholders. `key` is the name of its member, and `parent` the object or list that holds it. */
export function normalize(value: unknown, variables: Variables, key?: string, parent?: unknown): unknown {
  if (typeof value === 'string') return normalizeText(value, variables, key, parent);
  if (typeof value === 'number') return key !== undefined && PORTS.has(key) && value !== 0 ? '<port>' : value;
  if (Array.isArray(value)) {
    return value.map((item: unknown) =>
      key === 'clusterIPs' && typeof item === 'string' && item !== 'None'
        ? '<ip>'
        : normalize(item, variables, undefined, value),
    );
  }
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((name) => [
        String(normalizeText(name, variables, undefined, undefined)),
        normalize(value[name], variables, name, value),
      ]),
  );
}

function normalizeText(text: string, variables: Variables, key: string | undefined, parent: unknown): string {
  if (text === '') return text;
  for (const [name, saved] of Object.entries(variables))
    if (name.startsWith('same') && saved === text) return `<${name}>`;
  if (key === 'resourceVersion' || key === 'selfLink') return text === '0' ? '0' : '<rv>';
  if (key === 'continue') return '<continue>';
  if (key === 'name' && isObject(parent)) {
    const prefix = parent['generateName'];
    if (typeof prefix === 'string' && text.startsWith(prefix) && text !== prefix) {
      return `<generated:${normalizeText(prefix, variables, undefined, undefined)}>`;
    }
  }
  let shown = text.replaceAll(/X509SHA256=[0-9a-f]{64}/g, 'X509SHA256=<hash>');
  for (const [name, saved] of Object.entries(variables)) {
    if (isScenarioValue(name) && saved !== undefined && saved !== '')
      shown = shown.split(String(saved)).join(`<${name}>`);
  }
  shown = shown
    .replaceAll(UUID, '<uid>')
    .replaceAll(TIME, '<time>')
    .replaceAll(/kube-api-access-[a-z0-9]{5}\b/g, 'kube-api-access-<suffix>')
    .replaceAll(/(resource version: )\d+( \()\d+(\))/g, '$1<rv>$2<rv>$3')
    .replaceAll(/(resource version: \d+, current: )\d+/g, '$1<rv>');
  if (key !== undefined && ADDRESSES.has(key)) shown = shown.replace(/^\d+\.\d+\.\d+\.\d+$/, '<ip>');
  if ((key === 'token' || key === 'certificate') && text.length > LONG_CHARS) return `<${key}>`;
  return shown;
}

function isScenarioValue(name: string): boolean {
  return name === 'ns' || name === 'id' || name === 'id6' || name.startsWith('webhook') || name.startsWith('secret');
}

/** Returns the parts of a body that a step compares: paths in JSON, or regular expressions in text. */
export function keepOnly(body: unknown, keep: readonly string[], variables: Variables): Record<string, unknown> {
  return Object.fromEntries(
    keep.map((path) => {
      const found = typeof body === 'string' ? (new RegExp(path).exec(body)?.[0] ?? null) : (pick(body, path) ?? null);
      return [String(normalize(path, variables)), normalize(found, variables, path.split('.').pop())];
    }),
  );
}

/** Sorts the lists whose order the API does not define. */
export function sortLists(body: unknown, paths: readonly string[]): unknown {
  for (const path of paths) {
    const direct = isObject(body) ? body[path] : undefined;
    const list = direct ?? pick(body, path);
    if (Array.isArray(list)) list.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  }
  return body;
}
