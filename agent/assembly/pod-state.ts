/** Creates the state of the pods, which the other parts read: the desired pods, their workers and their statuses. */
import type { Client } from '../../api/client/client.ts';
import type { PodConfig } from '../sources/pod-config.ts';
import { PodTable } from '../pods/pod-table.ts';
import { type StatusManager, createStatusManager } from '../pods/status/status-manager.ts';
import { PodManager } from '../pods/workers/pod-manager.ts';
import { PodWorkers } from '../pods/workers/pod-workers.ts';
import type { Base } from './base.ts';

/** The tables of pods: the desired pods, their workers, their statuses, and a common view of these. */
export interface PodState {
  readonly desired: PodManager;
  readonly workers: PodWorkers;
  readonly statuses: StatusManager;
  readonly table: PodTable;
}

interface PodStateDeps {
  readonly client: Client | undefined;
  readonly podConfig: PodConfig;
  /** Called when the API server has a status, with the milliseconds since the status changed. */
  readonly onStatusSent: (tookMs: number) => void;
}

/** Creates empty tables. */
export function createPodState(
  { flags, clock, logger }: Base,
  { client, podConfig, onStatusSent }: PodStateDeps,
): PodState {
  const desired = new PodManager();
  const workers = new PodWorkers({ clock, logger, resyncMs: flags.syncFrequency, random: Math.random });
  const statuses = createStatusManager({
    client,
    clock,
    logger,
    safety: {
      podCouldHaveRunningContainers: ({ metadata: { uid } }) => workers.couldHaveRunningContainers(uid),
      podIsFinished: ({ metadata: { uid } }) => workers.state(uid) === undefined || workers.isFinished(uid),
    },
    mirrorOf: (pod) => desired.mirrorOf(pod),
    onCaughtUp: onStatusSent,
  });
  return { desired, workers, statuses, table: new PodTable({ desired, workers, statuses, sources: podConfig }) };
}
