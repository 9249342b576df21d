/** Computes the QoS class of a pod from the requests and limits of its containers, or of the pod as a whole. */
import { parseQuantity } from '../meta/quantity.ts';
import type { PodSpec, Quantities } from './pod-types.ts';

/** The QoS class of a pod. */
export type QosClass = 'Guaranteed' | 'Burstable' | 'BestEffort';

const COMPUTE = ['cpu', 'memory'] as const;

/** Returns the amounts of CPU and memory that are above zero, in billionths. */
function computeAmounts(list: unknown): Map<string, bigint> {
  const found = new Map<string, bigint>();
  for (const name of COMPUTE) {
    const value = ((list ?? {}) as Quantities)[name];
    if (value === undefined) continue;
    const { nano } = parseQuantity(value);
    if (nano > 0n) found.set(name, nano);
  }
  return found;
}

/**
 * Returns the QoS class. Only CPU and memory count. Resources of the pod as a whole replace those of its containers, also if
 * they are empty.
 */
export function qosClassOf(spec: Pick<PodSpec, 'resources' | 'containers' | 'initContainers'>): QosClass {
  const parts =
    (spec.resources ?? undefined) === undefined
      ? [...(spec.containers ?? []), ...(spec.initContainers ?? [])].map(({ resources }) => resources)
      : [spec.resources];
  const requests = new Map<string, bigint>();
  const limits = new Map<string, bigint>();
  let guaranteed = true;
  for (const part of parts) {
    for (const [name, value] of computeAmounts(part?.requests)) requests.set(name, (requests.get(name) ?? 0n) + value);
    const ofPart = computeAmounts(part?.limits);
    for (const [name, value] of ofPart) limits.set(name, (limits.get(name) ?? 0n) + value);
    if (ofPart.size < COMPUTE.length) guaranteed = false;
  }
  if (requests.size === 0 && limits.size === 0) return 'BestEffort';
  if (guaranteed && requests.size === limits.size && [...requests].every(([name, value]) => limits.get(name) === value))
    return 'Guaranteed';
  return 'Burstable';
}
