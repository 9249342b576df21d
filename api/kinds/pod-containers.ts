/** Lists the containers of a pod or a template that run as its workload, without ephemeral containers. */

/** Returns the init containers and then the other containers, in the order of the specification. */
export function initAndMainContainers<Container>(
  spec:
    | {
        readonly initContainers?: readonly Container[] | undefined;
        readonly containers?: readonly Container[] | undefined;
      }
    | undefined,
): readonly Container[] {
  return [...(spec?.initContainers ?? []), ...(spec?.containers ?? [])];
}
