/**
 * Implements the selectors and patches of the fake client, limited to the simple forms that the informers and controllers use.
 */
import type { KubeObject } from '../../api/meta/object.ts';
import type { PatchType } from '../../api/client/client.ts';

/** Supports `a=b`, `a!=b`, `a`, `!a` and `a in (b,c)`, separated by commas. */
export function matchesLabels(selector: string | undefined, object: KubeObject): boolean {
  if (selector === undefined || selector === '') return true;
  const labels = object.metadata.labels ?? {};
  return (selector.match(/(?:[^,(]|\([^)]*\))+/g) ?? []).every((term) => {
    const set = /^\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*$/.exec(term);
    if (set !== null) {
      const values = (set[3] ?? '').split(',').map((value) => value.trim());
      return values.includes(labels[set[1] ?? ''] ?? '\0') === (set[2] === 'in');
    }
    const [, key = '', operator, value = ''] = /^\s*([^=!\s]+)\s*(!=|==?)\s*(\S*)\s*$/.exec(term) ?? [];
    if (operator !== undefined) return (labels[key] === value) === (operator !== '!=');
    const name = term.trim();
    return name.startsWith('!') ? !(name.slice(1) in labels) : name in labels;
  });
}

/** Supports `path=value` and `path!=value`, separated by commas. An absent field is ''. */
export function matchesFields(selector: string | undefined, object: KubeObject): boolean {
  if (selector === undefined || selector === '') return true;
  return selector.split(',').every((term) => {
    const [, path = '', operator, value = ''] = /^([^=!]+)(!=|==?)(.*)$/.exec(term) ?? [];
    let at: unknown = object;
    for (const step of path.split('.'))
      at = typeof at === 'object' && at !== null ? (at as Record<string, unknown>)[step] : undefined;
    return ((at === undefined ? '' : String(at)) === value) === (operator !== '!=');
  });
}

type Json = Record<string, unknown>;

/**
 * Applies a merge patch, or a JSON patch with add, remove, replace and test. `strategic` also merges lists whose items have
 * `type`, `name`, `uid` or `key`.
 */
export function applyTestPatch(object: KubeObject, type: PatchType, patch: unknown): KubeObject {
  if (type === 'json') return applyOperations(object, patch as { op: string; path: string; value?: unknown }[]);
  return merge(object as Json, patch as Json, type === 'strategic') as unknown as KubeObject;
}

function merge(target: Json, patch: Json, strategic: boolean): Json {
  for (const [key, value] of Object.entries(patch)) {
    if (key.startsWith('$deleteFromPrimitiveList/')) {
      const list = key.slice(key.indexOf('/') + 1);
      target[list] = (Array.isArray(target[list]) ? (target[list] as unknown[]) : []).filter(
        (entry) => !(value as unknown[]).includes(entry),
      );
    }
    if (key.startsWith('$')) continue;
    if (value === null) delete target[key];
    else if (Array.isArray(value)) target[key] = strategic ? mergeList(target[key], value) : value;
    else if (typeof value === 'object') {
      const inner = target[key];
      target[key] = merge(isMap(inner) ? inner : {}, value as Json, strategic);
    } else target[key] = value;
  }
  return target;
}

function mergeList(current: unknown, patch: unknown[]): unknown[] {
  const list = Array.isArray(current) ? [...(current as unknown[])] : [];
  const key = ['uid', 'type', 'name', 'key'].find((name) => patch.every((entry) => isMap(entry) && name in entry));
  if (key === undefined)
    return patch.every((entry) => typeof entry === 'string') ? [...new Set([...list, ...patch])] : patch;
  for (const entry of patch as Json[]) {
    const at = list.findIndex((other) => isMap(other) && other[key] === entry[key]);
    if (entry['$patch'] === 'delete') {
      if (at >= 0) list.splice(at, 1);
    } else if (at < 0) list.push(entry);
    else list[at] = merge({ ...(list[at] as Json) }, entry, true);
  }
  return list;
}

function isMap(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function applyOperations(object: KubeObject, operations: { op: string; path: string; value?: unknown }[]): KubeObject {
  for (const { op, path, value } of operations) {
    const steps = path
      .split('/')
      .slice(1)
      .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
    const last = steps.pop() ?? '';
    let at: unknown = object;
    for (const step of steps) at = (at as Json)[step];
    const parent = at as Json;
    if (op === 'test') {
      if (JSON.stringify(parent[last]) !== JSON.stringify(value)) throw new Error(`test of ${path} failed`);
    } else if (Array.isArray(parent)) {
      if (op === 'remove') parent.splice(Number(last), 1);
      else if (op === 'add') parent.splice(last === '-' ? parent.length : Number(last), 0, value);
      else parent[Number(last)] = value;
    } else if (op === 'remove') delete parent[last];
    else parent[last] = value;
  }
  return object;
}
