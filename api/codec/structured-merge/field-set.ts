/**
 * Defines sets of field paths as trees. A node says whether its own path is in the set. Its children have the text form of
 * their path elements as keys (`f:name`, `k:{"name":"a"}`, `v:"x"`, `i:0`), so the tree has the structure of the wire form.
 *
 * A set is immutable once it is returned, and operations share unchanged branches.
 */
import type { JsonObject } from '../../meta/object.ts';

/** A node of the tree; the root is the set. */
export interface FieldSet {
  /** Whether the path of this node is in the set. It is false at the root of the set of an object. */
  readonly owned: boolean;
  readonly children: ReadonlyMap<string, FieldSet> | undefined;
  /** The wire form, if the set was made of it. */
  readonly wire?: JsonObject | undefined;
}

/** The set without paths. */
export const emptySet: FieldSet = { owned: false, children: undefined };
const leaf: FieldSet = { owned: true, children: undefined };

/** Whether the set has no paths. */
export const isEmptySet = (set: FieldSet): boolean => !set.owned && set.children === undefined;

/** Returns the number of paths in the set. */
export function countPaths(set: FieldSet): number {
  let count = set.owned ? 1 : 0;
  for (const child of set.children?.values() ?? []) count += countPaths(child);
  return count;
}

/** A set under construction. */
export class FieldSetBuilder implements FieldSet {
  owned = false;
  children: Map<string, FieldSet> | undefined = undefined;
  wire: JsonObject | undefined = undefined;

  child(element: string): FieldSetBuilder {
    this.children ??= new Map();
    const found = this.children.get(element);
    if (found instanceof FieldSetBuilder) return found;
    const child = new FieldSetBuilder();
    if (found !== undefined) {
      child.owned = found.owned;
      if (found.children !== undefined) child.children = new Map(found.children);
    }
    this.children.set(element, child);
    return child;
  }

  /** Adds a path, and below it the paths of `below`, in place of earlier ones. */
  own(element: string, below: FieldSet = leaf): void {
    this.children ??= new Map();
    this.children.set(element, below);
  }

  /** Adds the paths of `below` below a path, if there are any. */
  add(element: string, below: FieldSet): void {
    if (isEmptySet(below)) return;
    const found = this.children?.get(element);
    this.own(element, found === undefined ? below : union(found, below));
  }

  /** Removes a child that remained empty. */
  dropEmpty(element: string): void {
    const child = this.children?.get(element);
    if (child === undefined || child.owned || child.children !== undefined) return;
    this.children?.delete(element);
    if (this.children?.size === 0) this.children = undefined;
  }
}

function node(owned: boolean, children: ReadonlyMap<string, FieldSet> | undefined): FieldSet {
  if (children === undefined || children.size === 0) return owned ? leaf : emptySet;
  return { owned, children };
}

/** Returns the paths that are in at least one of the sets. */
export function union(a: FieldSet, b: FieldSet): FieldSet {
  if (isEmptySet(a) || a === b) return b;
  if (isEmptySet(b)) return a;
  if (b.children === undefined) return a.owned ? a : node(true, a.children);
  if (a.children === undefined) return b.owned === a.owned ? b : node(true, b.children);
  const children = new Map(a.children);
  for (const [element, child] of b.children) {
    const other = children.get(element);
    children.set(element, other === undefined ? child : union(other, child));
  }
  return node(a.owned || b.owned, children);
}

/** Returns the paths that are in both sets. */
export function intersection(a: FieldSet, b: FieldSet): FieldSet {
  const children = new Map<string, FieldSet>();
  for (const [element, child] of a.children ?? []) {
    const other = b.children?.get(element);
    if (other === undefined) continue;
    const common = intersection(child, other);
    if (!isEmptySet(common)) children.set(element, common);
  }
  return node(a.owned && b.owned, children);
}

/** Returns the paths of `a` that are not in `b`. */
export function difference(a: FieldSet, b: FieldSet): FieldSet {
  return subtract(a, b, false);
}

/** Returns the difference, where a path of `b` also removes everything below it. */
export function recursiveDifference(a: FieldSet, b: FieldSet): FieldSet {
  return subtract(a, b, true);
}

function subtract(a: FieldSet, b: FieldSet, recursive: boolean): FieldSet {
  if (isEmptySet(a) || isEmptySet(b)) return a;
  if (recursive && b.owned) return emptySet;
  const owned = a.owned && !b.owned;
  if (a.children === undefined || b.children === undefined) return owned === a.owned ? a : node(owned, a.children);
  let children: Map<string, FieldSet> | undefined;
  for (const [element, other] of b.children) {
    const child = a.children.get(element);
    if (child === undefined) continue;
    const left = subtract(child, other, recursive);
    if (left === child) continue;
    children ??= new Map(a.children);
    if (isEmptySet(left)) children.delete(element);
    else children.set(element, left);
  }
  if (children === undefined) return owned === a.owned ? a : node(owned, a.children);
  return node(owned, children);
}

/** Whether both sets have the same paths. */
export function equalSets(a: FieldSet, b: FieldSet): boolean {
  if (a === b) return true;
  if (a.owned !== b.owned || (a.children?.size ?? 0) !== (b.children?.size ?? 0)) return false;
  for (const [element, child] of a.children ?? []) {
    const other = b.children?.get(element);
    if (other === undefined || !equalSets(child, other)) return false;
  }
  return true;
}

/** Returns the set of the given paths. */
export function setOfPaths(paths: Iterable<readonly string[]>): FieldSet {
  const root = new FieldSetBuilder();
  for (const path of paths) {
    let at = root;
    for (const element of path) at = at.child(element);
    at.owned = true;
  }
  return root;
}
