/** Provides API priority and fairness with the default objects, for servers in tests. */
import { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import {
  SUGGESTED_LEVELS,
  SUGGESTED_SCHEMAS,
} from '../../controlplane/registry/kinds/flowcontrol/flowcontrol-defaults.ts';
import type { PriorityAndFairnessOptions } from '../../controlplane/server/filters/priority-and-fairness.ts';
import { FlowControl } from '../../controlplane/server/flowcontrol/flow-control.ts';
import { FlowMetrics } from '../../controlplane/server/flowcontrol/flow-metrics.ts';

export interface FakeFairness extends PriorityAndFairnessOptions {
  readonly registry: MetricsRegistry;
}

const named = <Spec>(specs: Readonly<Record<string, Spec>>) =>
  Object.entries(specs).map(([name, spec]) => ({ metadata: { name, uid: `uid-of-${name}` }, spec }));

/** Returns flow control with the default levels and schemas, of which `totalSeats` are shared. Lists have `objects` objects. */
export function fakeFairness(
  clock: Clock,
  { totalSeats = 600, objects = 0, intakeBytes = 64 * 1024 * 1024 } = {},
): FakeFairness {
  const control = new FlowControl({ clock, totalSeats, intakeBytes });
  control.configure(named(SUGGESTED_SCHEMAS), named(SUGGESTED_LEVELS));
  const registry = new MetricsRegistry();
  const metrics = new FlowMetrics(registry, control, clock);
  const countObjects = () => ({ count: objects, averageBytes: 10_000 });
  return { control, metrics, registry, countObjects, objectBytes: () => 0, waitLimitMs: 15_000 };
}
