/**
 * Creates the ServiceCIDR `kubernetes`, which represents `--service-cluster-ip-range`, adds the second address family of the
 * flag to it, and marks it as ready while it equals the flag. Other differences stay: the object decides, not the flag.
 */
import type { Client } from '../../../api/client/client.ts';
import type { ServiceCIDR } from '../../../api/kinds/kinds.ts';
import { serviceCIDRs } from '../../../api/client/resources.ts';
import { typedClient } from '../../../api/client/typed-client.ts';
import { tolerateRaces } from '../../../api/meta/status-error.ts';
import { findObject } from './existing-objects.ts';
import { DEFAULT_RANGE } from '../../registry/kinds/core/service-ranges.ts';

const API_VERSION = 'networking.k8s.io/v1';
/** The name of kube-apiserver's controller of this object, in managed fields. */
const STATUS_MANAGER = 'kubernetes-service-cidr-controller';

/**
 * Creates or completes the ServiceCIDR. It is safe to call it again and beside another server: a write that loses a race is
 * repeated at the next call.
 */
export function ensureDefaultRange(client: Client, cidrs: readonly string[]): Promise<void> {
  return tolerateRaces(updateDefaultRange(client, cidrs));
}

async function updateDefaultRange(client: Client, cidrs: readonly string[]): Promise<void> {
  const typed = typedClient(client);
  let range = await findObject<ServiceCIDR>(client, serviceCIDRs, '', DEFAULT_RANGE);
  range ??= await typed.create<ServiceCIDR>(serviceCIDRs, '', {
    apiVersion: API_VERSION,
    kind: 'ServiceCIDR',
    metadata: { name: DEFAULT_RANGE },
    spec: { cidrs: [...cidrs] },
  });
  if (range.metadata.deletionTimestamp !== undefined) return;
  const stored = range.spec?.cidrs ?? [];
  if (cidrs.length === 2 && stored.length === 1 && stored[0] === cidrs[0])
    range = await typed.update(serviceCIDRs, { ...range, spec: { cidrs: [...cidrs] } });
  const conditions = range.status?.conditions ?? [];
  const isSame = String(range.spec?.cidrs ?? []) === String(cidrs);
  if (!isSame || conditions.some(({ type, status }) => type === 'Ready' && status !== 'Unknown')) return;
  const ready = {
    type: 'Ready',
    status: 'True',
    message: 'Kubernetes default Service CIDR is ready',
    lastTransitionTime: range.metadata.creationTimestamp ?? '',
  };
  const patch = {
    apiVersion: API_VERSION,
    kind: 'ServiceCIDR',
    metadata: { name: DEFAULT_RANGE },
    status: { conditions: [ready] },
  };
  const options = { subresource: 'status', fieldManager: STATUS_MANAGER, force: true };
  await client.patch(serviceCIDRs, '', DEFAULT_RANGE, { type: 'apply', body: patch, ...options });
}
