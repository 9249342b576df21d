/** Validates the pod status that a kubelet reports. */
import {
  duplicate,
  forbidden,
  internal,
  invalid,
  required,
  unsupportedValue,
  type FieldError,
} from '../meta/field-error.ts';
import { ipErrors, parseIp } from '../meta/ip-addresses.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../meta/names.ts';
import { initAndMainContainers } from './pod-containers.ts';
import { invalidFor } from './validation-rules.ts';
import type { Pod, PodStatus } from './pod-types.ts';
import { idErrors } from './security-context-validation.ts';

/** Returns the errors of a status. Addresses that are already stored are not validated again. */
export function podReportErrors(pod: Pod, old: Pod): FieldError[] {
  const { status = {} } = pod;
  const { hostIP = '', hostIPs = [] } = status;
  const errors = [
    ...claimStatusErrors(pod),
    ...extendedClaimErrors(pod),
    ...addressErrors('podIPs', status.podIPs ?? [], old.status?.podIPs ?? []),
  ];
  if (hostIPs.length > 0 && (hostIPs[0]?.ip ?? '') !== hostIP)
    errors.push(invalid('status.hostIPs[0].ip', hostIPs[0]?.ip ?? '', 'must be equal to `hostIP`'));
  errors.push(...addressErrors('hostIPs', hostIPs, old.status?.hostIPs ?? []));
  for (const list of ['containerStatuses', 'initContainerStatuses', 'ephemeralContainerStatuses'] as const)
    errors.push(...userErrors(status[list] ?? [], `status.${list}`, pod.spec?.os?.name ?? 'linux'));
  errors.push(...deviceErrors(pod, 'containerStatuses'), ...deviceErrors(pod, 'initContainerStatuses'));
  for (const [index, { allocatedResourcesStatus: reported }] of (status.ephemeralContainerStatuses ?? []).entries()) {
    if ((reported ?? []).length === 0) continue;
    const field = `status.ephemeralContainerStatuses[${index}].allocatedResourcesStatus`;
    errors.push(forbidden(field, 'must not be specified in container status'));
  }
  return errors;
}

function claimStatusErrors(pod: Pod): FieldError[] {
  const claimNames = new Set((pod.spec?.resourceClaims ?? []).map(({ name = '' }) => name));
  const seen = new Set<string>();
  return (pod.status?.resourceClaimStatuses ?? []).flatMap(({ name = '', resourceClaimName: claimName }, index) => {
    const at = `status.resourceClaimStatuses[${index}]`;
    const errors: FieldError[] = [];
    if (!claimNames.has(name))
      errors.push(invalid(`${at}.name`, name, 'must match the name of an entry in `spec.resourceClaims`'));
    if (seen.has(name)) errors.push(duplicate(`${at}.name`, name));
    seen.add(name);
    if (claimName !== undefined)
      errors.push(...invalidFor(`${at}.resourceClaimName`, claimName, dnsSubdomainErrors(claimName)));
    return errors;
  });
}

/** Validates the claim for the extended resources of a pod, and which request of it is for which container. */
function extendedClaimErrors({ spec, status }: Pod): FieldError[] {
  const claim = status?.extendedResourceClaimStatus;
  if (claim === undefined) return [];
  const at = 'status.extendedResourceClaimStatus';
  const { requestMappings: mappings = [], resourceClaimName: claimName = '' } = claim;
  const errors: FieldError[] = [];
  if (mappings.length === 0) errors.push(required(`${at}.requestMappings`, 'at least one request mapping is required'));
  const containers = new Map(initAndMainContainers(spec).map((one) => [one.name, one]));
  const seen = new Set<string>();
  for (const [index, { containerName = '', resourceName = '', requestName = '' }] of mappings.entries()) {
    const mappingPath = `${at}.requestMappings[${index}]`;
    const container = containers.get(containerName);
    if (container === undefined) errors.push(invalid(`${mappingPath}.containerName`, containerName, NO_CONTAINER));
    else if ((container.resources?.requests as Record<string, unknown> | undefined)?.[resourceName] === undefined)
      errors.push(invalid(`${mappingPath}.resourceName`, resourceName, NO_REQUEST));
    errors.push(...invalidFor(`${at}.requestName`, requestName, dnsLabelErrors(requestName)));
    const key = [containerName, resourceName, requestName].join('\n');
    if (seen.has(key))
      errors.push(
        duplicate(`${mappingPath}.containerName`, containerName),
        duplicate(`${mappingPath}.resourceName`, resourceName),
        duplicate(`${mappingPath}.requestName`, requestName),
      );
    seen.add(key);
  }
  if (claimName === '') errors.push(required(`${at}.resourceClaimName`));
  else errors.push(...invalidFor(`${at}.resourceClaimName`, claimName, dnsSubdomainErrors(claimName)));
  return errors;
}

const NO_CONTAINER = 'must match the name of an entry in spec.initContainers.name or spec.containers.name';
const NO_REQUEST =
  'must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests';

type Addresses = readonly { readonly ip?: string | undefined }[];

/** Validates a list of addresses, which has at most one address of each family. */
function addressErrors(list: 'podIPs' | 'hostIPs', addresses: Addresses, old: Addresses): FieldError[] {
  const field = `status.${list}`;
  const oldAddresses = new Set(old.map(({ ip }) => ip));
  const errors = addresses.flatMap(({ ip = '' }, index) =>
    oldAddresses.has(ip) ? [] : ipErrors(`${field}[${index}]`, ip),
  );
  if (addresses.length < 2) return errors;
  const families = addresses.map(({ ip = '' }) => parseIp(ip)?.family);
  const unreadable = families.indexOf(undefined);
  if (unreadable >= 0) {
    const text = `invalid IP[${unreadable}]: ${addresses[unreadable]?.ip ?? ''}`;
    errors.push(internal(field, `failed to check for dual stack with error:${text}`));
  }
  if (addresses.length > 2 || unreadable >= 0 || new Set(families).size < 2) {
    const shown = addresses.map(({ ip = '' }) => ({ IP: ip }));
    errors.push(invalid(field, shown, 'may specify no more than one IP for each IP family'));
  }
  return errors;
}

type Statuses = NonNullable<PodStatus['containerStatuses']>;

function userErrors(statuses: Statuses, at: string, os: string): FieldError[] {
  return statuses.flatMap(({ user }, index) => {
    const linux = user?.linux;
    if (linux === undefined) return [];
    const field = `${at}[${index}].linux`;
    if (os === 'windows') return [forbidden(field, 'cannot be set for a windows pod')];
    return [
      ...idErrors(`${field}.uid`, linux.uid),
      ...idErrors(`${field}.gid`, linux.gid),
      ...(linux.supplementalGroups ?? []).flatMap((group, number) =>
        idErrors(`${field}.supplementalGroups[${number}]`, group),
      ),
    ];
  });
}

const HEALTH = ['Healthy', 'Unhealthy', 'Unknown'];

function deviceErrors(pod: Pod, list: 'containerStatuses' | 'initContainerStatuses'): FieldError[] {
  const containers = (list === 'containerStatuses' ? pod.spec?.containers : pod.spec?.initContainers) ?? [];
  const errors: FieldError[] = [];
  for (const [index, status] of (pod.status?.[list] ?? []).entries()) {
    const container = containers.find(({ name }) => name === status.name);
    for (const [number, { name = '', resources = [] }] of (status.allocatedResourcesStatus ?? []).entries()) {
      const at = `status.${list}[${index}].allocatedResourcesStatus[${number}]`;
      if (container !== undefined) errors.push(...allocatedErrors(`${at}.name`, name, container));
      const seen = new Set<string>();
      for (const [which, { health = '', resourceID = '' }] of resources.entries()) {
        const resourcePath = `${at}.resources[${which}]`;
        if (!HEALTH.includes(health)) errors.push(unsupportedValue(`${resourcePath}.health`, health, HEALTH));
        if (seen.has(resourceID)) errors.push(duplicate(`${resourcePath}.resourceID`, resourceID));
        seen.add(resourceID);
      }
    }
  }
  return errors;
}

type Container = NonNullable<NonNullable<Pod['spec']>['containers']>[number];

function allocatedErrors(field: string, name: string, { resources }: Container): FieldError[] {
  if (name.startsWith('claim:')) {
    const isListed = (resources?.claims ?? []).some(
      (claim) => name === `claim:${claim.name ?? ''}${(claim.request ?? '') === '' ? '' : `/${claim.request}`}`,
    );
    const text =
      "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
    return isListed ? [] : [invalid(field, name, text)];
  }
  const isListed = (resources?.requests as Record<string, unknown> | undefined)?.[name] !== undefined;
  return isListed ? [] : [invalid(field, name, "must match one of the container's resource requests")];
}
