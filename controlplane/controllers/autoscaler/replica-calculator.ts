/** Computes the number of replicas that a metric proposes. Pure. Amounts are in thousandths. */
import type { Pod } from '../../../api/kinds/kinds.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { milliUnits, parseQuantity } from '../../../api/meta/quantity.ts';
import { isPodReady, podCondition } from '../pod-state.ts';

/** A measurement of one pod, in thousandths, taken over the window that ended at `timeMs`. */
export interface PodMetric {
  readonly milli: number;
  readonly timeMs: number;
  readonly windowMs: number;
}

/** The metrics by pod name. */
export type PodMetrics = ReadonlyMap<string, PodMetric>;

/** How far the ratio may be from 1 without scaling, as a fraction. */
export interface Tolerances {
  readonly up: number;
  readonly down: number;
}

/** The tolerances, and for how long after its start a pod counts as initializing. Times are in milliseconds. */
export interface CalculationOptions {
  readonly tolerances: Tolerances;
  readonly nowMs: number;
  readonly cpuInitializationMs: number;
  readonly initialReadinessDelayMs: number;
}

/** The number of replicas with the measurement that led to it. */
export interface Proposal {
  readonly replicas: number;
  /** The percentage of the requests. Only resource metrics with a utilization target have it. */
  readonly utilization?: number;
  /** The measurement in thousandths: per pod, or in total for values of objects. */
  readonly milli: number;
}

/** The error for a metric from which no number of replicas follows. Its message is shown in a condition. */
export class MetricsError extends Error {}

interface Groups {
  readonly ready: number;
  readonly unready: ReadonlySet<string>;
  readonly missing: ReadonlySet<string>;
  readonly ignored: ReadonlySet<string>;
}

/** Sorts pods by whether they are ready, measured and counted at all. `resource` is '' for metrics of no resource. */
function groupPods(pods: readonly Pod[], metrics: PodMetrics, resource: string, options: CalculationOptions): Groups {
  const groups = { unready: new Set<string>(), missing: new Set<string>(), ignored: new Set<string>() };
  let ready = 0;
  for (const pod of pods) {
    const name = pod.metadata.name ?? '';
    const metric = metrics.get(name);
    if (pod.metadata.deletionTimestamp !== undefined || pod.status?.phase === 'Failed') groups.ignored.add(name);
    else if (pod.status?.phase === 'Pending') groups.unready.add(name);
    else if (metric === undefined) groups.missing.add(name);
    else if (resource === 'cpu' && isStarting(pod, metric, options)) groups.unready.add(name);
    else ready++;
  }
  return { ready, ...groups };
}

/** Whether the pod is left out because it is starting, so that its CPU usage does not show the load yet. */
function isStarting(pod: Pod, metric: PodMetric, options: CalculationOptions): boolean {
  const condition = podCondition(pod, 'Ready');
  const startMs = Date.parse(pod.status?.startTime ?? '');
  if (condition === undefined || !Number.isFinite(startMs)) return true;
  const changedMs = Date.parse(condition.lastTransitionTime ?? '') || 0;
  if (startMs + options.cpuInitializationMs > options.nowMs)
    return condition.status === 'False' || metric.timeMs < changedMs + metric.windowMs;
  return condition.status === 'False' && startMs + options.initialReadinessDelayMs > changedMs;
}

const isWithin = (ratio: number, { up, down }: Tolerances): boolean => ratio >= 1 - down && ratio <= 1 + up;

const POD_LEVEL = /^(cpu|memory|hugepages-.*)$/;

/**
 * Returns the pod-level request with the overhead in thousandths, or `undefined` if the requests of the containers count.
 * Throws `MetricsError` if neither the pod nor its containers request this resource.
 */
function podRequest(pod: Pod, resource: string): number | undefined {
  const podRequests = pod.spec?.resources?.requests ?? {};
  if (!Object.keys(podRequests).some((name) => POD_LEVEL.test(name))) return undefined;
  const containers = requestsOf([{ ...pod, spec: { ...pod.spec, resources: {} } } as Pod], resource, '', () => 0);
  const request = ownMember(podRequests, resource);
  const sum =
    request === undefined ? (containers.get(pod.metadata.name ?? '') ?? 0) : Number(milliUnits(parseQuantity(request)));
  if (sum === 0) throw new MetricsError(`missing pod-level request for ${resource} in Pod ${pod.metadata.name}`);
  const overhead = ownMember(pod.spec?.overhead, resource);
  return sum + (overhead === undefined ? 0 : Number(milliUnits(parseQuantity(overhead))));
}

/**
 * Returns the requests by pod name: of one container, or for `''` of all except ordinary init containers. A pod with pod-level
 * requests counts with these.
 * `missing` returns the request of a container that has none; by default, it throws `MetricsError`.
 */
export function requestsOf(
  pods: readonly Pod[],
  resource: string,
  container: string,
  missing: (message: string) => number = refuse,
): ReadonlyMap<string, number> {
  const requests = new Map<string, number>();
  for (const pod of pods) {
    const sidecars = (pod.spec?.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === 'Always');
    let sum = podRequest(pod, resource);
    if (sum === undefined) {
      sum = 0;
      for (const one of [...(pod.spec?.containers ?? []), ...sidecars]) {
        if (container !== '' && one.name !== container) continue;
        const request = ownMember(one.resources?.requests, resource);
        sum +=
          request === undefined
            ? missing(`missing request for ${resource} in container ${one.name} of Pod ${pod.metadata.name}`)
            : Number(milliUnits(parseQuantity(request)));
      }
    }
    requests.set(pod.metadata.name ?? '', sum);
  }
  return requests;
}

function refuse(message: string): never {
  throw new MetricsError(message);
}

interface Ratio {
  readonly ratio: number;
  readonly utilization?: number;
  readonly milli: number;
}

type RatioOf = (metrics: ReadonlyMap<string, number>) => Ratio;

/**
 * Computes the proposal. `fill` returns the usage with which an unmeasured pod counts if the others propose fewer replicas.
 * Throws `MetricsError` if no pod that counts is measured.
 */
function propose(
  { groups, metrics, current }: { readonly groups: Groups; readonly metrics: PodMetrics; readonly current: number },
  options: CalculationOptions,
  { ratioOf, fill }: { readonly ratioOf: RatioOf; readonly fill: (pod: string) => number },
): Proposal {
  const counted = new Map([...metrics].map(([name, { milli }]) => [name, milli]));
  for (const name of [...groups.ignored, ...groups.unready]) counted.delete(name);
  if (counted.size === 0) throw new MetricsError('did not receive metrics for targeted pods (pods might be unready)');
  const { ratio, ...measured } = ratioOf(counted);
  const unreadyMatter = groups.unready.size > 0 && ratio > 1;
  if (!unreadyMatter && groups.missing.size === 0) {
    return { ...measured, replicas: isWithin(ratio, options.tolerances) ? current : Math.ceil(ratio * groups.ready) };
  }
  if (ratio !== 1) for (const name of groups.missing) counted.set(name, ratio < 1 ? fill(name) : 0);
  if (unreadyMatter) for (const name of groups.unready) counted.set(name, 0);
  const adjusted = ratioOf(counted).ratio;
  const isReversed = (ratio < 1 && adjusted > 1) || (ratio > 1 && adjusted < 1);
  if (isWithin(adjusted, options.tolerances) || isReversed) return { ...measured, replicas: current };
  const replicas = Math.ceil(adjusted * counted.size);
  const wrongWay = (adjusted < 1 && replicas > current) || (adjusted > 1 && replicas < current);
  return { ...measured, replicas: wrongWay ? current : replicas };
}

const sumOf = (values: Iterable<number>): number => {
  let sum = 0;
  for (const value of values) sum += value;
  return sum;
};

/**
 * Computes the proposal of a target for the utilization: the usage as a percentage of the requests. Throws `MetricsError`
 * without pods, without a request for the resource, or without measurements.
 */
export function byUtilization(
  input: {
    readonly pods: readonly Pod[];
    readonly metrics: PodMetrics;
    readonly resource: string;
    readonly container: string;
    readonly targetPercent: number;
    readonly current: number;
  },
  options: CalculationOptions,
): Proposal {
  const { pods, metrics, resource, targetPercent } = input;
  if (pods.length === 0) throw new MetricsError('no pods returned by selector while calculating replica count');
  const groups = groupPods(pods, metrics, resource, options);
  const requests = requestsOf(pods, resource, input.container);
  const ratioOf: RatioOf = (counted) => {
    const names = [...counted.keys()].filter((name) => requests.has(name));
    const total = sumOf(names.map((name) => requests.get(name) ?? 0));
    if (total === 0) throw new MetricsError('no metrics returned matched known pods');
    const used = sumOf(names.map((name) => counted.get(name) ?? 0));
    const utilization = Math.trunc((used * 100) / total);
    return { ratio: utilization / targetPercent, utilization, milli: Math.trunc(used / Math.max(1, names.length)) };
  };
  // A pod without a measurement counts with all of its requests, or with the target if that is more.
  const fallback = Math.max(100, targetPercent);
  const fill = (name: string): number => Math.trunc(((requests.get(name) ?? 0) * fallback) / 100);
  return propose({ groups, metrics, current: input.current }, options, { ratioOf, fill });
}

/** Computes the proposal of a target for the average value per pod. Throws `MetricsError` without pods or measurements. */
export function byAverage(
  input: {
    readonly pods: readonly Pod[];
    readonly metrics: PodMetrics;
    readonly resource: string;
    readonly targetMilli: number;
    readonly current: number;
  },
  options: CalculationOptions,
): Proposal {
  const { pods, metrics, targetMilli } = input;
  if (pods.length === 0) throw new MetricsError('no pods returned by selector while calculating replica count');
  const groups = groupPods(pods, metrics, input.resource, options);
  const ratioOf: RatioOf = (counted) => {
    const milli = Math.trunc(sumOf(counted.values()) / counted.size);
    return { ratio: milli / targetMilli, milli };
  };
  return propose({ groups, metrics, current: input.current }, options, { ratioOf, fill: () => targetMilli });
}

/** Computes the proposal of a target for the value of an object other than the pods. */
export function byValue(
  input: {
    readonly valueMilli: number;
    readonly targetMilli: number;
    readonly current: number;
    readonly pods: readonly Pod[];
  },
  { tolerances }: Pick<CalculationOptions, 'tolerances'>,
): Proposal {
  const { valueMilli, targetMilli, current, pods } = input;
  const ratio = valueMilli / targetMilli;
  if (current === 0) return { replicas: Math.ceil(ratio), milli: valueMilli };
  if (isWithin(ratio, tolerances)) return { replicas: current, milli: valueMilli };
  const ready = pods.filter((pod) => pod.status?.phase === 'Running' && isPodReady(pod)).length;
  return { replicas: Math.ceil(ratio * ready), milli: valueMilli };
}

/** Computes the proposal of a target for a value that is divided by the number of replicas. */
export function byShare(
  input: { readonly valueMilli: number; readonly targetMilli: number; readonly statusReplicas: number },
  { tolerances }: Pick<CalculationOptions, 'tolerances'>,
): Proposal {
  const { valueMilli, targetMilli, statusReplicas } = input;
  const ratio = valueMilli / (targetMilli * statusReplicas);
  const replicas =
    statusReplicas > 0 && isWithin(ratio, tolerances) ? statusReplicas : Math.ceil(valueMilli / targetMilli);
  return { replicas, milli: statusReplicas === 0 ? 0 : Math.ceil(valueMilli / statusReplicas) };
}
