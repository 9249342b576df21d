/**
 * Starts API priority and fairness for the API server: configures it from the stored objects as they change, lends seats
 * between priority levels every ten seconds, and restores the default flow schemas and priority levels every minute.
 */
import { background } from '../../api/machinery/background.ts';
import { flowSchemas, priorityLevelConfigurations } from '../../api/client/resources.ts';
import type { Parts } from './parts.ts';
import { StartError } from '../model/start-error.ts';
import { ensureFlowControl, keepDanglingConditions } from '../controllers/cluster-objects/flow-control-objects.ts';
import type { PriorityAndFairnessOptions } from '../server/filters/priority-and-fairness.ts';
import { FlowControl } from '../server/flowcontrol/flow-control.ts';
import { FlowMetrics } from '../server/flowcontrol/flow-metrics.ts';
import type { CountObjects, ObjectStatistics } from '../server/flowcontrol/work-estimate.ts';
import { selectionOf } from '../storage/selection.ts';
import type { WatchCache } from '../storage/watch-cache.ts';

const SAMPLE_MS = 1000;
/** The interval of adjustments as a number of samples. */
const ADJUST_EVERY = 10;
/** The interval at which the default objects are restored, as a number of samples. */
const KEEP_EVERY = 60;

type FlowControlParts = Pick<
  Parts,
  'flags' | 'clock' | 'logger' | 'listers' | 'registry' | 'definitions' | 'metrics' | 'clients' | 'signal'
>;

/**
 * Starts API priority and fairness. Returns `undefined` if `--enable-priority-and-fairness` is false. Throws a `StartError` if
 * the limits of concurrent requests leave no seats.
 */
export function startFlowControl(parts: FlowControlParts): PriorityAndFairnessOptions | undefined {
  const { flags, clock, registry, definitions, logger, signal } = parts;
  if (!flags.enablePriorityAndFairness) return undefined;
  const totalSeats = flags.maxRequestsInflight + flags.maxMutatingRequestsInflight;
  if (totalSeats <= 0)
    throw new StartError(
      '--max-requests-inflight and --max-mutating-requests-inflight must not both be 0 while --enable-priority-and-fairness is true',
    );
  const control = new FlowControl({ clock, totalSeats });
  const metrics = new FlowMetrics(parts.metrics, control, clock);
  const configure = followObjects(parts, control);
  background(adjustPeriodically(parts, { control, metrics, configure }), {
    logger,
    what: 'Adjusting the limits of API priority and fairness',
    signal,
  });
  const cacheOf = (group: string, resource: string) =>
    registry.stores.find(group, resource)?.cache ?? definitions.cacheOf(group, resource);
  return {
    control,
    metrics,
    countObjects: objectStatistics(cacheOf, clock),
    objectBytes: ({ group, resource, namespace, name }) =>
      cacheOf(group, resource)?.get(namespace, name)?.bytes.length ?? 0,
    // As in kube-apiserver, a request may wait for a quarter of its timeout.
    waitLimitMs: flags.requestTimeout / 4,
  };
}

/** Configures after each change, once for all changes of a turn. The returned function configures at once. */
function followObjects(parts: FlowControlParts, control: FlowControl): () => Promise<void> {
  const { listers, clock, clients, signal } = parts;
  const schemas = listers.of(flowSchemas);
  const levels = listers.of(priorityLevelConfigurations);
  const configure = async (): Promise<void> => {
    const configured = levels.list();
    control.configure(schemas.list(), configured);
    const names = new Set(configured.map(({ metadata }) => metadata.name));
    if (names.size > 0)
      await keepDanglingConditions(clients.system, schemas.list(), (name) => names.has(name), clock.now());
  };
  let isScheduled = false;
  const changed = (): void => {
    if (isScheduled || signal.aborted) return;
    isScheduled = true;
    clock.after(0, () => {
      isScheduled = false;
      if (signal.aborted) return;
      configure().catch((error: unknown) => {
        if (!signal.aborted) parts.logger.warn({ err: error }, 'The status of flow schemas could not be written');
      });
    });
  };
  schemas.subscribe(changed);
  levels.subscribe(changed);
  return configure;
}

interface LoopParts {
  readonly control: FlowControl;
  readonly metrics: FlowMetrics;
  readonly configure: () => Promise<void>;
}

/** Samples the metrics every second, adjusts the limits and restores the default objects, until the signal aborts. */
async function adjustPeriodically(parts: FlowControlParts, { control, metrics, configure }: LoopParts): Promise<void> {
  const { clients, signal } = parts;
  for (let samples = 1; ; samples++) {
    await parts.clock.sleep(SAMPLE_MS, signal);
    metrics.sample();
    if (samples % ADJUST_EVERY === 0) control.adjust();
    if (samples % KEEP_EVERY !== 0) continue;
    try {
      await ensureFlowControl(clients.system);
      await configure();
    } catch (error) {
      if (signal.aborted) return;
      parts.logger.warn({ err: error }, 'Flow control objects could not be updated');
    }
  }
}

/** The time for which the average size of a resource's objects is used before it is measured again. */
const STATISTICS_MS = 60_000;
/** The maximum number of objects that a measurement of their average size reads. */
const SAMPLED_OBJECTS = 50;

/**
 * Returns the function that estimates a resource's objects: their exact number, and the average size of some of them, which is
 * measured at most once a minute. The function returns `undefined` for a resource that is not stored here.
 */
function objectStatistics(
  cacheOf: (group: string, resource: string) => Pick<WatchCache, 'count' | 'list'> | undefined,
  clock: Parts['clock'],
): CountObjects {
  const averages = new Map<string, { readonly atMs: number; readonly bytes: number }>();
  return (group, resource): ObjectStatistics | undefined => {
    const cache = cacheOf(group, resource);
    if (cache === undefined) return undefined;
    const count = cache.count();
    if (count === 0) return { count, averageBytes: 0 };
    const key = `${group}/${resource}`;
    const nowMs = clock.monotonic();
    let average = averages.get(key);
    if (average === undefined || nowMs - average.atMs > STATISTICS_MS) {
      const { entries } = cache.list({ selection: selectionOf(''), limit: SAMPLED_OBJECTS });
      const bytes = entries.reduce((sum, entry) => sum + entry.bytes.length, 0) / Math.max(1, entries.length);
      average = { atMs: nowMs, bytes };
      averages.set(key, average);
    }
    return { count, averageBytes: average.bytes };
  };
}
