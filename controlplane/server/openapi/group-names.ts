/** Names groups and versions in the ids and tags of operations. */
import { capitalized } from '../../../api/meta/capitalized.ts';

/** Returns the prefix of ids, for example `CoreV1` or `RbacAuthorizationV1`. */
export function groupPrefix(group: string, version: string): string {
  const name = group === '' ? 'core' : group.replace(/\.k8s\.io$/, '');
  return [...name.split('.'), version].map(capitalized).join('');
}

/** Returns the tag of a group, for example `core_v1` or `rbacAuthorization_v1`. */
export function groupTag(group: string, version?: string): string {
  const name = group === '' ? 'core' : group.replace(/\.k8s\.io$/, '');
  const [first = '', ...segments] = name.split('.');
  const camel = first + segments.map(capitalized).join('');
  return version === undefined ? camel : `${camel}_${version}`;
}

/** Returns the id of the operation that lists the resources of a group and version. */
export function discoveryId(group: string, version: string): string {
  return `get${groupPrefix(group, version)}APIResources`;
}
