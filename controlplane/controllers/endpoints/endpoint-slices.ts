/** Keeps the endpoint slices of services that have a selector. `slice-core.ts` distributes endpoints over slices. */
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isNotFound } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { EventType } from '../../../api/client/event-report.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { EndpointSlice, Node, Pod, Service } from '../../../api/kinds/kinds.ts';
import { endpointSlices, nodes, pods, services } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { controllerOf, controllerReference } from '../owner-references.ts';
import { PendingWrites } from '../pending-writes.ts';
import { isNamespaceTerminating } from '../pod-control.ts';
import { podCondition } from '../pod-state.ts';
import { followServicesAndPods, hasSelector, isHeadless, podsOf } from './service-pods.ts';
import {
  familiesOf,
  groupEndpoints,
  planSlices,
  podWithoutNode,
  type EndpointGroup,
  type SlicePlan,
} from './slice-core.ts';
import { hintedGroups, wantsTopologyHints, zoneFacts, zoneShares } from './topology-hints.ts';
import { SERVICE_NAME_LABEL, ZONE_LABEL, HEADLESS_LABEL } from '../../../api/meta/well-known-labels.ts';

/** The label of a slice that names the program that writes it. */
export const MANAGED_BY = 'endpointslice.kubernetes.io/managed-by';
const MANAGER = 'endpointslice-controller.k8s.io';
/** The annotation with the time of the change that led to the slice, for latency metrics. */
export const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';

/** How long after a change of its slices a service is reconciled, and how often it waits for its last writes to be shown. */
const BATCH_MS = 100;

/** Reconciles `concurrentServiceEndpointSyncs` services at a time. */
export const runEndpointSlices: RunController = (environment, signal) => {
  const { informers, options } = environment;
  const serviceCache = informers.for(services);
  const podCache = informers.for(pods);
  const nodeCache = informers.for(nodes);
  const slices = informers.for(endpointSlices);
  const pending = new PendingWrites(slices, environment.clock);
  slices.addIndex('service', serviceKeys);
  const topology = new TopologyHinting(environment, () => nodeCache.list());
  const loop = new ReconcileLoop(environment, {
    workers: options.concurrentServiceEndpointSyncs,
    baseDelayMs: 1000,
    maxDelayMs: 100_000,
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const service = serviceCache.get(namespace, name);
      if (service === undefined) {
        topology.forget(key);
        return pending.forget(key);
      }
      if (
        !hasSelector(service) ||
        service.spec?.type === 'ExternalName' ||
        service.metadata.deletionTimestamp !== undefined
      )
        return;
      // The informer does not show all of the last writes yet; planning now would write those slices again.
      if (!pending.settled(key)) return loop.queue.addAfter(key, BATCH_MS);
      const all = slices.byIndex('service', key).filter((slice) => slice.metadata.deletionTimestamp === undefined);
      // Other slices are not reused but removed, such as those of an earlier service of that name.
      const existing = all.filter((slice) => controllerOf(slice)?.uid === service.metadata.uid);
      const members = podsOf(service, podCache);
      const nodeOf = (node: string): Node | undefined => nodeCache.get('', node);
      const labels = sliceLabels(service);
      const groups = groupEndpoints(service, members, nodeOf);
      const plan = planSlices({
        existing,
        groups: wantsTopologyHints(service)
          ? topology.hint(key, service, groups, existing)
          : topology.without(key, service, groups),
        placeholders: familiesOf(service),
        maxPerSlice: options.maxEndpointsPerSlice,
        isStale: (slice) => !semanticEqual(slice.metadata.labels, labels),
      });
      try {
        const remove = [...plan.remove, ...all.filter((slice) => !existing.includes(slice))];
        const metadata = { labels, annotations: triggerTime(service, members) };
        await applyPlan(environment, pending, service, { ...plan, remove, metadata });
        const omitted = podWithoutNode(service, members, nodeOf);
        if (omitted !== undefined) throw new Error(missingNode(service, omitted));
      } catch (error) {
        if (isNamespaceTerminating(error) || isNotFound(error)) return;
        environment.recorder.event(
          referenceTo(service, services),
          'Warning',
          'FailedToUpdateEndpointSlices',
          `Error updating Endpoint Slices for Service ${namespace}/${name}: ${(error as Error).message}`,
        );
        throw error;
      }
    },
  });
  followServicesAndPods(loop, serviceCache, podCache);
  const sliceChanged = (slice: EndpointSlice): void => {
    for (const key of serviceKeys(slice)) loop.queue.addAfter(key, BATCH_MS);
  };
  slices.addHandler({ update: (_, slice) => sliceChanged(slice), delete: sliceChanged });
  followNodes(loop, serviceCache, nodeCache);
  return loop.run(signal, serviceCache, podCache, nodeCache, slices);
};

/**
 * Enqueues services when nodes change: those with topology hints if the share of a zone may change, and all services if the
 * zone of a node changes, because endpoints show it.
 */
function followNodes(loop: ReconcileLoop, serviceCache: Informer<Service>, nodeCache: Informer<Node>): void {
  const sharesChanged = (): void => serviceCache.list().filter(wantsTopologyHints).forEach(loop.enqueue);
  nodeCache.addHandler({
    add: sharesChanged,
    delete: sharesChanged,
    update: (previous, node) => {
      if (!semanticEqual(zoneFacts(previous), zoneFacts(node))) sharesChanged();
      if (previous.metadata.labels?.[ZONE_LABEL] === node.metadata.labels?.[ZONE_LABEL]) return;
      for (const service of serviceCache.list()) loop.enqueue(service);
    },
  });
}

/** Adds hints by the annotation of a service, and reports when they begin and end. */
class TopologyHinting {
  readonly #environment: ControllerEnvironment;
  readonly #nodes: () => readonly Node[];
  /** The keys of the services that have hints. */
  readonly #enabled = new Set<string>();

  constructor(environment: ControllerEnvironment, allNodes: () => readonly Node[]) {
    this.#environment = environment;
    this.#nodes = allNodes;
  }

  forget(key: string): void {
    this.#enabled.delete(key);
  }

  hint(
    key: string,
    service: Service,
    groups: readonly EndpointGroup[],
    existing: readonly EndpointSlice[],
  ): readonly EndpointGroup[] {
    const hinted = hintedGroups(groups, familiesOf(service), existing, zoneShares(this.#nodes()));
    for (const [family, problem] of hinted.problems) {
      if (problem !== undefined) {
        this.#enabled.delete(key);
        this.#report(service, 'Warning', 'TopologyAwareHintsDisabled', `${problem}, addressType: ${family}`);
      } else if (!this.#enabled.has(key)) {
        this.#enabled.add(key);
        const message = `Topology Aware Hints has been enabled, addressType: ${family}`;
        this.#report(service, 'Normal', 'TopologyAwareHintsEnabled', message);
      }
    }
    return hinted.groups;
  }

  without(key: string, service: Service, groups: readonly EndpointGroup[]): readonly EndpointGroup[] {
    if (this.#enabled.delete(key)) {
      const message = `Topology Aware Hints has been disabled, addressType: ${familiesOf(service)[0] ?? ''}`;
      this.#report(service, 'Warning', 'TopologyAwareHintsDisabled', message);
    }
    return groups;
  }

  #report(service: Service, type: EventType, reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(service, services), type, reason, message);
  }
}

const missingNode = ({ metadata: { namespace, name } }: Service, pod: Pod): string =>
  `skipping Pod ${pod.metadata.name} for Service ${namespace}/${name}: Node ${pod.spec?.nodeName ?? ''} Not Found`;

/** Writes a plan of slices, and records in `pending` which writes the informer has still to show. */
async function applyPlan(
  { client }: ControllerEnvironment,
  pending: PendingWrites<EndpointSlice>,
  service: Service,
  plan: SlicePlan & { readonly metadata: SliceMetadata },
): Promise<void> {
  const { labels, annotations } = plan.metadata;
  const { namespace = '', name = '' } = service.metadata;
  const key = `${namespace}/${name}`;
  for (const group of plan.create) {
    const slice = newSlice(service, group, labels, annotations);
    pending.wrote(key, await client.create(endpointSlices, namespace, slice));
  }
  for (const { slice, endpoints, ports } of plan.update) {
    const metadata = { ...slice.metadata, labels, annotations: { ...slice.metadata.annotations, ...annotations } };
    const changed = { ...slice, metadata, endpoints: [...endpoints], ports: [...ports] };
    pending.wrote(key, await client.update(endpointSlices, changed));
  }
  for (const slice of plan.remove) {
    await client.delete(endpointSlices, namespace, slice.metadata.name ?? '');
    pending.deleted(key, slice);
  }
}

interface SliceMetadata {
  readonly labels: Record<string, string>;
  readonly annotations: Record<string, string>;
}

function serviceKeys({ metadata }: EndpointSlice): string[] {
  const { [SERVICE_NAME_LABEL]: service = '', [MANAGED_BY]: manager } = metadata.labels ?? {};
  return service === '' || manager !== MANAGER ? [] : [`${metadata.namespace}/${service}`];
}

function sliceLabels(service: Service): Record<string, string> {
  const { [HEADLESS_LABEL]: _, ...labels } = service.metadata.labels ?? {};
  return {
    ...labels,
    [SERVICE_NAME_LABEL]: service.metadata.name ?? '',
    [MANAGED_BY]: MANAGER,
    ...(isHeadless(service) ? { [HEADLESS_LABEL]: '' } : {}),
  };
}

function newSlice(
  service: Service,
  { addressType, ports, endpoints }: EndpointGroup,
  labels: Record<string, string>,
  annotations: Record<string, string>,
): EndpointSlice {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      generateName: `${service.metadata.name}-`,
      namespace: service.metadata.namespace ?? '',
      labels,
      annotations,
      ownerReferences: [controllerReference(service, services)],
    },
    addressType,
    endpoints: [...endpoints],
    ports: [...ports],
  };
}

/**
 * Returns the annotation with the time from which latency is measured: when the service was created, or when the readiness of
 * one of its pods changed last, if that is later.
 */
export function triggerTime(service: Service, members: readonly Pod[]): Record<string, string> {
  const times = [
    service.metadata.creationTimestamp ?? '',
    ...members.map((pod) => podCondition(pod, 'Ready')?.lastTransitionTime ?? ''),
  ];
  const newest = times.reduce((latest, time) => Math.max(latest, Date.parse(time) || 0), 0);
  return newest === 0 ? {} : { [TRIGGER_TIME]: formatTime(newest) };
}
