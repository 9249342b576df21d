/** Names groups and versions in the ids and tags of operations. */

/** Returns the prefix of ids, for example `CoreV1` or `RbacAuthorizationV1`. */
export function groupPrefix(group: string, version: string): string {
  const name = group === '' ? 'core' : group.replace(/\.k8s\.io$/, '');
  return [...name.split('.'), version].map(capital).join('');
}

/** Returns the tag of a group, for example `core_v1` or `rbacAuthorization_v1`. */
export function groupTag(group: string, version?: string): string {
  const name = group === '' ? 'core' : group.replace(/\.k8s\.io$/, '');
  const [first = '', ...rest] = name.split('.');
  const camel = first + rest.map(capital).join('');
  return version === undefined ? camel : `${camel}_${version}`;
}

/** Makes the first letter upper-case: `pods` becomes `Pods`. */
export function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/** Returns the id of the operation that lists the resources of a group and version. */
export function discoveryId(group: string, version: string): string {
  return `get${groupPrefix(group, version)}APIResources`;
}
