/**
 * Checks the identity of pods. The name, namespace and uid become names of directories, files and containers, and a manifest
 * may have any text as uid. The mux calls it for the pods of all sources before they reach the sync loop.
 */
import type { Pod } from '../model/pod.ts';

/**
 * Matches every name and uid that the API allows. It does not match `.`, `..`, path separators and the separators of log
 * directory names.
 */
const SEGMENT = /^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;

/** Returns an empty string if the pod's identity is usable, else the reason to reject it. */
export function identityFault({ metadata }: Pod): string {
  const wrong = (['name', 'namespace', 'uid'] as const).find((field) => !SEGMENT.test(metadata[field]));
  return wrong === undefined
    ? ''
    : `metadata.${wrong}: ${JSON.stringify(metadata[wrong])} must consist of at most 253 letters, digits, '-' and '.', and start and end with a letter or digit`;
}
