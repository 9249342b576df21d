/** Operates on a value of a type: returns its paths, validates it, and removes paths from it. */
import { setMember } from '../../meta/own-member.ts';
import { isJsonObject } from '../../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../meta/object.ts';
import type { Scalar } from '../../schema/schema.ts';
import { type FieldSet, FieldSetBuilder, isEmptySet } from './field-set.ts';
import { type MergeType, deduce, deduced, itemElement, PathElementError } from './merge-types.ts';
import { elementText } from './path-element.ts';
import { goSyntax, goType, goValue } from '../../meta/go-text.ts';

type ListType = Extract<MergeType, { kind: 'keyed' | 'set' }>;

/**
 * Returns the paths that a value sets. For an item that a list contains twice, only the item itself is returned. Throws
 * `PathElementError` for lists whose items have no keys.
 */
export function fieldSetOf(type: MergeType, value: JsonValue): FieldSet {
  const root = new FieldSetBuilder();
  collect(type, value, root);
  return root;
}

function collect(type: MergeType, value: JsonValue, set: FieldSetBuilder): void {
  switch (type.kind) {
    case 'leaf':
      set.owned = true;
      return;
    case 'deduced':
      collect(deduce(value), value, set);
      return;
    case 'keyed':
    case 'set':
      if (Array.isArray(value)) collectItems(type, value, set);
      return;
    case 'map':
    case 'struct':
      if (isJsonObject(value)) collectMembers(type, value, set);
  }
}

function memberType(type: Extract<MergeType, { kind: 'map' | 'struct' }>, name: string): MergeType | undefined {
  return type.kind === 'map' ? type.values : (type.members.get(name)?.type ?? type.others);
}

function collectMembers(
  type: Extract<MergeType, { kind: 'map' | 'struct' }>,
  value: JsonObject,
  set: FieldSetBuilder,
): void {
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    const child = set.child(`f:${name}`);
    collect(memberType(type, name) ?? deduced, member, child);
    const isNamed = type.kind === 'struct' && type.members.has(name);
    if (!isNamed || member === null || (isJsonObject(member) && Object.keys(member).length === 0)) child.owned = true;
    set.dropEmpty(`f:${name}`);
  }
}

function collectItems(type: ListType, items: readonly JsonValue[], set: FieldSetBuilder): void {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  const elements = items.map((item) => itemElement(type, item));
  for (const element of elements) (seen.has(element) ? repeated : seen).add(element);
  items.forEach((item, index) => {
    const element = elements[index] ?? '';
    const child = set.child(element);
    child.owned = true;
    if (!repeated.has(element)) collect(type.items, item, child);
  });
}

interface TypeCheck {
  readonly errors: string[];
  readonly allowsDuplicates: boolean;
}

/**
 * Returns the errors of a value that does not match its type, with the messages of kube-apiserver's typed conversion. With
 * `allowsDuplicates`, a list may contain several items of the same keys, as those of stored objects do.
 */
export function typeErrors(
  type: MergeType,
  value: JsonValue,
  { allowsDuplicates = false }: { readonly allowsDuplicates?: boolean } = {},
): string[] {
  const errors: string[] = [];
  check(type, value, '', { errors, allowsDuplicates });
  return errors;
}

function check(type: MergeType, value: JsonValue, path: string, typeCheck: TypeCheck): void {
  if (value === null) return;
  switch (type.kind) {
    case 'leaf':
      checkLeaf(type.expects, value, path, typeCheck.errors);
      if (type.items !== undefined && Array.isArray(value)) {
        for (const [index, item] of value.entries()) check(type.items, item, `${path}[${index}]`, typeCheck);
      }
      if (type.content !== undefined && isJsonObject(value)) check(type.content, value, path, typeCheck);
      return;
    case 'deduced':
      return;
    case 'keyed':
    case 'set':
      if (Array.isArray(value)) checkItems(type, value, path, typeCheck);
      else typeCheck.errors.push(`${path}: expected list, got &{${goValue(value)}}`);
      return;
    case 'map':
    case 'struct':
      if (!isJsonObject(value)) {
        typeCheck.errors.push(`${path}: expected map, got &{${goValue(value)}}`);
        return;
      }
      for (const [name, member] of Object.entries(value)) {
        const inner = memberType(type, name);
        if (inner === undefined) {
          // As in kube-apiserver, an unknown member ends the check of the others.
          typeCheck.errors.push(`${path}.${name}: field not declared in schema`);
          return;
        }
        if (member !== undefined) check(inner, member, `${path}.${name}`, typeCheck);
      }
  }
}

/** Validates the items of a list. As in kube-apiserver, an item without a path element ends the check of the others. */
function checkItems(type: ListType, items: readonly JsonValue[], path: string, typeCheck: TypeCheck): void {
  const seen = new Set<string>();
  for (const [index, item] of items.entries()) {
    let element: string;
    try {
      element = itemElement(type, item);
    } catch (error) {
      if (!(error instanceof PathElementError)) throw error;
      typeCheck.errors.push(`${path}: element ${index}: ${error.message}`);
      return;
    }
    const name = elementText(element);
    if (!typeCheck.allowsDuplicates && seen.has(element))
      typeCheck.errors.push(`${path}: duplicate entries for key ${name}`);
    seen.add(element);
    check(type.items, item, path + name, typeCheck);
  }
}

function checkLeaf(
  expects: 'map' | 'list' | 'scalar' | Scalar | undefined,
  value: JsonValue,
  path: string,
  errors: string[],
): void {
  const fits = FITS[expects ?? 'any'];
  if (fits !== undefined && !fits.test(value)) errors.push(`${path}: expected ${fits.name}, got ${fits.shows(value)}`);
}

const isText = (value: JsonValue): boolean => typeof value === 'string';
const isNumber = (value: JsonValue): boolean => typeof value === 'number' || typeof value === 'bigint';
const isScalar = (value: JsonValue): boolean => typeof value !== 'object';

/** What a value has to be, and how the message shows one that is not. kube-apiserver formats them with three verbs of Go. */
interface Fit {
  readonly name: string;
  readonly test: (value: JsonValue) => boolean;
  readonly shows: (value: JsonValue) => string;
}

const shown = (value: JsonValue): string => `&{${goValue(value)}}`;
const inGoSyntax = (value: JsonValue): string => `&value.valueUnstructured{Value:${goSyntax(value)}}`;

const TEXT: Fit = { name: 'string', test: isText, shows: inGoSyntax };
const NUMERIC: Fit = { name: 'numeric (int or float)', test: isNumber, shows: goType };
const ANY_SCALAR: Fit = { name: 'any scalar', test: isScalar, shows: shown };

/**
 * The kinds of values that each type accepts. `intOrString` is left out, because the decoder of the result refuses values that
 * are neither integers nor texts.
 */
const FITS: Readonly<Partial<Record<'map' | 'list' | 'scalar' | Scalar, Fit>>> = {
  scalar: ANY_SCALAR,
  map: { name: 'map', test: isJsonObject, shows: shown },
  list: { name: 'list', test: Array.isArray, shows: shown },
  string: TEXT,
  bytes: TEXT,
  boolean: { name: 'boolean', test: (value) => typeof value === 'boolean', shows: shown },
  int32: NUMERIC,
  int64: NUMERIC,
  double: NUMERIC,
  time: ANY_SCALAR,
  microTime: ANY_SCALAR,
  duration: ANY_SCALAR,
  quantity: ANY_SCALAR,
};

/**
 * Returns a value without the paths of `removed`, or `undefined` if the whole value is removed. The value is not modified.
 */
export function removePaths(type: MergeType, value: JsonValue, removed: FieldSet): JsonValue | undefined {
  if (isEmptySet(removed) || value === null) return value;
  switch (type.kind) {
    case 'leaf':
      return Array.isArray(value) || isJsonObject(value) ? undefined : value;
    case 'deduced':
      return removePaths(deduce(value), value, removed);
    case 'keyed':
    case 'set':
      return Array.isArray(value) ? removeItems(type, value, removed) : value;
    case 'map':
    case 'struct':
      return isJsonObject(value) ? removeMembers(type, value, removed) : value;
  }
}

function removeItems(type: ListType, items: readonly JsonValue[], removed: FieldSet): JsonValue[] {
  const remaining: JsonValue[] = [];
  for (const item of items) {
    const below = removed.children?.get(itemElement(type, item));
    if (below?.owned === true) continue;
    const remainder = below === undefined ? item : removePaths(type.items, item, below);
    if (remainder !== undefined) remaining.push(remainder);
  }
  return remaining;
}

function removeMembers(
  type: Extract<MergeType, { kind: 'map' | 'struct' }>,
  value: JsonObject,
  removed: FieldSet,
): JsonObject {
  const remaining: JsonObject = {};
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    const below = removed.children?.get(`f:${name}`);
    if (below?.owned === true) continue;
    const remainder = below === undefined ? member : removePaths(memberType(type, name) ?? deduced, member, below);
    // A removed member whose name remains becomes null, because its owner still owns it.
    setMember(remaining, name, remainder ?? null);
  }
  return remaining;
}

/** Returns `set` with the members of structs that its paths pass through. */
export function withNamedMembers(type: MergeType, set: FieldSet): FieldSet {
  if (set.children === undefined) return set;
  const children = new Map<string, FieldSet>();
  for (const [element, child] of set.children) {
    const name = element.slice(2);
    const isMember = element.startsWith('f:');
    const named = isMember && type.kind === 'struct' && type.members.has(name);
    const inner = withNamedMembers(typeBelow(type, isMember, name), child);
    children.set(element, named && !inner.owned ? { owned: true, children: inner.children } : inner);
  }
  return { owned: set.owned, children };
}

/**
 * Adapts a set of owned fields that was written when the schema was another one. For a value that is atomic now, an owner of
 * its parts becomes the owner of the whole.
 */
export function withWholes(type: MergeType, set: FieldSet): FieldSet {
  if (set.children === undefined || type.kind === 'deduced') return set;
  if (type.kind === 'leaf') {
    const isWhole = type.expects === 'map' || type.expects === 'list';
    return isWhole ? { owned: true, children: undefined } : set;
  }
  let children: Map<string, FieldSet> | undefined;
  for (const [element, child] of set.children) {
    const inner = withWholes(typeBelow(type, element.startsWith('f:'), element.slice(2)), child);
    if (inner !== child) (children ??= new Map(set.children)).set(element, inner);
  }
  return children === undefined ? set : { owned: set.owned, children };
}

function typeBelow(type: MergeType, isMember: boolean, name: string): MergeType {
  if (isMember && (type.kind === 'map' || type.kind === 'struct')) return memberType(type, name) ?? deduced;
  return type.kind === 'keyed' || type.kind === 'set' ? type.items : deduced;
}
