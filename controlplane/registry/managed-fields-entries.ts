/**
 * Converts the owners of an object's fields from and to `metadata.managedFields`.
 *
 * Parsing accepts either all entries or none. Formatting has a fixed order, so that equal ownership has equal text.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { decodeFieldsV1, encodeFieldsV1 } from '../../api/codec/structured-merge/fields-v1.ts';
import { type FieldSet, emptySet, equalSets, union } from '../../api/codec/structured-merge/field-set.ts';
import type { ManagedFieldsEntry } from '../../api/meta/object.ts';

/** One entry of `metadata.managedFields`. */
export interface Owner {
  readonly manager: string;
  readonly operation: 'Apply' | 'Update';
  readonly apiVersion: string;
  readonly subresource: string;
  readonly time: string | undefined;
  readonly fields: FieldSet;
}

/** The owners by `ownerKey`. */
export type Owners = Map<string, Owner>;

/**
 * Returns the text that identifies an owner. An applier is the same owner in all versions; an updater is a separate owner in
 * each version.
 */
export function ownerKey(owner: Omit<Owner, 'time' | 'fields'>): string {
  const { manager, operation, apiVersion, subresource } = owner;
  const version = operation === 'Apply' || apiVersion === '' ? '' : `,"apiVersion":${quoteText(apiVersion)}`;
  const below = subresource === '' ? '' : `,"subresource":${quoteText(subresource)}`;
  const name = manager === '' ? '' : `"manager":${quoteText(manager)},`;
  return `{${name}"operation":"${operation}"${version}${below}}`;
}

/** Decodes the owners of fields. Returns `undefined` if any entry is invalid. */
export function readOwners(entries: readonly ManagedFieldsEntry[] | undefined): Owners | undefined {
  const owners: Owners = new Map();
  for (const entry of entries ?? []) {
    const owner = readOwner(entry);
    if (owner === undefined) return undefined;
    const key = ownerKey(owner);
    owners.set(key, owner);
  }
  return owners;
}

function readOwner(entry: ManagedFieldsEntry): Owner | undefined {
  const { manager = '', operation, apiVersion = '', subresource = '', time, fieldsType, fieldsV1 } = entry;
  if ((operation !== 'Apply' && operation !== 'Update') || apiVersion === '' || fieldsType !== 'FieldsV1') {
    return undefined;
  }
  try {
    const fields = fieldsV1 === undefined || fieldsV1 === null ? emptySet : decodeFieldsV1(fieldsV1);
    return { manager, operation, apiVersion, subresource, time: time ?? undefined, fields };
  } catch (error) {
    if (error instanceof Error) return undefined;
    throw error;
  }
}

const timeOf = (owner: Owner): string => owner.time ?? '';

function compareOwners(a: Owner, b: Owner): number {
  return (
    compareText(a.operation, b.operation) ||
    compareText(timeOf(a), timeOf(b)) ||
    compareText(a.manager, b.manager) ||
    compareText(a.apiVersion, b.apiVersion) ||
    compareText(a.subresource, b.subresource)
  );
}

const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Returns the entries, those of appliers first. Returns `undefined` if there are no owners. */
export function writeOwners(owners: Owners): ManagedFieldsEntry[] | undefined {
  if (owners.size === 0) return undefined;
  return [...owners.values()].sort(compareOwners).map((owner) => ({
    ...(owner.manager === '' ? {} : { manager: owner.manager }),
    operation: owner.operation,
    apiVersion: owner.apiVersion,
    ...(owner.time === undefined ? {} : { time: owner.time }),
    fieldsType: 'FieldsV1',
    fieldsV1: encodeFieldsV1(owner.fields),
    ...(owner.subresource === '' ? {} : { subresource: owner.subresource }),
  }));
}

/** Whether the owners are equal apart from their times. */
export function sameOwnership(a: Owners, b: Owners): boolean {
  if (a.size !== b.size) return false;
  for (const [key, owner] of a) {
    const other = b.get(key);
    if (other === undefined || other.apiVersion !== owner.apiVersion || !equalSets(owner.fields, other.fields)) {
      return false;
    }
  }
  return true;
}

/** The maximum number of updaters of an object, as in Kubernetes (`DefaultMaxUpdateManagers`). */
const MAX_UPDATERS = 10;
const OLD_UPDATES = 'ancient-changes';

/** Merges the oldest updaters of each version into one while the object has too many, as kube-apiserver does. */
export function capUpdaters(owners: Owners): void {
  if (owners.size <= MAX_UPDATERS) return;
  const updaters = [...owners].filter(([, owner]) => owner.operation === 'Update');
  let count = updaters.length;
  if (count <= MAX_UPDATERS) return;
  updaters.sort(([keyA, a], [keyB, b]) => compareText(timeOf(a), timeOf(b)) || compareText(keyA, keyB));
  const firstOfVersion = new Map<string, string>();
  for (const [key, owner] of updaters) {
    if (count <= MAX_UPDATERS) return;
    const first = firstOfVersion.get(owner.apiVersion);
    if (first === undefined) {
      firstOfVersion.set(owner.apiVersion, key);
      continue;
    }
    const identity = {
      manager: OLD_UPDATES,
      operation: 'Update',
      apiVersion: owner.apiVersion,
      subresource: '',
    } as const;
    const mergedKey = ownerKey(identity);
    let merged = owners.get(mergedKey);
    if (merged === undefined) {
      merged = owners.get(first);
      owners.delete(first);
    }
    owners.set(mergedKey, { ...identity, time: owner.time, fields: union(owner.fields, merged?.fields ?? emptySet) });
    // As in kube-apiserver, this loses the merged owner if it is the owner of `key` itself.
    owners.delete(key);
    count--;
  }
}
