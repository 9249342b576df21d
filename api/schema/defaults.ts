/** Applies the defaults in the schema itself (OpenAPI's `default`), and rounds quantities of resources. */
import { cloneJson } from '../meta/json-equality.ts';
import type { JsonObject, JsonValue } from '../meta/object.ts';
import { roundedToMilli } from '../meta/quantity.ts';
import type { Field, StructType, TypeNode } from './schema.ts';

/** The fields of a type that have a default or are rounded, and those that lead to such fields. They are found once. */
interface Plan {
  readonly rounded: readonly string[];
  readonly defaults: readonly { readonly name: string; readonly value: JsonValue }[];
  readonly inner: readonly { readonly name: string; readonly type: TypeNode }[];
}

const CORE = 'io.k8s.api.core.v1.';
const REPORTED: ReadonlySet<string> = new Set(['ContainerStatus', 'PodStatus']);
const plans = new WeakMap<StructType, Plan>();
const leadsToDefaults = new WeakMap<StructType, boolean>();

/** Sets values that are absent or null, and rounds quantities, in place. Absent structs stay absent. */
export function applyTableDefaults(struct: StructType, value: JsonObject): void {
  const plan = planOf(struct);
  for (const { name, value: preset } of plan.defaults) {
    if (value[name] === undefined || value[name] === null) value[name] = cloneJson(preset);
  }
  for (const name of plan.rounded) roundQuantities(value[name]);
  for (const { name, type } of plan.inner) {
    const member = value[name];
    if (member !== undefined && member !== null) descend(type, member);
  }
}

function descend(type: TypeNode, value: JsonValue): void {
  if (typeof value !== 'object' || value === null) return;
  if (type.kind === 'struct') {
    if (!Array.isArray(value)) applyTableDefaults(type.struct, value);
  } else if (type.kind === 'list') {
    if (Array.isArray(value)) for (const item of value) descend(type.items, item);
  } else if (type.kind === 'map' && !Array.isArray(value)) {
    for (const member of Object.values(value)) if (member !== undefined) descend(type.values, member);
  }
}

function planOf(struct: StructType): Plan {
  let plan = plans.get(struct);
  if (plan === undefined) {
    const fields = [...struct.fields.values()];
    plan = {
      rounded: fields.filter((field) => isRounded(struct, field)).map(({ name }) => name),
      defaults: fields.flatMap((field) =>
        field.default === undefined || isImplied(field, field.default)
          ? []
          : [{ name: field.name, value: field.default }],
      ),
      inner: fields.filter((field) => hasDefaults(field.type, new Set())).map(({ name, type }) => ({ name, type })),
    };
    plans.set(struct, plan);
  }
  return plan;
}

/**
 * Whether kube-apiserver rounds the field: it rounds the resource lists of the core types, except for those that agents report
 * in the status of pods.
 */
function isRounded(struct: StructType, { type }: Field): boolean {
  const ofCore = struct.name.startsWith(CORE) && !REPORTED.has(struct.name.slice(CORE.length));
  return ofCore && type.kind === 'map' && type.goName === 'v1.ResourceList';
}

/** Rounds the quantities of a resource list up to thousandths, in place. */
function roundQuantities(list: JsonValue | undefined): void {
  if (typeof list !== 'object' || list === null || Array.isArray(list)) return;
  for (const [name, quantity] of Object.entries(list)) {
    if (typeof quantity === 'string') list[name] = roundedToMilli(quantity);
  }
}

/** Whether the value is a zero value that the type adds or drops anyway. A field that is a pointer in Go keeps it. */
function isImplied(field: Field, value: JsonValue): boolean {
  return (value === '' || value === 0 || value === false) && field.presence !== 'keep' && field.presence !== 'null';
}

function hasDefaults(type: TypeNode, open: Set<StructType>): boolean {
  if (type.kind === 'list') return hasDefaults(type.items, open);
  if (type.kind === 'map') return hasDefaults(type.values, open);
  if (type.kind === 'scalar') return false;
  const leads = leadsToDefaults.get(type.struct);
  if (leads !== undefined) return leads;
  if (open.has(type.struct)) return false;
  open.add(type.struct);
  const found = [...type.struct.fields.values()].some(
    (field) =>
      (field.default !== undefined && !isImplied(field, field.default)) ||
      isRounded(type.struct, field) ||
      hasDefaults(field.type, open),
  );
  open.delete(type.struct);
  // A negative result inside a cycle may be incomplete, so only results outside of one are kept.
  if (found || open.size === 0) leadsToDefaults.set(type.struct, found);
  return found;
}
