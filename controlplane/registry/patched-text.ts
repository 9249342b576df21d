/**
 * Shows the result of a JSON or merge patch in errors, with the members in kube-apiserver's order: that of the Go type, except
 * in the objects on the paths of the patch, whose members are sorted.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import { pointerNames } from '../../api/codec/json-patch.ts';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import { fieldsInOrder } from '../../api/schema/internal-form.ts';
import type { StructType, TypeNode } from '../../api/schema/schema.ts';

/** The members that a patch visits. `true` stands for a value that it sets. */
type Visited = true | ReadonlyMap<string, Visited>;

/** Returns the paths of a merge patch, those into its lists included. */
export function visitedByMerge(patch: JsonValue | undefined): Visited {
  if (typeof patch !== 'object' || patch === null) return true;
  return new Map(Object.entries(patch).map(([name, value]) => [name, visitedByMerge(value)]));
}

/** Returns the paths of the operations of a JSON patch. */
export function visitedByOperations(operations: readonly JsonObject[]): Visited {
  const root = new Map<string, Visited>();
  for (const { path, from } of operations) {
    for (const pointer of [path, from]) if (typeof pointer === 'string') visit(root, pointerNames(pointer));
  }
  return root;
}

function visit(root: Map<string, Visited>, names: readonly string[]): void {
  let members = root;
  for (const [index, name] of names.entries()) {
    const existing = members.get(name);
    if (index === names.length - 1) {
      if (existing === undefined) members.set(name, true);
      return;
    }
    const inner = existing instanceof Map ? (existing as Map<string, Visited>) : new Map<string, Visited>();
    members.set(name, inner);
    members = inner;
  }
}

/** Returns the result of a patch as JSON. `struct` is its type, and `visited` are the paths of the patch. */
export function patchedText(value: JsonValue, struct: StructType, visited: Visited): string {
  return stringifyJson(shown(value, { kind: 'struct', struct }, visited));
}

function shown(value: JsonValue, type: TypeNode | undefined, visited: Visited | undefined): JsonValue {
  if (typeof value !== 'object' || value === null || visited === true) return value;
  if (Array.isArray(value)) {
    const items = type?.kind === 'list' ? type.items : undefined;
    return value.map((item, index) => shown(item, items, visited?.get(String(index))));
  }
  const struct = type?.kind === 'struct' ? type.struct : undefined;
  const names = visited === undefined && struct !== undefined ? namesInOrder(struct, value) : Object.keys(value).sort();
  return Object.fromEntries(
    names.flatMap((name) => {
      const member = value[name];
      const inner = struct?.fields.get(name)?.type ?? (type?.kind === 'map' ? type.values : undefined);
      return member === undefined ? [] : [[name, shown(member, inner, visited?.get(name))]];
    }),
  );
}

/** Returns the names of the members in order. In the types of kinds, the kind comes first. Unknown members are at the end. */
function namesInOrder(struct: StructType, value: JsonObject): string[] {
  const kind = struct.fields.get('kind');
  const isKind = kind !== undefined && kind.protobufNumber === undefined;
  const fields = struct.goOrder ?? fieldsInOrder(struct).map(({ name }) => name);
  const ordered = [...(isKind ? ['kind', 'apiVersion'] : []), ...fields];
  return [...new Set([...ordered.filter((name) => Object.hasOwn(value, name)), ...Object.keys(value)])];
}
