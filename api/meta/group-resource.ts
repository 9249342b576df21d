/** Names resources by group and plural, whatever the version: in messages, quotas and rules. */

/** A resource in any version. The group of core resources is ''. */
interface GroupResource {
  readonly group: string;
  /** The plural, such as `deployments`. */
  readonly resource: string;
}

/** Returns `pods` or `deployments.apps`, as `GroupResource.String()` of Kubernetes does. */
export function groupResourceName({ group, resource }: GroupResource): string {
  return group === '' ? resource : `${resource}.${group}`;
}

/** Whether both are the same resource. */
export function isResource(one: GroupResource, other: GroupResource): boolean {
  return one.group === other.group && one.resource === other.resource;
}
