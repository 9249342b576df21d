/** Pods that the API server has bound to this node, mirror pods among them. */
import type { Logger } from '../../api/component/logger.ts';
import { Informers } from '../../api/machinery/informer.ts';
import type { Client } from '../../api/machinery/client.ts';
import { type Clock, whenAborted } from '../../api/machinery/clock.ts';
import { pods as podsResource } from '../../api/machinery/resources.ts';
import { ANNOTATION_CONFIG_SOURCE, type Pod } from '../core-types.ts';
import type { PodSource } from './pod-source.ts';

export interface ApiSourceOptions {
  readonly client: Client;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

export function createApiSource(options: ApiSourceOptions): PodSource {
  return {
    name: 'api',
    async run(signal, onPods) {
      const { client, clock, logger, nodeName } = options;
      const informers = new Informers({ client, clock, logger });
      const informer = informers.for(podsResource, { fieldSelector: `spec.nodeName=${nodeName}` });
      let scheduled = false;
      const tell = (): void => {
        if (scheduled || !informer.hasSynced || signal.aborted) return;
        scheduled = true;
        queueMicrotask(() => {
          scheduled = false;
          if (!signal.aborted) onPods(informer.list().map((pod) => fromApi(pod as unknown as Pod)));
        });
      };
      informer.addHandler({ add: tell, update: tell, delete: tell });
      try {
        await informer.synced(signal);
        tell();
        await whenAborted(signal);
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        await informers.close();
      }
    },
  };
}

/** The pod with its source noted, made once an object of the cache. */
const noted = new WeakMap<object, Pod>();

function fromApi(pod: Pod): Pod {
  const known = noted.get(pod);
  if (known !== undefined) return known;
  const annotations = { ...pod.metadata.annotations };
  annotations[ANNOTATION_CONFIG_SOURCE] ??= 'api';
  const copy: Pod = { ...pod, metadata: { ...pod.metadata, annotations } };
  noted.set(pod, copy);
  return copy;
}
