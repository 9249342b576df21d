/**
 * The ServiceCIDR `kubernetes` that stands for `--service-cluster-ip-range`: made when it is missing, given its second family
 * when the flags have one, and said to be ready. What else differs stays: the object is the cluster's truth, not the flags.
 */
import type { Client } from '../../api/machinery/client.ts';
import type { ServiceCIDR } from '../../api/machinery/kinds.ts';
import { serviceCIDRs } from '../../api/machinery/resources.ts';
import { typedClient } from '../../api/machinery/typed-client.ts';
import { isAlreadyExists, isConflict, isNotFound } from '../../api/meta/status-error.ts';
import { DEFAULT_RANGE } from '../registry/kinds/core/service-ranges.ts';

/** Safe to call again and beside another server; what another wrote meanwhile is looked at the next time. */
export async function ensureDefaultRange(client: Client, cidrs: readonly string[]): Promise<void> {
  const typed = typedClient(client);
  try {
    let range = await current(client);
    range ??= await typed.create<ServiceCIDR>(serviceCIDRs, '', {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'ServiceCIDR',
      metadata: { name: DEFAULT_RANGE },
      spec: { cidrs: [...cidrs] },
    });
    if (range.metadata.deletionTimestamp !== undefined) return;
    const known = range.spec?.cidrs ?? [];
    if (cidrs.length === 2 && known.length === 1 && known[0] === cidrs[0])
      range = await typed.update(serviceCIDRs, { ...range, spec: { cidrs: [...cidrs] } });
    const conditions = range.status?.conditions ?? [];
    const isSame = String(range.spec?.cidrs ?? []) === String(cidrs);
    if (!isSame || conditions.some(({ type, status }) => type === 'Ready' && status !== 'Unknown')) return;
    const ready = {
      type: 'Ready',
      status: 'True',
      reason: '',
      message: 'Kubernetes default Service CIDR is ready',
      lastTransitionTime: range.metadata.creationTimestamp ?? '',
    };
    const others = conditions.filter(({ type }) => type !== 'Ready');
    await typed.update(
      serviceCIDRs,
      { ...range, status: { ...range.status, conditions: [...others, ready] } },
      { subresource: 'status' },
    );
  } catch (error) {
    if (!isAlreadyExists(error) && !isConflict(error) && !isNotFound(error)) throw error;
  }
}

async function current(client: Client): Promise<ServiceCIDR | undefined> {
  // --runtime-config may leave the kind out: then the creation says that it is not found.
  try {
    return (await client.get(serviceCIDRs, '', DEFAULT_RANGE)) as ServiceCIDR;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}
