/** Compares and merges tolerations. */
import { newRequestEntityTooLarge } from '../../../api/meta/status-error.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { canonicalQuantity } from '../../../api/meta/quantity.ts';
import type { PodSpec } from './pod-attributes.ts';

/** A toleration of a pod. */
export type Toleration = NonNullable<PodSpec['tolerations']>[number];

const text = (value: string | null | undefined): string => value ?? '';

/** Compares all five fields; an absent text is the same as an empty one. */
export function sameToleration(a: Toleration, b: Toleration): boolean {
  return (
    text(a.key) === text(b.key) &&
    text(a.operator) === text(b.operator) &&
    text(a.value) === text(b.value) &&
    text(a.effect) === text(b.effect) &&
    a.tolerationSeconds === b.tolerationSeconds
  );
}

/** Whether `a` tolerates everything that `b` tolerates. With `Lt` or `Gt`, `a` only counts for an equal `b`. */
export function isSuperset(a: Toleration, b: Toleration): boolean {
  if (text(a.key) !== text(b.key) && !(text(a.key) === '' && text(a.operator) === 'Exists')) return false;
  if (text(a.effect) !== text(b.effect) && text(a.effect) !== '') return false;
  if (text(a.effect) === 'NoExecute' || text(a.effect) === '') {
    if (
      a.tolerationSeconds !== undefined &&
      (b.tolerationSeconds === undefined || a.tolerationSeconds < b.tolerationSeconds)
    )
      return false;
  }
  switch (text(a.operator)) {
    case '':
    case 'Equal':
      return (text(b.operator) === '' || text(b.operator) === 'Equal') && text(a.value) === text(b.value);
    case 'Exists':
      return true;
    default:
      return sameToleration(a, b);
  }
}

/** The maximum number of tolerations to merge, because each is compared with every other one. */
const MAX_MERGED = 1000;

/** Merges lists, without tolerations that another one covers. Throws 413 if there are too many to compare. */
export function mergeTolerations(...lists: readonly (readonly Toleration[])[]): Toleration[] {
  const all = lists.flat();
  if (all.length > MAX_MERGED)
    throw newRequestEntityTooLarge(
      `more than ${MAX_MERGED} tolerations cannot be merged with those of the class or namespace`,
    );
  const merged: Toleration[] = [];
  for (const [i, one] of all.entries()) {
    // If two tolerations cover each other, the first one stays.
    const isCovered = all.some((other, j) => i !== j && isSuperset(other, one) && (!isSuperset(one, other) || j < i));
    if (!isCovered) merged.push(one);
  }
  return merged;
}

/** Compares amounts by value, in whatever format they are written. */
export function sameResources(
  a: Readonly<Record<string, string>> | undefined,
  b: Readonly<Record<string, string>> | undefined,
): boolean {
  const left = Object.entries(a ?? {});
  return (
    left.length === Object.keys(b ?? {}).length &&
    left.every(([name, amount]) => {
      const other = ownMember(b, name);
      return other !== undefined && canonicalQuantity(amount) === canonicalQuantity(other);
    })
  );
}
