/** Warnings of deprecated built-in resources. Definitions of custom resources have their own. */

const WARNINGS: ReadonlyMap<string, string> = new Map([
  ['/v1/componentstatuses', 'v1 ComponentStatus is deprecated in v1.19+'],
  ['/v1/endpoints', 'v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice'],
]);

/** `''` where there is nothing to warn of. */
export function builtinDeprecation(group: string, version: string, resource: string): string {
  return WARNINGS.get(`${group}/${version}/${resource}`) ?? '';
}
