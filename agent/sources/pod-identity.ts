/**
 * The name, namespace and uid of a pod become names of directories, files and containers. Manifests may have any text as
 * uid, so that it is checked here before a pod reaches the sync loop. The mux calls it for the pods of all sources.
 */
import type { Pod } from '../model/core-types.ts';

/** Every name and uid of the API fits. It never is `.` or `..`, and has no separator of paths or of names of log directories. */
const SEGMENT = /^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;

/** Returns an empty string if the pod's identity is usable, else what is wrong with it. */
export function identityFault({ metadata }: Pod): string {
  const wrong = (['name', 'namespace', 'uid'] as const).find((field) => !SEGMENT.test(metadata[field]));
  return wrong === undefined
    ? ''
    : `metadata.${wrong}: ${JSON.stringify(metadata[wrong])} must consist of at most 253 letters, digits, '-' and '.', and start and end with a letter or digit`;
}
