/**
 * Creates the recorder of the agent's events. Without an API server, events about pods are logged at the debug level, and those
 * about the node are dropped.
 */
import { CoreEventRecorder, referenceTo } from '../../api/client/event-recorder.ts';
import type { HttpClient } from '../../api/client/http-client.ts';
import { nodes, pods as podsResource } from '../../api/client/resources.ts';
import type { NodeObject } from '../base/model/node.ts';
import type { PodEventRecorder } from '../base/model/pod-events.ts';
import type { Base } from './base.ts';

/** Records events about pods and about the node of this agent. Nothing throws or waits for the API server. */
export interface AgentEvents extends PodEventRecorder {
  /** Records a warning by default. */
  nodeEvent(node: NodeObject, reason: string, message: string, type?: 'Normal' | 'Warning'): void;
}

/** Creates the recorder of the agent's events. They have the component `kubelet`, as tools that filter by it expect. */
export function createEvents({ clock, logger, nodeName }: Base, client: HttpClient | undefined): AgentEvents {
  if (client === undefined) {
    return {
      nodeEvent: () => undefined,
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
  return {
    nodeEvent: (node, reason, message, type = 'Warning') =>
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
