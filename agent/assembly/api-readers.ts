/** What the agent tells and reads beside pods and its node: events, and the services of pods' environments. */
import { CoreEventRecorder, referenceTo } from '../../api/machinery/event-recorder.ts';
import type { HttpClient } from '../../api/machinery/http-client.ts';
import { Informers } from '../../api/machinery/informer.ts';
import { nodes, pods as podsResource, services as servicesResource } from '../../api/machinery/resources.ts';
import type { PodCheckpoints } from '../checkpoints/pod-checkpoints.ts';
import type { NodeObject, PodEventRecorder, ServiceLister } from '../core-types.ts';
import type { Base } from './base.ts';

export interface AgentEvents extends PodEventRecorder {
  /** A warning, unless it is said to be normal. */
  aboutNode(node: NodeObject, reason: string, message: string, type?: 'Normal' | 'Warning'): void;
}

export function eventRecorder(
  { clock, logger, nodeName }: Base,
  client: HttpClient | undefined,
  closers: (() => unknown)[],
): AgentEvents {
  if (client === undefined) {
    return {
      aboutNode: () => undefined,
      event: (pod, type, reason, message) =>
        logger.debug({ pod: `${pod.metadata.namespace}/${pod.metadata.name}`, type, reason }, message),
    };
  }
  const recorder = new CoreEventRecorder({
    client,
    clock,
    logger,
    component: 'kubelet',
    host: nodeName,
  });
  closers.push(() => (recorder as { close?: () => unknown }).close?.());
  return {
    aboutNode: (node, reason, message, type = 'Warning') =>
      recorder.event(referenceTo(node as never, nodes), type, reason, message),
    event(pod, type, reason, message, options = {}) {
      const regarding = referenceTo(pod as never, podsResource);
      recorder.event(
        { ...regarding, ...(options.fieldPath === undefined ? {} : { fieldPath: options.fieldPath }) },
        type,
        reason,
        message,
        options.annotations === undefined ? {} : { annotations: options.annotations },
      );
    },
  };
}

export async function serviceLister(
  { clock, logger }: Base,
  client: HttpClient | undefined,
  checkpoints: PodCheckpoints | undefined,
  closers: (() => unknown)[],
): Promise<ServiceLister> {
  if (client === undefined) return { synced: () => true, list: () => [] };
  const informers = new Informers({ client, clock, logger });
  closers.push(() => informers.close());
  const informer = informers.for(servicesResource);
  const lister = { synced: () => informer.hasSynced, list: () => informer.list() };
  const onChange = (listener: () => void): void =>
    void informer.addHandler({ add: listener, update: listener, delete: listener });
  return checkpoints === undefined ? lister : await checkpoints.services(lister, onChange);
}
