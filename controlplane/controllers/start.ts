/**
 * Loads and starts the controllers for `loops.ts`: creates a client, a recorder and a logger for each, and stops them together.
 */
import { setImmediate } from 'node:timers/promises';
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/client/client.ts';
import { type Clock, whenAborted } from '../../api/machinery/clock.ts';
import type { LoopTurns } from '../../api/machinery/loop-turns.ts';
import { CoreEventRecorder } from '../../api/client/event-recorder.ts';
import type { Informers } from '../../api/client/informer.ts';
import { typedClient } from '../../api/client/typed-client.ts';
import type { QueueObserver } from '../../api/machinery/work-queue.ts';
import type { ResourceCatalog } from '../model/rest.ts';
import type { ControllerOptions } from './controller-options.ts';
import { isEnabled } from './controller-names.ts';
import { controllerTable, type ControllerKeys } from './controller-table.ts';

/**
 * Loads the modules of the enabled controllers, one controller in a turn of the event loop, so that no request waits for all of
 * them. Never rejects: a controller whose modules cannot be loaded fails when it is started.
 */
export async function loadControllers({
  keys,
  enabled,
  isOver,
}: {
  readonly keys: ControllerKeys;
  readonly enabled: readonly string[];
  /** Whether the control plane is closing, so that the controllers will not be started. */
  readonly isOver: () => boolean;
}): Promise<void> {
  for (const row of controllerTable(keys).filter((one) => isEnabled(one, enabled))) {
    await setImmediate();
    if (isOver()) return;
    await row.load().catch(() => undefined);
  }
}

interface StartControllersOptions extends ControllerKeys {
  /** The result of `loadControllers`. */
  readonly loaded: Promise<void>;
  /** Creates a client of this user: `system:serviceaccount:kube-system:…` or `system:kube-controller-manager`. */
  readonly clientFor: (userName: string) => Client;
  /** The informers, whose client can read everything. The scheduler uses them as well. */
  readonly informers: Informers;
  readonly clock: Clock;
  /** The clients use the same turns, so that reconciliations yield the event loop to others. */
  readonly turns: LoopTurns;
  readonly logger: Logger;
  readonly catalog: ResourceCatalog;
  readonly options: ControllerOptions;
  /** Creates the observer of a work queue with this name. */
  readonly observeQueue?: (name: string) => QueueObserver;
}

interface RunningControllers {
  readonly names: readonly string[];
  /** Resolves when every loop has ended. The caller closes the informers. */
  close(): Promise<void>;
}

/** Starts the controllers that `--controllers` enables. A controller that fails is logged and does not stop the others. */
export function startControllers(start: StartControllersOptions): RunningControllers {
  const { clientFor, informers, clock, turns, logger, catalog, options, observeQueue } = start;
  const stop = new AbortController();
  const rows = controllerTable(start).filter((row) => isEnabled(row, options.controllers));
  const stopped = whenAborted(stop.signal);
  const running = rows.map(async (row) => {
    const user =
      row.account === '' ? 'system:kube-controller-manager' : `system:serviceaccount:kube-system:${row.account}`;
    const client = clientFor(user);
    const log = logger.child({ controller: row.name });
    const recorder = new CoreEventRecorder({
      client,
      clock,
      logger: log,
      component: componentOf(row.account, row.name),
    });
    try {
      await Promise.race([start.loaded, stopped]);
      if (stop.signal.aborted) return;
      const run = await row.load();
      await run(
        {
          name: row.name,
          client: typedClient(client),
          informers,
          recorder,
          clock,
          turns,
          logger: log,
          catalog,
          options,
          ...(observeQueue === undefined ? {} : { observeQueue: () => observeQueue(queueName(row.name)) }),
        },
        stop.signal,
      );
    } catch (error) {
      if (!stop.signal.aborted) log.error({ err: error }, 'The controller failed');
    }
  });
  return {
    names: rows.map(({ name }) => name),
    close: async () => {
      stop.abort(new Error('the controllers are stopping'));
      await Promise.all(running);
    },
  };
}

/** Returns the name of the queue in the metrics of kube-controller-manager. */
function queueName(controller: string): string {
  return QUEUES.get(controller) ?? controller.replace(/-controller$/, '').replaceAll('-', '_');
}

const QUEUES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'certificatesigningrequest-approving-controller': 'certificate',
    'certificatesigningrequest-signing-controller': 'certificate',
    'clusterrole-aggregation-controller': 'ClusterRoleAggregator',
    'device-taint-eviction-controller': 'device-taint-eviction-controller',
    'endpoints-controller': 'endpoint',
    'endpointslice-controller': 'endpoint_slice',
    'endpointslice-mirroring-controller': 'endpoint_slice_mirroring',
    'garbage-collector-controller': 'garbage_collector_attempt_to_delete',
    'horizontal-pod-autoscaler-controller': 'horizontalpodautoscaler',
    'node-lifecycle-controller': 'node_lifecycle_controller',
    'persistentvolume-binder-controller': 'claims',
    'persistentvolume-expander-controller': 'volume_expand',
    'persistentvolume-protection-controller': 'pvprotection',
    'persistentvolumeclaim-protection-controller': 'pvcprotection',
    'replicationcontroller-controller': 'replicationmanager',
    'resourcequota-controller': 'resource_quota_primary',
    'root-ca-certificate-publisher-controller': 'root_ca_cert_publisher',
    'ttl-after-finished-controller': 'ttl_jobs_to_delete',
  }),
);

/** Returns the event source that users see. */
export function componentOf(account: string, name: string): string {
  return (
    { 'daemon-set-controller': 'daemonset-controller', 'generic-garbage-collector': 'garbage-collector-controller' }[
      account
    ] ??
    (account === '' ? name : COMPONENTS.get(name)) ??
    account
  );
}

const COMPONENTS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'pod-garbage-collector-controller': 'pod-garbage-collector-controller',
    'taint-eviction-controller': 'taint-eviction-controller',
    'cronjob-controller': 'cronjob-controller',
    'disruption-controller': 'controllermanager',
    'endpointslice-controller': 'endpoint-slice-controller',
    'endpointslice-mirroring-controller': 'endpoint-slice-mirroring-controller',
    'ephemeral-volume-controller': 'ephemeral_volume',
    'node-ipam-controller': 'cidrAllocator',
    'persistentvolume-binder-controller': 'persistentvolume-controller',
    'persistentvolume-expander-controller': 'volume_expand',
    'resourceclaim-controller': 'resource_claim',
    'service-cidr-controller': 'service-cidr-controller',
  }),
);
