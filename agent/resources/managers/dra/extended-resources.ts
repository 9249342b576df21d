/** Extended resources whose devices the scheduler allocated from a claim. Device plugins do not allocate them. Pure. */
import type { Container, Pod } from '../../../base/model/pod.ts';

/** Whether the status of the pod says that the container's devices for the resource come from a claim. */
export function isOfClaim({ status }: Pod, { name }: Container, resource: string): boolean {
  const mappings = status?.extendedResourceClaimStatus?.requestMappings ?? [];
  return mappings.some(({ containerName, resourceName }) => containerName === name && resourceName === resource);
}
