/**
 * Compares values of built-in types like Kubernetes' `equality.Semantic.DeepEqual` compares their Go structs. An empty list
 * or map equals an absent one. An absent pointer differs from a pointer to an empty struct or to a zero. Any other absent
 * field equals its zero value. Quantities compare by value. `semanticEqual` in `api/meta` compares values without a type, and
 * cannot distinguish an empty struct from an absent one.
 */
import { jsonEqual, semanticEqual } from '../meta/json-equality.ts';
import { isJsonObject } from '../meta/json-object.ts';
import { sameQuantity } from '../meta/quantity.ts';
import { type Field, type Scalar, type StructType, type TypeNode, zeroOfScalar } from './schema.ts';
import { loadSchema } from './table.ts';

/** The name of the type of label selectors. */
export const LABEL_SELECTOR = 'io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector';
/** The type of the specification of pods. */
export const POD_SPEC = 'io.k8s.api.core.v1.PodSpec';
/** The type of pod templates. */
export const POD_TEMPLATE = 'io.k8s.api.core.v1.PodTemplateSpec';

/**
 * Whether two values of a built-in type are equal. `typeName` is its name, such as `io.k8s.api.core.v1.PodSpec`. Null and
 * `undefined` are nil pointers. Throws for a name that no type has.
 */
export function equalAs(typeName: string, a: unknown, b: unknown): boolean {
  const struct = loadSchema().struct(typeName);
  if (struct === undefined) throw new Error(`No built-in type has the name ${typeName}`);
  return isAbsent(a) || isAbsent(b) ? isAbsent(a) && isAbsent(b) : equalStructs(struct, membersOf(a), membersOf(b));
}

/** Compares one field of two objects of the first one's kind. The fields of kinds that are not built in have no type. */
export function equalFields(
  a: { readonly apiVersion?: string; readonly kind?: string },
  b: object,
  name: string,
): boolean {
  const [version = '', group = ''] = (a.apiVersion ?? '').split('/').reverse();
  const field = loadSchema()
    .kind(group, version, a.kind ?? '')
    ?.fields.get(name);
  const [value, other] = [membersOf(a)[name], membersOf(b)[name]];
  return field === undefined ? semanticEqual(value, other) : equalField(field, value, other);
}

type Members = Readonly<Record<string, unknown>>;

const NONE: Members = {};

const isAbsent = (value: unknown): value is null | undefined => value === undefined || value === null;

const membersOf = (value: unknown): Members => (isJsonObject(value) ? value : NONE);

const itemsOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function equalStructs(struct: StructType, a: Members, b: Members): boolean {
  if (a === b) return true;
  for (const name in a) {
    const field = struct.fields.get(name);
    if (field === undefined ? !jsonEqual(a[name], b[name]) : !equalField(field, a[name], b[name])) return false;
  }
  for (const name in b) {
    if (!isAbsent(a[name])) continue;
    const field = struct.fields.get(name);
    if (field === undefined ? !isAbsent(b[name]) : !equalField(field, undefined, b[name])) return false;
  }
  return true;
}

function equalField({ type, presence }: Field, a: unknown, b: unknown): boolean {
  if (a === b) return true;
  const isNilable = type.kind === 'scalar' || type.kind === 'struct';
  if (isNilable && (isAbsent(a) || isAbsent(b))) {
    if (isAbsent(a) && isAbsent(b)) return true;
    const isPointer = presence === 'keep' || presence === 'null';
    if (isPointer) return false;
  }
  return equalValues(type, a, b);
}

function equalValues(type: TypeNode, a: unknown, b: unknown): boolean {
  switch (type.kind) {
    case 'struct':
      return equalStructs(type.struct, membersOf(a), membersOf(b));
    case 'list': {
      const [items, others] = [itemsOf(a), itemsOf(b)];
      return (
        items.length === others.length && items.every((item, index) => equalValues(type.items, item, others[index]))
      );
    }
    case 'map': {
      const [entries, others] = [membersOf(a), membersOf(b)];
      const keys = Object.keys(entries);
      return (
        keys.length === Object.keys(others).length &&
        keys.every((key) => Object.hasOwn(others, key) && equalValues(type.values, entries[key], others[key]))
      );
    }
    case 'scalar':
      return equalScalars(type.scalar, a ?? zeroOfScalar(type.scalar), b ?? zeroOfScalar(type.scalar));
  }
}

function equalScalars(scalar: Scalar, a: unknown, b: unknown): boolean {
  if (scalar === 'quantity' && typeof a === 'string' && typeof b === 'string') return sameQuantity(a, b);
  return jsonEqual(a ?? undefined, b ?? undefined);
}
