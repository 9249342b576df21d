/** The resources of a pod that a resize can change, as a value: those of the pod as a whole and those of each container. */
import { initAndMainContainers } from '../../../api/kinds/pod-containers.ts';
import { RESIZABLE } from '../../../api/kinds/pod-resize-validation.ts';
import { compareQuantities, parseQuantity, type Quantity } from '../../../api/meta/quantity.ts';
import type { Container, ContainerStatusJson, Pod } from '../../base/model/pod.ts';
import { isSidecar } from '../../runtime/kuberuntime/pod-containers.ts';

type Resources = NonNullable<Container['resources']>;
type List = Readonly<Record<string, string | undefined>>;

/** The resizable resources of a pod. */
export interface PodResources {
  /** The resources of the pod as a whole; absent if it states none. */
  readonly pod: Resources | undefined;
  readonly containers: ReadonlyMap<string, Resources>;
}

const KINDS = ['limits', 'requests'] as const;
const ZERO = parseQuantity('0');

/** A change of one amount of a container. An absent amount counts as zero. */
export interface RequestedResize {
  readonly resource: 'cpu' | 'memory';
  readonly requirement: 'limits' | 'requests';
  readonly operation: 'add' | 'remove' | 'increase' | 'decrease';
}

/**
 * Returns the changes of CPU and memory of the containers and sidecars from one specification to the next. Init containers that
 * exit do not count.
 */
export function requestedResizes(before: Pod, after: Pod): readonly RequestedResize[] {
  const next = new Map(initAndMainContainers(after.spec).map((container) => [container.name, container]));
  const lasting = [...(before.spec.initContainers ?? []).filter(isSidecar), ...before.spec.containers];
  return lasting.flatMap((container) =>
    RESIZABLE.flatMap((resource) =>
      KINDS.flatMap((requirement): RequestedResize[] => {
        const amountOf = (of: Container | undefined): Quantity =>
          parseQuantity(((of?.resources?.[requirement] ?? {}) as List)[resource] ?? '0');
        const operation = operationOf(amountOf(container), amountOf(next.get(container.name)));
        return operation === undefined ? [] : [{ resource, requirement, operation }];
      }),
    ),
  );
}

function operationOf(before: Quantity, after: Quantity): RequestedResize['operation'] | undefined {
  const order = compareQuantities(after, before);
  if (order === 0) return undefined;
  if (compareQuantities(after, ZERO) === 0) return 'remove';
  if (compareQuantities(before, ZERO) === 0) return 'add';
  return order < 0 ? 'decrease' : 'increase';
}

/** Returns the text of a resize event. Events list the resources of containers alone, as those of the kubelet do. */
export function resizeDetails(pod: Pod, error: string | undefined): string {
  const listed = (containers: readonly Container[]): object[] =>
    containers.map(({ name, resources = {} }) => ({ name, resources }));
  const { initContainers = [], containers } = pod.spec;
  return JSON.stringify({
    ...(initContainers.length === 0 ? {} : { initContainers: listed(initContainers) }),
    containers: listed(containers),
    generation: pod.metadata.generation ?? 0,
    ...(error === undefined ? {} : { error }),
  });
}

/** Returns the resources of a specification, those of init containers included. */
export function resourcesOf(pod: Pod): PodResources {
  return {
    pod: pod.spec.resources,
    containers: new Map(initAndMainContainers(pod.spec).map(({ name, resources = {} }) => [name, resources])),
  };
}

/**
 * Returns the resources that the pod had last: those of its status as far as it has run, else those of its specification.
 */
export function lastResources(pod: Pod): PodResources {
  const statuses: readonly ContainerStatusJson[] = [
    ...(pod.status?.containerStatuses ?? []),
    ...(pod.status?.initContainerStatuses ?? []),
  ];
  const hasRun = (status: ContainerStatusJson | undefined): boolean => (status?.containerID ?? '') !== '';
  const containers = new Map(
    initAndMainContainers(pod.spec).map((container) => {
      const status = statuses.find(({ name }) => name === container.name);
      return [container.name, (hasRun(status) ? status?.resources : undefined) ?? container.resources ?? {}];
    }),
  );
  return { pod: statuses.some(hasRun) ? lastPodResources(pod) : pod.spec.resources, containers };
}

function lastPodResources(pod: Pod): Resources | undefined {
  const stated = pod.spec.resources;
  if (stated === undefined) return undefined;
  const reported = { limits: pod.status?.resources?.limits, requests: pod.status?.allocatedResources };
  const lists = KINDS.filter((kind) => stated[kind] !== undefined).map((kind) => {
    const list = stated[kind] as List;
    const last = (reported[kind] ?? {}) as List;
    const values = RESIZABLE.filter((name) => list[name] !== undefined).map((name) => [name, last[name] ?? list[name]]);
    return [kind, { ...list, ...Object.fromEntries(values) }];
  });
  return { ...stated, ...Object.fromEntries(lists) } as Resources;
}

/**
 * Returns the pod with these resources. A container without an entry keeps its own. Returns the same object if CPU and
 * memory do not differ.
 */
export function withResources(pod: Pod, { pod: whole, containers: allocated }: PodResources): Pod {
  let differs = false;
  const replaced = (container: Container): Container => {
    const resources = allocated.get(container.name);
    if (resources === undefined || same(container.resources, resources)) return container;
    differs = true;
    return { ...container, resources };
  };
  const containers = pod.spec.containers.map(replaced);
  const initContainers = pod.spec.initContainers?.map(replaced);
  const samePod = same(pod.spec.resources, whole);
  if (!differs && samePod) return pod;
  const { resources: desired, ...spec } = pod.spec;
  const resources = samePod ? desired : whole;
  return {
    ...pod,
    spec: {
      ...spec,
      containers,
      ...(initContainers === undefined ? {} : { initContainers }),
      ...(resources === undefined ? {} : { resources }),
    },
  };
}

/** Compares what a resize can change. A limit is the default of its request. */
function same(left: Resources | undefined, right: Resources | undefined): boolean {
  const lists = (of: Resources | undefined): readonly List[] => {
    const limits = (of?.limits ?? {}) as List;
    return [limits, { ...limits, ...((of?.requests ?? {}) as List) }];
  };
  const [ours, theirs] = [lists(left), lists(right)];
  return [0, 1].every((list) =>
    RESIZABLE.every((name) => {
      const [a, b] = [ours[list]?.[name], theirs[list]?.[name]];
      if (a === undefined || b === undefined) return a === b;
      return compareQuantities(parseQuantity(a), parseQuantity(b)) === 0;
    }),
  );
}
