/**
 * Finds the ports that processes of this host need, for the node's status: services of type LoadBalancer do not get them.
 */
import type { Logger } from '../../api/component/logger.ts';
import { listeningPorts } from '../host/listening-ports.ts';
import type { Pod } from '../base/model/pod.ts';
import { hostPorts } from '../pods/workers/node-fit.ts';
import type { ClusterServices } from './cluster-services.ts';

/**
 * Returns a function that lists the ports on which processes of this host listen, without the host ports of `pods`. The
 * list is empty if the ports cannot be read, and in clusters whose nodes do not serve names.
 */
export function hostListeners(
  services: Pick<ClusterServices, 'ownNameServers'>,
  pods: () => readonly Pod[],
  logger: Logger,
): () => Promise<readonly string[]> {
  return async () => {
    if (services.ownNameServers().length === 0) return [];
    const ofPods = new Set(
      pods()
        .flatMap(hostPorts)
        .map(({ protocol, port }) => `${protocol} ${port}`),
    );
    try {
      return (await listeningPorts()).filter((port) => !ofPods.has(port));
    } catch (error) {
      logger.debug({ err: error }, 'Cannot read the listening ports of this host');
      return [];
    }
  };
}
