/** Creates the graceful node shutdown from the options. */
import { join } from 'node:path';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Pod } from '../base/model/pod.ts';
import { systemLogind } from '../node/shutdown/logind.ts';
import { NodeShutdown, SHUTDOWN_STATE_FILE } from '../node/shutdown/node-shutdown.ts';
import { shutdownPeriods } from '../node/shutdown/shutdown-order.ts';
import type { PodKiller } from '../pods/workers/kill-pod.ts';
import type { Base } from './base.ts';

interface ShutdownParts {
  readonly registry: MetricsRegistry;
  readonly killer: PodKiller;
  readonly activePods: () => readonly Pod[];
  readonly nodeEvent: (reason: string, message: string) => void;
  readonly nodeChanged: () => void;
}

/** Creates the graceful shutdown of the node. */
export function createNodeShutdown(base: Base, parts: ShutdownParts): NodeShutdown {
  const { clock, effective, flags, logger, rootDirectory } = base;
  const { gates } = effective;
  const gauge = (name: string, help: string) => parts.registry.gauge({ name, help, labels: [] }).with();
  const started = gauge(
    'kubelet_graceful_shutdown_start_time_seconds',
    'Last graceful shutdown start time since unix epoch in seconds',
  );
  const ended = gauge(
    'kubelet_graceful_shutdown_end_time_seconds',
    'Last graceful shutdown end time since unix epoch in seconds',
  );
  return new NodeShutdown({
    periods: gates.enabled('GracefulNodeShutdown')
      ? shutdownPeriods({
          shutdownGracePeriod: flags.shutdownGracePeriod,
          shutdownGracePeriodCriticalPods: flags.shutdownGracePeriodCriticalPods,
          shutdownGracePeriodByPodPriority: gates.enabled('GracefulNodeShutdownBasedOnPodPriority')
            ? flags.shutdownGracePeriodByPodPriority
            : {},
        })
      : [],
    logind: systemLogind(),
    clock,
    logger,
    activePods: parts.activePods,
    killer: parts.killer,
    nodeEvent: parts.nodeEvent,
    nodeChanged: parts.nodeChanged,
    stateFile: join(rootDirectory, SHUTDOWN_STATE_FILE),
    onTimes({ startSeconds, endSeconds }) {
      started.set(startSeconds);
      ended.set(endSeconds);
    },
  });
}
