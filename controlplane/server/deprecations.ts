/** Returns the warnings of deprecated resources. Those of custom resources are part of their definitions. */
import type { ResourceInfo } from '../../api/schema/schema.ts';

/** The warnings of the core group, version v1, by resource. */
const WARNINGS: ReadonlyMap<string, string> = new Map([
  ['componentstatuses', 'v1 ComponentStatus is deprecated in v1.19+'],
  ['endpoints', 'v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice'],
]);

/** Returns an empty text if there is no warning. */
export function deprecationWarning({ group, version, resource, custom }: ResourceInfo): string {
  if (custom !== undefined) return custom.deprecation;
  return group === '' && version === 'v1' ? (WARNINGS.get(resource) ?? '') : '';
}
