/** Computes the resources in the status of a pod. The amounts of the cgroup are computed and not read. Pure. */
import { formatQuantity, newQuantity } from '../../../api/meta/quantity.ts';
import type { Container, Pod, PodStatus } from '../../base/model/pod.ts';
import type { ResizeConditions } from './resize.ts';
import { areAllLimited, bytesOf, limitsOf, milliOf, podLevel, podResources, requestsOf } from './resources.ts';

type Quantities = Readonly<Record<string, string | undefined>>;

/** A cgroup cannot express CPU requests and limits up to these. The status then shows those of the pod's spec. */
const MIN_MILLI_CPU = { requests: 2, limits: 10 } as const;
const PAGE_BYTES = 4096;

/**
 * Returns the resources in the status of a pod. A pod with pod-level resources shows these, any other pod the sum of its
 * containers. They change when a resize is done, and stay the same once the pod has terminated.
 */
export function podResourcesStatus({
  pod,
  previous,
  resize,
}: {
  readonly pod: Pod;
  readonly previous: PodStatus | undefined;
  readonly resize: ResizeConditions;
}): Partial<PodStatus> {
  const { resources: ofPod } = pod.spec;
  const requests = ofPod === undefined ? podResources(pod, requestsOf) : (ofPod.requests ?? {});
  const limits = ofPod === undefined ? podResources(pod, limitsOf) : (ofPod.limits ?? {});
  const hasRequests = Object.keys(requests).length > 0;
  const hasEnded = previous?.phase === 'Succeeded' || previous?.phase === 'Failed';
  const current = previous?.phase === 'Running' ? cgroupResources(pod, previous) : withoutEmpty(requests, limits);
  return {
    resources: (hasEnded || resize.inProgress !== undefined ? previous?.resources : undefined) ?? current,
    ...(hasRequests ? { allocatedResources: requests } : {}),
  };
}

function withoutEmpty(requests: Quantities, limits: Quantities): NonNullable<PodStatus['resources']> {
  return {
    ...(Object.keys(limits).length === 0 ? {} : { limits }),
    ...(Object.keys(requests).length === 0 ? {} : { requests }),
  } as NonNullable<PodStatus['resources']>;
}

/**
 * Returns the pod-level resources, with CPU and memory as the pod's cgroup has them. A cgroup has no memory request, so a
 * running pod keeps the one in its status, as with the kubelet.
 */
function cgroupResources(pod: Pod, previous: PodStatus): NonNullable<PodStatus['resources']> {
  const sums = { requests: podResources(pod, requestsOf), limits: podResources(pod, limitsOf) };
  const requests: Record<string, string | undefined> = { ...pod.spec.resources?.requests };
  const limits: Record<string, string | undefined> = { ...pod.spec.resources?.limits };
  if (milliOf(sums.requests['cpu']) > MIN_MILLI_CPU.requests) requests['cpu'] = sums.requests['cpu'];
  const memory = (previous.resources?.requests as Quantities | undefined)?.['memory'] ?? sums.requests['memory'];
  if (memory !== undefined) requests['memory'] = memory;
  if (areAllLimited(pod, 'cpu') && milliOf(sums.limits['cpu']) > MIN_MILLI_CPU.limits)
    limits['cpu'] = sums.limits['cpu'];
  if (areAllLimited(pod, 'memory')) limits['memory'] = wholePages(bytesOf(sums.limits['memory']));
  return withoutEmpty(requests, limits);
}

/** Formats a memory limit, rounded down to whole pages as the kernel does. */
function wholePages(bytes: number): string {
  return formatQuantity(newQuantity(bytes - (bytes % PAGE_BYTES), 'BinarySI'));
}

/**
 * Returns the resources of a container. A running container that has limits shows those of its pod where it has none itself,
 * because the runtime was given these.
 */
export function containerResourcesStatus(
  pod: Pod,
  container: Container,
  { isRunning }: { readonly isRunning: boolean },
): NonNullable<PodStatus['resources']> {
  const limits = limitsOf(container);
  const ofPod = podLevel(pod, 'limits');
  const inherited = (['cpu', 'memory'] as const).filter(
    (name) => limits[name] === undefined && ofPod[name] !== undefined,
  );
  if (!isRunning || Object.keys(limits).length === 0) return withoutEmpty(requestsOf(container), limits);
  return withoutEmpty(requestsOf(container), {
    ...limits,
    ...Object.fromEntries(inherited.map((name) => [name, ofPod[name]])),
  });
}
