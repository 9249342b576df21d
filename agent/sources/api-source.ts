/**
 * The source of pods that the API server has bound to this node, mirror pods included. If the API server does not answer after
 * a start, the source reports the last known pods until it does.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import { Informers } from '../../api/machinery/informer.ts';
import type { Client } from '../../api/machinery/client.ts';
import { type Clock, whenAborted } from '../../api/machinery/clock.ts';
import { pods as podsResource } from '../../api/machinery/resources.ts';
import { ANNOTATION_CONFIG_SOURCE } from '../model/pod-kinds.ts';
import type { Pod } from '../model/pod.ts';
import type { OnPods, PodSource } from './pod-source.ts';

interface ApiSourceOptions {
  readonly client: Client;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Keeps the last known pods. Absent if the agent keeps none. */
  readonly checkpoints?: {
    load(): Promise<readonly Pod[]>;
    save(pods: readonly Pod[]): void;
  };
}

/** How long to wait for the API server before the last known pods are started. */
const PATIENCE_MS = 5_000;

/** Reports pods as the informer sees them, several changes of one turn at once. */
export function createApiSource(options: ApiSourceOptions): PodSource {
  return {
    name: 'api',
    async run(signal, onPods) {
      const { client, clock, logger, nodeName, checkpoints } = options;
      const informers = new Informers({ client, clock, logger });
      const informer = informers.for(podsResource, { fieldSelector: `spec.nodeName=${nodeName}` });
      let scheduled = false;
      const notify = (): void => {
        if (scheduled || !informer.hasSynced || signal.aborted) return;
        scheduled = true;
        queueMicrotask(() => {
          scheduled = false;
          if (signal.aborted) return;
          const pods = informer.list().map((pod) => fromApi(pod as unknown as Pod));
          checkpoints?.save(pods);
          onPods(pods);
        });
      };
      informer.addHandler({ add: notify, update: notify, delete: notify });
      const patience = clock.after(PATIENCE_MS, () =>
        background(
          reportLastKnown(options, () => informer.hasSynced, onPods),
          { logger, what: 'Running the last known pods', signal },
        ),
      );
      try {
        await informer.synced(signal);
        notify();
        await whenAborted(signal);
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        patience.cancel();
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
    // The API server has answered while the files were read.
    if (hasSynced() || pods.length === 0) return;
    logger.warn({ pods: pods.length }, 'The API server does not answer, running the last known pods of this node');
    onPods(pods, { provisional: true });
  } catch (error) {
    logger.error({ err: error }, 'Cannot read the last known pods');
  }
}

/**
 * The copies of cached pods with the annotation of their source, so that each pod is copied once. The annotation of the object
 * is replaced, because clients can write it: a pod that counts as static would be critical to its node.
 */
const noted = new WeakMap<object, Pod>();

function fromApi(pod: Pod): Pod {
  const known = noted.get(pod);
  if (known !== undefined) return known;
  const annotations = { ...pod.metadata.annotations, [ANNOTATION_CONFIG_SOURCE]: 'api' };
  const copy: Pod = { ...pod, metadata: { ...pod.metadata, annotations } };
  noted.set(pod, copy);
  return copy;
}
