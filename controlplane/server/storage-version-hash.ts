/**
 * Returns the hash that discovery publishes of the version in which a resource is stored. By it, clients that migrate stored
 * objects notice that the version has changed. The hashes are those of kube-apiserver 1.36, also where this project stores
 * another version.
 */
import { createHash } from 'node:crypto';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import { WRITTEN_VERSIONS } from '../storage/written-versions.ts';

/** The resources of each version of a group, the preferred version first. */
type Versions = ReadonlyMap<string, readonly ResourceInfo[]>;

/** Returns the hash of the stored version of a kind. `versions` are those of the group of the resource. */
export function storageVersionHash(versions: Versions, row: ResourceInfo): string {
  const hash = createHash('sha256').update(`${storageVersion(versions, row)}/${row.kind}`);
  return hash.digest().subarray(0, 8).toString('base64');
}

/**
 * Returns the group and the version in which kube-apiserver stores the objects. For most built-in kinds the version is the
 * first of the group with the resource.
 */
function storageVersion(versions: Versions, row: ResourceInfo): string {
  if (row.custom?.storedVersion !== undefined) return `${row.group}/${row.custom.storedVersion}`;
  if (row.custom === undefined) {
    if (row.kind === 'Event') return '/v1';
    // This project stores definitions in v1, which kube-apiserver reads as well.
    if (row.kind === 'CustomResourceDefinition') return `${row.group}/v1beta1`;
    const written = WRITTEN_VERSIONS.get(row.kind);
    if (written !== undefined) return `${row.group}/${written}`;
  }
  for (const [version, rows] of versions) {
    if (rows.some(({ resource }) => resource === row.resource)) return `${row.group}/${version}`;
  }
  return `${row.group}/${row.version}`;
}
