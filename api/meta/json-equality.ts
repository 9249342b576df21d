/**
 * Compares JSON values. Integers compare by value, whether they are numbers or bigints.
 *
 * `jsonEqual` is exact, except that `undefined` equals an absent member. `semanticEqual` also treats null, an empty
 * list and an empty object as absent, and compares quantities by value, like Kubernetes' `equality.Semantic.DeepEqual`.
 */
import { sameQuantity } from './quantity.ts';

/** Maps whose values are quantities. */
const QUANTITY_MAPS: ReadonlySet<string> = new Set([
  'allocatable',
  'allocatedResources',
  'capacity',
  'hard',
  'limits',
  'overhead',
  'requests',
  'used',
]);
const QUANTITIES: ReadonlySet<string> = new Set(['divisor', 'sizeLimit']);

/** Whether the values are the same JSON. */
export function jsonEqual(a: unknown, b: unknown): boolean {
  return equal(a, b, false, '', '');
}

/** Whether the values mean the same to Kubernetes. */
export function semanticEqual(a: unknown, b: unknown): boolean {
  return equal(a, b, true, '', '');
}

/**
 * Compares two values. `name` is the member that contains the values and `parent` is the member around it. Both are empty in
 * lists and at the root.
 */
function equal(a: unknown, b: unknown, isSemantic: boolean, name: string, parent: string): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) {
    if (isInteger(a) && isInteger(b)) return BigInt(a) === BigInt(b);
    if (!isSemantic) return false;
    if (typeof a !== 'string' || typeof b !== 'string') return isEmpty(a) && isEmpty(b);
    return (QUANTITY_MAPS.has(parent) || QUANTITIES.has(name)) && sameQuantity(a, b);
  }
  if (Array.isArray(a) || Array.isArray(b)) {
    if (!Array.isArray(a) || !Array.isArray(b)) return isSemantic && isEmpty(a) && isEmpty(b);
    if (a.length !== b.length) return false;
    for (let i = 0; i < a.length; i++) {
      if (!equal(a[i], b[i], isSemantic, '', '')) return false;
    }
    return true;
  }
  return equalMembers(a as Record<string, unknown>, b as Record<string, unknown>, isSemantic, name);
}

function equalMembers(
  a: Record<string, unknown>,
  b: Record<string, unknown>,
  isSemantic: boolean,
  name: string,
): boolean {
  for (const key of Object.keys(a)) {
    const other = Object.hasOwn(b, key) ? b[key] : undefined;
    if (!equal(a[key], other, isSemantic, key, name)) return false;
  }
  for (const key of Object.keys(b)) {
    if (!Object.hasOwn(a, key) && !equal(undefined, b[key], isSemantic, key, name)) return false;
  }
  return true;
}

function isInteger(value: unknown): value is number | bigint {
  return typeof value === 'bigint' || (typeof value === 'number' && Number.isInteger(value));
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  if (typeof value !== 'object') return false;
  if (Array.isArray(value)) return value.length === 0;
  for (const key of Object.keys(value)) {
    if ((value as Record<string, unknown>)[key] !== undefined) return false;
  }
  return true;
}

/** Copies a JSON value. */
export function cloneJson<T>(value: T): T {
  return cloneValue(value) as T;
}

function cloneValue(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(cloneValue);
  // The spread defines every member, `__proto__` as well, as an own member. An assignment to an own member keeps it one.
  const copy: Record<string, unknown> = { ...value };
  for (const key in copy) {
    const member = copy[key];
    if (typeof member === 'object' && member !== null) copy[key] = cloneValue(member);
  }
  return copy;
}
