/** Distinguishes pods by their source and their importance to the node. Pure. */
import type { Pod } from './pod.ts';
import { MIRROR_ANNOTATION, SOURCE_ANNOTATION } from '../../../api/kinds/pod-annotations.ts';

/** The hash of the manifest of a static pod. */
export const ANNOTATION_CONFIG_HASH = 'kubernetes.io/config.hash';
/** The time at which the agent saw the pod first, in RFC 3339. */
export const ANNOTATION_CONFIG_SEEN = 'kubernetes.io/config.seen';

/** The priority of `system-cluster-critical`. Pods with at least this priority are critical, and may preempt others. */
export const SYSTEM_CRITICAL_PRIORITY = 2_000_000_000;

/** Whether the pod only shows a static pod at the API server. It is never run itself. */
export function isMirrorPod(pod: Pod): boolean {
  return pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined;
}

/** Whether the pod comes from a file, a URL or the agent's own server, and not from the API. */
export function isStaticPod(pod: Pod): boolean {
  const source = pod.metadata.annotations?.[SOURCE_ANNOTATION];
  return source !== undefined && source !== 'api';
}

/** Whether the pod is critical: the agent never evicts it, and pods that are not critical are preempted for it. */
export function isCriticalPod(pod: Pod): boolean {
  return isStaticPod(pod) || isMirrorPod(pod) || (pod.spec.priority ?? 0) >= SYSTEM_CRITICAL_PRIORITY;
}

/** Whether the pod is critical to its node, not only to the cluster. */
export function isNodeCriticalPod(pod: Pod): boolean {
  return isCriticalPod(pod) && pod.spec.priorityClassName === 'system-node-critical';
}
