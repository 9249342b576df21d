/**
 * Maintains ServiceCIDRs: each has a finalizer that keeps it while services have addresses that are in no other range. The
 * condition `Ready` shows whether addresses are allocated from it.
 */
import { cidrContains, cidrCovers, parseCidr, parseIp, type Cidr } from '../../../api/meta/ip-addresses.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { IPAddress, ServiceCIDR } from '../../../api/kinds/kinds.ts';
import { ipAddresses, serviceCIDRs } from '../../../api/client/resources.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { isManaged } from '../../registry/kinds/core/service-ip-addresses.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';

const FINALIZER = 'networking.k8s.io/service-cidr-finalizer';
/** The name by which kube-controller-manager applies the condition, so that either can take over from the other. */
const FIELD_MANAGER = 'service-cidr-controller';
/** The delay after which every API server knows that a range is being deleted. */
const DELETION_GRACE_MS = 10_000;

interface Readiness {
  readonly status: 'True' | 'False';
  readonly reason: string;
  readonly message: string;
}

const READY: Readiness = { status: 'True', reason: '', message: 'Kubernetes Service CIDR is ready' };
const TERMINATING: Readiness = {
  status: 'False',
  reason: 'Terminating',
  message: 'There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR',
};

const isTerminating = ({ metadata }: ServiceCIDR): boolean => metadata.deletionTimestamp !== undefined;
const cidrsOf = ({ spec }: ServiceCIDR): readonly Cidr[] =>
  (spec?.cidrs ?? []).map(parseCidr).filter((cidr) => cidr !== undefined);

/** Whether the range may be deleted: no address of a service is in this range alone. */
export function mayBeDeleted(
  range: ServiceCIDR,
  ranges: readonly ServiceCIDR[],
  addresses: () => readonly IPAddress[],
): boolean {
  const rangeCidrs = cidrsOf(range);
  const others = ranges
    .filter((other) => other.metadata.name !== range.metadata.name && !isTerminating(other))
    .flatMap(cidrsOf);
  if (rangeCidrs.every((cidr) => others.some((other) => cidrCovers(other, cidr)))) return true;
  return !addresses().some((address) => {
    const ip = parseIp(address.metadata.name ?? '');
    if (ip === undefined || !isManaged(address)) return false;
    const isIn = (cidr: Cidr): boolean => cidrContains(cidr, ip);
    return rangeCidrs.some(isIn) && !others.some(isIn);
  });
}

/**
 * Adds a finalizer to each range, and removes it from a deleted range once `mayBeDeleted` allows it and a grace period is over.
 */
export const runServiceCidrs: RunController = (environment, signal) => {
  const { client, informers, clock } = environment;
  const ranges = informers.for(serviceCIDRs);
  const addresses = informers.for(ipAddresses);

  const setFinalizers = async (range: ServiceCIDR, finalizers: string[]): Promise<void> => {
    await client.update(serviceCIDRs, { ...range, metadata: { ...range.metadata, finalizers } });
  };
  const setReadiness = async (range: ServiceCIDR, wanted: Readiness): Promise<void> => {
    const current = range.status?.conditions?.find(({ type }) => type === 'Ready');
    const { status, reason, message } = wanted;
    if (current?.status === status && current.reason === reason && current.message === message) return;
    const condition = { type: 'Ready', ...wanted, lastTransitionTime: formatTime(clock.now()) };
    const { name = '' } = range.metadata;
    await client.patch(serviceCIDRs, '', name, {
      type: 'apply',
      body: {
        apiVersion: 'networking.k8s.io/v1',
        kind: 'ServiceCIDR',
        metadata: { name },
        status: { conditions: [condition] },
      },
      subresource: 'status',
      fieldManager: FIELD_MANAGER,
      force: true,
    });
  };
  const settle = async (range: ServiceCIDR): Promise<void> => {
    const { name = '', finalizers = [], deletionTimestamp } = range.metadata;
    if (deletionTimestamp === undefined) {
      // The write is an event that enqueues the range again, and then the condition is set.
      if (!finalizers.includes(FINALIZER)) await setFinalizers(range, [...finalizers, FINALIZER]);
      else await setReadiness(range, READY);
      return;
    }
    if (!finalizers.includes(FINALIZER)) return;
    if (!mayBeDeleted(range, ranges.list(), () => addresses.list())) {
      await setReadiness(range, TERMINATING);
      return;
    }
    const waitMs = Date.parse(String(deletionTimestamp)) + DELETION_GRACE_MS - clock.now();
    if (waitMs > 0) loop.queue.addAfter(name, waitMs);
    else
      await setFinalizers(
        range,
        finalizers.filter((other) => other !== FINALIZER),
      );
  };

  const loop = new ReconcileLoop(environment, {
    reconcile: async (name) => {
      const range = ranges.get('', name);
      if (range === undefined) return;
      await tolerate(settle(range), isNotFound);
    },
  });
  const enqueueTerminating = (): void => {
    for (const range of ranges.list()) if (isTerminating(range)) loop.enqueue(range);
  };
  loop.follow(ranges);
  ranges.addHandler({ add: enqueueTerminating, delete: enqueueTerminating });
  addresses.addHandler({ delete: enqueueTerminating });
  return loop.run(signal, ranges, addresses);
};
