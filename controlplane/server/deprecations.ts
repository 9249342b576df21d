/** Returns the warnings of deprecated built-in resources. Custom resource definitions have their own. */

const WARNINGS: ReadonlyMap<string, string> = new Map([
  ['/v1/componentstatuses', 'v1 ComponentStatus is deprecated in v1.19+'],
  ['/v1/endpoints', 'v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice'],
]);

/** Returns an empty text if there is no warning. */
export function builtinDeprecation(group: string, version: string, resource: string): string {
  return WARNINGS.get(`${group}/${version}/${resource}`) ?? '';
}
