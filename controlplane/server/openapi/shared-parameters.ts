/** Moves the parameters that all operations of a path have to the path, as kube-apiserver's documents have them. */
import type { ParameterInfo } from './parameters.ts';

interface WithParameters {
  readonly parameters: readonly ParameterInfo[];
}

const byName = (a: ParameterInfo, b: ParameterInfo): number => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);

/** Moves the parameters that all operations have to the path, and sorts all parameters by name. */
export function withSharedParameters<Path extends WithParameters & { readonly operations: readonly WithParameters[] }>(
  path: Path,
): Path {
  const { parameters, operations } = path;
  const shared = (operations[0]?.parameters ?? []).filter((one) =>
    operations.every((other) => other.parameters.includes(one)),
  );
  return {
    ...path,
    parameters: [...parameters, ...shared].sort(byName),
    operations: operations.map((operation) => ({
      ...operation,
      parameters: operation.parameters.filter((one) => !shared.includes(one)).sort(byName),
    })),
  };
}
