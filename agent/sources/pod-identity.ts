/**
 * Checks the identity of pods. The name, namespace and uid, and the names of containers and volumes, become names of
 * directories, files and containers, and a manifest may have any text as uid.
 */
import type { Pod } from '../base/model/pod.ts';

/**
 * Matches every name and uid that the API allows. It does not match `.`, `..`, path separators and the separators of log
 * directory names.
 */
const SEGMENT = /^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;

const RULE = "must consist of at most 253 letters, digits, '-' and '.', and start and end with a letter or digit";
/** The lists of a pod whose members have names that are parts of paths, such as those of volumes and logs. */
const NAMED = ['containers', 'initContainers', 'ephemeralContainers', 'volumes'] as const;

/** Returns an empty string if the pod's identity and the names in it are usable, else the reason to reject it. */
export function identityFault({ metadata, spec }: Pod): string {
  for (const field of ['name', 'namespace', 'uid'] as const)
    if (!isSegment(metadata[field])) return faultOf(`metadata.${field}`, metadata[field]);
  for (const field of NAMED) {
    for (const [at, { name }] of (spec[field] ?? []).entries())
      if (!isSegment(name)) return faultOf(`spec.${field}[${at}].name`, name);
  }
  return '';
}

const isSegment = (value: unknown): boolean => typeof value === 'string' && SEGMENT.test(value);

const faultOf = (path: string, value: unknown): string => `${path}: ${JSON.stringify(value) ?? 'undefined'} ${RULE}`;
