/** Writes the IPAddress objects of services, one for each cluster address, in the transaction that changes the service. */
import { formatTime } from '../../../../api/machinery/clock.ts';
import { canonicalIp, parseIp } from '../../../../api/meta/ip-addresses.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { encodeObject } from '../../../storage/object-bytes.ts';
import type { TransactionWrite } from '../../../storage/storage.ts';
import { newUid } from '../../object-identity.ts';
import type { StoredResource } from '../../store.ts';
import type { IpAddress } from '../networking/networking-types.ts';
import { isHeadless, needsClusterIp, type Service } from './service-types.ts';

const FAMILY_LABEL = 'ipaddress.kubernetes.io/ip-family';
const MANAGED_BY_LABEL = 'ipaddress.kubernetes.io/managed-by';
const MANAGER = 'ipallocator.k8s.io';

const familyOf = (address: string): string => (parseIp(address)?.family === 6 ? 'IPv6' : 'IPv4');

/** Returns the cluster addresses in canonical form. A headless service and one without a cluster address have none. */
export function clusterAddresses(service: Service | undefined): readonly string[] {
  const spec = service?.spec;
  if (spec === undefined || !needsClusterIp(spec) || isHeadless(spec)) return [];
  return (spec.clusterIPs ?? []).map((address) => canonicalIp(address) ?? address);
}

/** Returns the IPAddress object as the server creates it for a service. */
export function ipAddressOf(address: string, service: Service): KubeObject {
  const { namespace = '', name = '' } = service.metadata;
  return {
    kind: 'IPAddress',
    apiVersion: 'networking.k8s.io/v1',
    metadata: { name: address, labels: { [FAMILY_LABEL]: familyOf(address), [MANAGED_BY_LABEL]: MANAGER } },
    spec: { parentRef: { resource: 'services', namespace, name } },
  };
}

/** Whether the label names the allocator of services as the manager. Any client can set it. */
export const isManaged = (address: IpAddress): boolean => address.metadata.labels?.[MANAGED_BY_LABEL] === MANAGER;

/** Whether the labels are those that the allocator writes for this address. */
export function hasServiceLabels(address: IpAddress): boolean {
  return isManaged(address) && address.metadata.labels?.[FAMILY_LABEL] === familyOf(address.metadata.name ?? '');
}

/** Returns the service that owns the address, or `undefined` if its parent is of another kind. */
export function parentService(address: IpAddress): { readonly namespace: string; readonly name: string } | undefined {
  const { group = '', resource, namespace = '', name = '' } = address.spec?.parentRef ?? {};
  return group === '' && resource === 'services' ? { namespace, name } : undefined;
}

/** Whether the object belongs to the service, by namespace and name. */
export function refersTo(address: IpAddress, service: Service): boolean {
  const parent = parentService(address);
  return parent?.namespace === service.metadata.namespace && parent?.name === service.metadata.name;
}

/** Returns the operations on IPAddress objects in the transaction that changes a service. */
export function addressWrites(
  addresses: StoredResource,
  service: Service | undefined,
  old: Service | undefined,
  nowMs: number,
): readonly TransactionWrite[] {
  const before = clusterAddresses(old);
  const now = clusterAddresses(service);
  const keyOf = (name: string): string => addresses.cache.keyOf('', name);
  const writes: TransactionWrite[] = [];
  for (const name of now) {
    if (service === undefined || before.includes(name)) continue;
    const object = ipAddressOf(name, service);
    const { metadata } = object;
    Object.assign(metadata, { uid: newUid(), creationTimestamp: formatTime(nowMs) });
    metadata.managedFields = [ownership(object, formatTime(nowMs))];
    writes.push({ key: keyOf(name), value: encodeObject(object) });
  }
  for (const name of before) {
    if (old === undefined || now.includes(name)) continue;
    // An object that has another parent or a finalizer is not removed.
    const object = addresses.cache.get('', name)?.object as IpAddress | undefined;
    if (object === undefined || !refersTo(object, old) || (object.metadata.finalizers ?? []).length > 0) continue;
    writes.push({ key: keyOf(name), value: undefined });
  }
  return writes;
}

/** Returns the managed fields, which say that the server owns the whole object. */
function ownership({ apiVersion = '' }: KubeObject, time: string) {
  const labels = { '.': {}, [`f:${FAMILY_LABEL}`]: {}, [`f:${MANAGED_BY_LABEL}`]: {} };
  return {
    manager: 'kube-apiserver',
    operation: 'Update' as const,
    apiVersion,
    time,
    fieldsType: 'FieldsV1' as const,
    fieldsV1: {
      'f:metadata': { 'f:labels': labels },
      'f:spec': { 'f:parentRef': { '.': {}, 'f:name': {}, 'f:namespace': {}, 'f:resource': {} } },
    },
  };
}
