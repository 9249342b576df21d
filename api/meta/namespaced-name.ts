/** Names objects by namespace and name, in caches, log lines and messages. */
import type { KubeObject } from './object.ts';

/** Returns `namespace/name`, and `/name` for an object without a namespace. */
export const namespacedName = ({ metadata }: { readonly metadata: KubeObject['metadata'] }): string =>
  `${metadata.namespace ?? ''}/${metadata.name ?? ''}`;
