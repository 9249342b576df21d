/**
 * Reports the pods that are bound to this node at the API server, mirror pods included. If the API server does not answer after
 * a start, the source reports the last known pods until it does.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import { Informers } from '../../api/client/informer.ts';
import type { Client } from '../../api/client/client.ts';
import { type Clock, untilAborted, whenAborted } from '../../api/machinery/clock.ts';
import { pods as podsResource } from '../../api/client/resources.ts';
import type { Pod } from '../base/model/pod.ts';
import type { OnPods, PodSource } from './pod-source.ts';

interface ApiSourceOptions {
  readonly client: Client;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Resolves when the node is known as the API server has it. Pods are admitted by its labels and taints. */
  readonly nodeSynced?: () => Promise<void>;
  /** Keeps the last known pods. Absent if the agent keeps none. */
  readonly checkpoints?: {
    load(): Promise<readonly Pod[]>;
    save(pods: readonly Pod[]): void;
  };
}

/** How long to wait for the API server before the last known pods are started. */
const LAST_KNOWN_AFTER_MS = 5_000;

/** Reports pods as the informer sees them, several changes of one turn at once. */
export function createApiSource(options: ApiSourceOptions): PodSource {
  return {
    name: 'api',
    accepted: (pods) => options.checkpoints?.save(pods),
    async run(signal, onPods) {
      const { client, clock, logger, nodeName } = options;
      const informers = new Informers({ client, clock, logger });
      const informer = informers.for(podsResource, { fieldSelector: `spec.nodeName=${nodeName}` });
      let scheduled = false;
      let isReady = false;
      const notify = (): void => {
        if (scheduled || !isReady || signal.aborted) return;
        scheduled = true;
        queueMicrotask(() => {
          scheduled = false;
          if (signal.aborted) return;
          onPods(informer.list() as unknown as Pod[]);
        });
      };
      informer.addHandler({ add: notify, update: notify, delete: notify });
      const lastKnownTimer = clock.after(LAST_KNOWN_AFTER_MS, () =>
        background(
          reportLastKnown(options, () => informer.hasSynced, onPods),
          { logger, what: 'Running the last known pods', signal },
        ),
      );
      try {
        await informer.synced(signal);
        await untilAborted(options.nodeSynced?.() ?? Promise.resolve(), signal);
        isReady = true;
        notify();
        await whenAborted(signal);
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        lastKnownTimer.cancel();
        await informers.close();
      }
    },
  };
}

async function reportLastKnown(
  { checkpoints, logger }: ApiSourceOptions,
  hasSynced: () => boolean,
  onPods: OnPods,
): Promise<void> {
  if (checkpoints === undefined) return;
  try {
    const pods = await checkpoints.load();
    // If the API server has answered while the files were read, its pods count.
    if (hasSynced() || pods.length === 0) return;
    logger.warn({ pods: pods.length }, 'The API server does not answer, running the last known pods of this node');
    onPods(pods, { provisional: true });
  } catch (error) {
    logger.error({ err: error }, 'Cannot read the last known pods');
  }
}
