/** Defines the static types of CEL and their compatibility. `dyn` is compatible with every type and is resolved at run time. */

type SimpleKind =
  | 'dyn'
  | 'error'
  | 'null'
  | 'bool'
  | 'int'
  | 'uint'
  | 'double'
  | 'string'
  | 'bytes'
  | 'timestamp'
  | 'duration';

/**
 * A static type. `param` stands for a type that the arguments of a call determine; `error` follows a fault and hides others.
 */
export type CelType =
  | { readonly kind: SimpleKind }
  /** A type as a value; `of` is which type it is, if that is known. */
  | { readonly kind: 'type'; readonly of?: CelType }
  | { readonly kind: 'list'; readonly item: CelType }
  | { readonly kind: 'map'; readonly key: CelType; readonly value: CelType }
  | { readonly kind: 'optional'; readonly of: CelType }
  | { readonly kind: 'opaque'; readonly name: string }
  /** `field` returns `undefined` if the type has no such field. */
  | { readonly kind: 'object'; readonly name: string; readonly field: (name: string) => CelType | undefined }
  | { readonly kind: 'param'; readonly name: string };

// The types without parameters.
export const dyn: CelType = { kind: 'dyn' };
export const bool: CelType = { kind: 'bool' };
export const int: CelType = { kind: 'int' };
export const uint: CelType = { kind: 'uint' };
export const double: CelType = { kind: 'double' };
export const string: CelType = { kind: 'string' };
export const bytes: CelType = { kind: 'bytes' };
export const nullType: CelType = { kind: 'null' };
export const timestamp: CelType = { kind: 'timestamp' };
export const duration: CelType = { kind: 'duration' };
/** Returns the type of a type as a value. */
export const typeOfType = (of: CelType): CelType => ({ kind: 'type', of });
export const errorType: CelType = { kind: 'error' };
/** Returns the type of lists with these items. */
export const list = (item: CelType): CelType => ({ kind: 'list', item });
/** Returns the type of maps. */
export const map = (key: CelType, value: CelType): CelType => ({ kind: 'map', key, value });
/** Returns the type of optional values. */
export const optional = (of: CelType): CelType => ({ kind: 'optional', of });
/** Returns a type of a library, which is known by its name alone. */
export const opaque = (name: string): CelType => ({ kind: 'opaque', name });
/** Returns a type parameter of an overload. */
export const param = (name: string): CelType => ({ kind: 'param', name });

/** Returns the name of the type in messages of cel-go. */
export function showType(type: CelType): string {
  switch (type.kind) {
    case 'list':
      return `list(${showType(type.item)})`;
    case 'map':
      return `map(${showType(type.key)}, ${showType(type.value)})`;
    case 'optional':
      return `optional_type(${showType(type.of)})`;
    case 'type':
      return type.of === undefined ? 'type' : `type(${showType(type.of)})`;
    case 'opaque':
    case 'object':
    case 'param':
      return type.name;
    case 'timestamp':
      return 'timestamp';
    case 'null':
      return 'null';
    case 'error':
      return '!error!';
    default:
      return type.kind;
  }
}

/** The type of the elements of an empty list or map, which is equivalent to every type. */
export const unbound: CelType = { kind: 'param', name: 'dyn' };

type Bindings = Map<string, CelType>;

/** Whether `actual` is assignable to `wanted`. Binds the type parameters of `wanted`. */
export function fits(wanted: CelType, actual: CelType, bound: Bindings = new Map()): boolean {
  if (wanted === unbound) return true;
  if (wanted.kind === 'param') {
    const boundType = bound.get(wanted.name);
    if (boundType === undefined || boundType.kind === 'dyn') {
      bound.set(wanted.name, actual);
      return true;
    }
    return fits(boundType, actual, bound) || fits(actual, boundType, bound);
  }
  if (isOpen(wanted) || isOpen(actual)) return true;
  if (actual.kind === 'null') {
    return ['null', 'object', 'optional', 'opaque', 'timestamp', 'duration'].includes(wanted.kind);
  }
  switch (wanted.kind) {
    case 'list':
      return actual.kind === 'list' && fits(wanted.item, actual.item, bound);
    case 'map':
      if (actual.kind === 'object') return false;
      return actual.kind === 'map' && fits(wanted.key, actual.key, bound) && fits(wanted.value, actual.value, bound);
    case 'optional':
      return actual.kind === 'optional' && fits(wanted.of, actual.of, bound);
    case 'opaque':
    case 'object':
      return actual.kind === wanted.kind && actual.name === wanted.name;
    default:
      return wanted.kind === actual.kind;
  }
}

/** Whether the types are the same. `unbound` is the same as every type, and `dyn` as `dyn` alone. */
export function isEquivalent(a: CelType, b: CelType): boolean {
  if (a === unbound || b === unbound) return true;
  if (a.kind === 'list') return b.kind === 'list' && isEquivalent(a.item, b.item);
  if (a.kind === 'map') return b.kind === 'map' && isEquivalent(a.key, b.key) && isEquivalent(a.value, b.value);
  if (a.kind === 'optional') return b.kind === 'optional' && isEquivalent(a.of, b.of);
  if (a.kind === 'type') {
    return b.kind === 'type' && (a.of === undefined || b.of === undefined || isEquivalent(a.of, b.of));
  }
  return isExactly(a, b);
}

/** Whether the types are the same. `dyn` equals no other type. Which type a type as a value is does not matter. */
export function isExactly(wanted: CelType, actual: CelType): boolean {
  switch (wanted.kind) {
    case 'list':
      return actual.kind === 'list' && isExactly(wanted.item, actual.item);
    case 'map':
      return actual.kind === 'map' && isExactly(wanted.key, actual.key) && isExactly(wanted.value, actual.value);
    case 'optional':
      return actual.kind === 'optional' && isExactly(wanted.of, actual.of);
    case 'opaque':
    case 'object':
    case 'param':
      return actual.kind === wanted.kind && actual.name === wanted.name;
    default:
      return wanted.kind === actual.kind;
  }
}

/** Whether the type is decided at run time. */
export const isOpen = (type: CelType): boolean => type.kind === 'dyn' || type.kind === 'error' || type.kind === 'param';

/** Replaces type parameters except `unbound`. Those that have no type become `dyn`. */
export function substitute(type: CelType, bound: Bindings): CelType {
  switch (type.kind) {
    case 'param':
      return type === unbound ? type : (bound.get(type.name) ?? dyn);
    case 'list':
      return list(substitute(type.item, bound));
    case 'map':
      return map(substitute(type.key, bound), substitute(type.value, bound));
    case 'optional':
      return optional(substitute(type.of, bound));
    case 'type':
      return type.of === undefined ? type : typeOfType(substitute(type.of, bound));
    default:
      return type;
  }
}

/** Returns the common type of two values. */
export function join(a: CelType | undefined, b: CelType): CelType {
  if (a === undefined) return b;
  if (a.kind === 'null') return b;
  if (b.kind === 'null') return a;
  if (isOpen(a) || isOpen(b) || !fits(a, b) || !fits(b, a)) return dyn;
  return isMoreGeneral(a, b) ? a : b;
}

/** Whether the type has `dyn` where the other type, which it fits, has a type. Two equal types are as general. */
function isMoreGeneral(a: CelType, b: CelType): boolean {
  if (isOpen(a)) return a !== unbound;
  if (isOpen(b)) return b === unbound;
  if (a.kind === 'list' && b.kind === 'list') return isMoreGeneral(a.item, b.item);
  if (a.kind === 'map' && b.kind === 'map') return isMoreGeneral(a.key, b.key) && isMoreGeneral(a.value, b.value);
  return a.kind !== 'optional' || b.kind !== 'optional' || isMoreGeneral(a.of, b.of);
}
