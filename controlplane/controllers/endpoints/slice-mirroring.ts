/** Mirrors Endpoints objects that users maintain for services without a selector into endpoint slices. */
import { stringifyJson } from '../../../api/codec/json.ts';
import type { V1EndpointAddress, V1EndpointSubset } from '@kubernetes/client-node';
import type { Endpoints, EndpointSlice, Service, Wire } from '../../../api/kinds/kinds.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import { endpoints, endpointSlices, services } from '../../../api/client/resources.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import { keyOf, ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { controllerReference } from '../owner-references.ts';
import { PendingWrites } from '../pending-writes.ts';
import { isNamespaceTerminating } from '../pod-control.ts';
import { MANAGED_BY, TRIGGER_TIME } from './endpoint-slices.ts';
import { hasSelector } from './service-pods.ts';
import { planSlices, type AddressType, type Endpoint, type EndpointGroup, type EndpointPort } from './slice-core.ts';
import { SERVICE_NAME_LABEL, LAST_APPLIED_ANNOTATION, HEADLESS_LABEL } from '../../../api/meta/well-known-labels.ts';

const MANAGER = 'endpointslicemirroring-controller.k8s.io';
const SKIP = 'endpointslice.kubernetes.io/skip-mirror';
const LEADER = 'control-plane.alpha.kubernetes.io/leader';
/** How long after a change of its slices an object is reconciled, and how often it waits for its last writes to be shown. */
const BATCH_MS = 500;

type Subset = Wire<V1EndpointSubset>;
type Address = Wire<V1EndpointAddress>;

/** Whether the object has a service without a selector, and neither opts out nor is used for leader election. */
export function isMirrored(object: Endpoints, service: Service | undefined): boolean {
  if (service === undefined || hasSelector(service)) return false;
  const { labels = {}, annotations = {} } = object.metadata;
  return labels[SKIP] !== 'true' && annotations[LEADER] === undefined;
}

/** Returns a group for each set of ports and address family, with at most `maxAddresses` of each subset. */
export function groupsOf(subsets: readonly Subset[], maxAddresses: number): EndpointGroup[] {
  const groups = new Map<string, { addressType: AddressType; ports: EndpointPort[]; endpoints: Endpoint[] }>();
  for (const subset of subsets) {
    const ports = (subset.ports ?? []).map(({ name, port, protocol, appProtocol }) => ({
      name: name ?? '',
      port,
      protocol: protocol ?? 'TCP',
      ...(appProtocol === undefined ? {} : { appProtocol }),
    }));
    const members = [
      ...(subset.addresses ?? []).map((address) => ({ address, ready: true })),
      ...(subset.notReadyAddresses ?? []).map((address) => ({ address, ready: false })),
    ].slice(0, maxAddresses);
    for (const { address, ready } of members) {
      const addressType: AddressType = address.ip.includes(':') ? 'IPv6' : 'IPv4';
      const key = `${addressType} ${stringifyJson(ports)}`;
      let group = groups.get(key);
      if (group === undefined) {
        group = { addressType, ports, endpoints: [] };
        groups.set(key, group);
      }
      group.endpoints.push(endpointOf(address, ready));
    }
  }
  return [...groups.values()];
}

/** Returns the number of addresses beyond the limit of each subset. */
const countSkipped = (subsets: readonly Subset[], maxAddresses: number): number =>
  subsets.reduce((sum, { addresses = [], notReadyAddresses = [] }) => {
    return sum + Math.max(0, addresses.length + notReadyAddresses.length - maxAddresses);
  }, 0);

function endpointOf({ ip, hostname, nodeName, targetRef }: Address, ready: boolean): Endpoint {
  return {
    addresses: [ip],
    conditions: { ready },
    ...(hostname === undefined || hostname === '' ? {} : { hostname }),
    ...(nodeName === undefined ? {} : { nodeName }),
    ...(targetRef === undefined ? {} : { targetRef: structuredClone(targetRef) }),
  };
}

/** Slices of this controller that it no longer needs are deleted. Those of other programs stay. */
export const runSliceMirroring: RunController = (environment, signal) => {
  const { informers } = environment;
  const originals = informers.for(endpoints);
  const serviceCache = informers.for(services);
  const slices = informers.for(endpointSlices);
  const pending = new PendingWrites(slices, environment.clock);
  slices.addIndex('mirror-of', mirrorKeys);
  const loop = new ReconcileLoop(environment, {
    workers: 5,
    baseDelayMs: 1000,
    maxDelayMs: 100_000,
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const original = originals.get(namespace, name);
      const mirrored = original !== undefined && isMirrored(original, serviceCache.get(namespace, name));
      const existing = slices
        .byIndex('mirror-of', key)
        .filter((slice) => slice.metadata.deletionTimestamp === undefined);
      if (!pending.settled(key)) return loop.queue.addAfter(key, BATCH_MS);
      try {
        if (mirrored) await mirror(environment, pending, original, existing);
        else {
          for (const slice of existing) await remove(environment, pending, key, slice);
          if (original === undefined) pending.forget(key);
        }
      } catch (error) {
        if (isNamespaceTerminating(error) || isNotFound(error)) return;
        if (original !== undefined) {
          const message = `Error updating EndpointSlices for Endpoints ${key}: ${(error as Error).message}`;
          environment.recorder.event(
            referenceTo(original, endpoints),
            'Warning',
            'FailedToUpdateEndpointSlices',
            message,
          );
        }
        throw error;
      }
    },
  });

  loop.follow(originals);
  serviceCache.addHandler({
    add: loop.enqueue,
    update(previous, current) {
      if (hasSelector(previous) !== hasSelector(current)) loop.enqueue(current);
    },
    delete: loop.enqueue,
  });
  const sliceChanged = (slice: EndpointSlice): void => {
    for (const key of mirrorKeys(slice)) loop.queue.addAfter(key, BATCH_MS);
  };
  slices.addHandler({ update: (_, slice) => sliceChanged(slice), delete: sliceChanged });
  return loop.run(signal, originals, serviceCache, slices);
};

async function mirror(
  environment: ControllerEnvironment,
  pending: PendingWrites<EndpointSlice>,
  original: Endpoints,
  existing: readonly EndpointSlice[],
): Promise<void> {
  const { client, options } = environment;
  const key = keyOf(original);
  const metadata = metadataOf(original);
  const plan = planSlices({
    existing,
    groups: groupsOf(original.subsets ?? [], options.mirroringMaxEndpointsPerSubset),
    placeholders: [],
    maxPerSlice: options.mirroringMaxEndpointsPerSubset,
    isStale: ({ metadata: { labels, annotations } }) =>
      !semanticEqual(labels, metadata.labels) || !semanticEqual(annotations ?? {}, metadata.annotations),
  });
  const skipped = countSkipped(original.subsets ?? [], options.mirroringMaxEndpointsPerSubset);
  if (skipped > 0) {
    const message = `A max of ${options.mirroringMaxEndpointsPerSubset} addresses can be mirrored to EndpointSlices per Endpoints subset. ${skipped} addresses were skipped`;
    environment.recorder.event(referenceTo(original, endpoints), 'Warning', 'TooManyAddressesToMirror', message);
  }
  for (const group of plan.create) {
    const slice = newSlice(original, group, metadata);
    pending.wrote(key, await client.create(endpointSlices, original.metadata.namespace ?? '', slice));
  }
  for (const { slice, endpoints: members, ports } of plan.update) {
    const changed = {
      ...slice,
      metadata: { ...slice.metadata, ...metadata },
      endpoints: [...members],
      ports: [...ports],
    };
    pending.wrote(key, await client.update(endpointSlices, changed));
  }
  for (const slice of plan.remove) await remove(environment, pending, key, slice);
}

function newSlice(
  original: Endpoints,
  { addressType, ports, endpoints: members }: EndpointGroup,
  metadata: SliceMetadata,
): EndpointSlice {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      generateName: `${original.metadata.name}-`,
      namespace: original.metadata.namespace ?? '',
      ...metadata,
      ownerReferences: [controllerReference(original, endpoints)],
    },
    addressType,
    endpoints: [...members],
    ports: [...ports],
  };
}

async function remove(
  { client }: ControllerEnvironment,
  pending: PendingWrites<EndpointSlice>,
  key: string,
  slice: EndpointSlice,
): Promise<void> {
  await client.delete(endpointSlices, slice.metadata.namespace ?? '', slice.metadata.name ?? '');
  pending.deleted(key, slice);
}

interface SliceMetadata {
  readonly labels: Record<string, string>;
  readonly annotations: Record<string, string>;
}

function mirrorKeys({ metadata }: EndpointSlice): string[] {
  const { [SERVICE_NAME_LABEL]: service = '', [MANAGED_BY]: manager } = metadata.labels ?? {};
  return service === '' || manager !== MANAGER ? [] : [keyOf({ metadata: { ...metadata, name: service } })];
}

function metadataOf({ metadata }: Endpoints): SliceMetadata {
  const { [HEADLESS_LABEL]: _headless, ...labels } = metadata.labels ?? {};
  const { [LAST_APPLIED_ANNOTATION]: _applied, [TRIGGER_TIME]: _trigger, ...annotations } = metadata.annotations ?? {};
  return { labels: { ...labels, [SERVICE_NAME_LABEL]: metadata.name ?? '', [MANAGED_BY]: MANAGER }, annotations };
}
