/** Distinguishes pods by their source and their importance to the node. Pure. */
import type { Pod } from './pod.ts';

export const ANNOTATION_CONFIG_SOURCE = 'kubernetes.io/config.source';
export const ANNOTATION_CONFIG_HASH = 'kubernetes.io/config.hash';
export const ANNOTATION_CONFIG_MIRROR = 'kubernetes.io/config.mirror';
export const ANNOTATION_CONFIG_SEEN = 'kubernetes.io/config.seen';

export const SYSTEM_CRITICAL_PRIORITY = 2_000_000_000;

export function isMirrorPod(pod: Pod): boolean {
  return pod.metadata.annotations?.[ANNOTATION_CONFIG_MIRROR] !== undefined;
}

/** Whether the pod comes from a file, a URL or the agent's own server, and not from the API. */
export function isStaticPod(pod: Pod): boolean {
  const source = pod.metadata.annotations?.[ANNOTATION_CONFIG_SOURCE];
  return source !== undefined && source !== 'api';
}

/** Whether the node needs the pod: it is never evicted, and pods that are not critical give it their resources. */
export function isCriticalPod(pod: Pod): boolean {
  return isStaticPod(pod) || isMirrorPod(pod) || (pod.spec.priority ?? 0) >= SYSTEM_CRITICAL_PRIORITY;
}

/** Whether the pod is critical to its node, not only to the cluster. */
export function isNodeCriticalPod(pod: Pod): boolean {
  return isCriticalPod(pod) && pod.spec.priorityClassName === 'system-node-critical';
}
