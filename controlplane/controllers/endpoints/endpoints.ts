/** Maintains the Endpoints object of each service with a selector, for clients that do not read slices. */
import { stringifyJson } from '../../../api/codec/json.ts';
import type { V1EndpointAddress, V1EndpointSubset } from '@kubernetes/client-node';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isAlreadyExists, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Endpoints, Pod, Service, Wire } from '../../../api/kinds/kinds.ts';
import { endpoints, pods, services } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type RunController } from '../controller.ts';
import { isNamespaceTerminating } from '../pod-control.ts';
import { isPodReady } from '../pod-state.ts';
import { TRIGGER_TIME, triggerTime } from './endpoint-slices.ts';
import {
  addressOf,
  belongsToEndpoints,
  followServicesAndPods,
  hasSelector,
  isHeadless,
  podsOf,
  targetPortIn,
  referenceToPod,
} from './service-pods.ts';
import { familiesOf } from './slice-core.ts';
import { HEADLESS_LABEL } from '../../../api/meta/well-known-labels.ts';

/** A subset as it is stored. */
type Subset = Wire<V1EndpointSubset>;
type Address = Wire<V1EndpointAddress>;

const MANAGED_BY = 'endpoints.kubernetes.io/managed-by';
const OVER_CAPACITY = 'endpoints.kubernetes.io/over-capacity';
/** The most addresses of an Endpoints object, as in kube-controller-manager; the rest is cut. */
const MAX_ADDRESSES = 1000;

/** Groups addresses with the same ports into one subset, with ready and not ready addresses apart. Pure. */
export function computeSubsets(service: Service, members: readonly Pod[]): Subset[] {
  const [family = 'IPv4'] = familiesOf(service);
  const publishesNotReady = service.spec?.publishNotReadyAddresses === true;
  const subsets = new Map<string, Required<Subset>>();
  for (const pod of members) {
    const ip = addressOf(pod, family);
    if (ip === undefined || !belongsToEndpoints(pod, { includeTerminating: publishesNotReady })) continue;
    const found = [];
    for (const port of service.spec?.ports ?? []) {
      const number = targetPortIn(pod, port);
      if (number === undefined) continue;
      const { name, appProtocol, protocol = 'TCP' } = port;
      const order = stringifyJson([name, protocol, number]);
      const entry = {
        ...(name === undefined ? {} : { name }),
        port: number,
        protocol,
        ...(appProtocol === undefined ? {} : { appProtocol }),
      };
      found.push({ order, entry });
    }
    if (found.length === 0 && (service.spec?.ports ?? []).length > 0) continue;
    const ports = found.toSorted((a, b) => (a.order < b.order ? -1 : 1)).map(({ entry }) => entry);
    const key = stringifyJson(ports);
    let subset = subsets.get(key);
    if (subset === undefined) {
      subset = { addresses: [], notReadyAddresses: [], ports };
      subsets.set(key, subset);
    }
    (publishesNotReady || isPodReady(pod) ? subset.addresses : subset.notReadyAddresses).push(
      addressEntry(service, pod, ip),
    );
  }
  return [...subsets.values()].toSorted((a, b) => (stringifyJson(a.ports) < stringifyJson(b.ports) ? -1 : 1)).map(tidy);
}

function addressEntry(service: Service, pod: Pod, ip: string): Address {
  const nodeName = pod.spec?.nodeName ?? '';
  const hostname = pod.spec?.hostname ?? '';
  const isNamed = hostname !== '' && pod.spec?.subdomain === service.metadata.name;
  return {
    ip,
    ...(isNamed ? { hostname } : {}),
    ...(nodeName === '' ? {} : { nodeName }),
    targetRef: referenceToPod(pod),
  };
}

function tidy({ addresses, notReadyAddresses, ports }: Required<Subset>): Subset {
  const sorted = (list: Address[]): Address[] =>
    list.toSorted((a, b) => (`${a.ip} ${a.targetRef?.uid}` < `${b.ip} ${b.targetRef?.uid}` ? -1 : 1));
  return {
    ...(addresses.length === 0 ? {} : { addresses: sorted(addresses) }),
    ...(notReadyAddresses.length === 0 ? {} : { notReadyAddresses: sorted(notReadyAddresses) }),
    ...(ports.length === 0 ? {} : { ports }),
  };
}

/** Returns the subsets with at most `MAX_ADDRESSES` addresses, ready ones first, and whether any address was left out. */
export function truncate(subsets: readonly Subset[]): { readonly subsets: Subset[]; readonly truncated: boolean } {
  let room = MAX_ADDRESSES;
  let truncated = false;
  const take = (list: Address[] | undefined): Address[] => {
    const fitting = (list ?? []).slice(0, room);
    truncated ||= fitting.length < (list ?? []).length;
    room -= fitting.length;
    return fitting;
  };
  const ready = subsets.map((subset) => take(subset.addresses));
  const truncatedSubsets = subsets.map((subset, at) =>
    tidy({ addresses: ready[at] ?? [], notReadyAddresses: take(subset.notReadyAddresses), ports: subset.ports ?? [] }),
  );
  return {
    subsets: truncatedSubsets.filter(
      (subset) => subset.addresses !== undefined || subset.notReadyAddresses !== undefined,
    ),
    truncated,
  };
}

/** Runs the controller that writes the Endpoints of services with a selector, `concurrentEndpointSyncs` services at a time. */
export const runEndpoints: RunController = (environment, signal) => {
  const { client, informers } = environment;
  const serviceCache = informers.for(services);
  const podCache = informers.for(pods);
  const cache = informers.for(endpoints);
  const loop = new ReconcileLoop(environment, {
    workers: environment.options.concurrentEndpointSyncs,
    baseDelayMs: 1000,
    maxDelayMs: 100_000,
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const service = serviceCache.get(namespace, name);
      if (service === undefined) return removeManaged(namespace, name);
      if (!hasSelector(service) || service.spec?.type === 'ExternalName') return;
      const members = podsOf(service, podCache);
      const { subsets, truncated } = truncate(computeSubsets(service, members));
      const current = cache.get(namespace, name);
      const labels = {
        ...service.metadata.labels,
        [MANAGED_BY]: 'endpoint-controller',
        ...(isHeadless(service) ? { [HEADLESS_LABEL]: '' } : {}),
      };
      if (
        current !== undefined &&
        semanticEqual(current.subsets ?? [], subsets) &&
        semanticEqual(current.metadata.labels, labels)
      )
        return;
      const { [OVER_CAPACITY]: _, [TRIGGER_TIME]: __, ...userAnnotations } = current?.metadata.annotations ?? {};
      const annotations = {
        ...userAnnotations,
        ...triggerTime(service, members),
        ...(truncated ? { [OVER_CAPACITY]: 'truncated' } : {}),
      };
      const wanted: Endpoints = {
        apiVersion: 'v1',
        kind: 'Endpoints',
        metadata: { ...(current?.metadata ?? { name, namespace }), labels, annotations },
        subsets,
      };
      try {
        await (current === undefined ? client.create(endpoints, namespace, wanted) : client.update(endpoints, wanted));
      } catch (error) {
        if (isNamespaceTerminating(error)) return;
        if (!isAlreadyExists(error)) {
          const [reason, verb] =
            current === undefined ? ['FailedToCreateEndpoint', 'create'] : ['FailedToUpdateEndpoint', 'update'];
          environment.recorder.event(
            referenceTo(wanted, endpoints),
            'Warning',
            reason,
            `Failed to ${verb} endpoint ${key}: ${(error as Error).message}`,
          );
        }
        throw error;
      }
    },
  });
  const removeManaged = async (namespace: string, name: string): Promise<void> => {
    const current = cache.get(namespace, name);
    if (current?.metadata.labels?.[MANAGED_BY] !== 'endpoint-controller') return;
    await tolerate(client.delete(endpoints, namespace, name), isNotFound);
  };
  followServicesAndPods(loop, serviceCache, podCache);
  cache.addHandler({ add: loop.enqueue, delete: loop.enqueue });
  return loop.run(signal, serviceCache, podCache, cache);
};
