/** Calls the agents of nodes for local volumes, and returns the credentials with which the control plane calls agents. */
import { join, isAbsolute, normalize } from 'node:path';
import type { Node } from '../../api/kinds/kinds.ts';
import type { VolumeAgents } from '../controllers/storage/local-volumes.ts';
import { type AgentConnection, requestAgent } from '../model/agent-request.ts';
import type { Parts } from './parts.ts';
import { agentOrigin } from '../registry/kinds/core/connections.ts';

const TIMEOUT_MS = 10_000;
const MAX_BYTES = 64 << 10;
/** The maximum number of characters that are used of an agent's text, which comes from a node. */
const LONGEST_REASON = 300;

/** Returns how the control plane calls agents. They know the API server by its client certificate. */
export function agentConnection({ dialer, security }: Pick<Parts, 'dialer' | 'security'>): AgentConnection {
  return { dialer, credentials: security.agentCredentials };
}

/**
 * Creates and removes the folders of local volumes by calls of the agents. A call rejects if the Node has no address, or if the
 * agent cannot be reached or refuses; `create` also if the response has no path of the volume.
 */
export function volumeAgents(connection: AgentConnection, addressTypes: readonly string[]): VolumeAgents {
  const call = async (node: Node, name: string, method: 'PUT' | 'DELETE', query = ''): Promise<unknown> => {
    const origin = agentOrigin(node, addressTypes);
    if (origin === undefined) throw new Error(`the node ${node.metadata.name} has no address yet`);
    return requestAgent(connection, {
      node: node.metadata.name ?? '',
      origin,
      method,
      path: join('/localVolumes', encodeURIComponent(name)) + query,
      timeoutMs: TIMEOUT_MS,
      largestBytes: MAX_BYTES,
    });
  };
  return {
    async create(node, name, capacity) {
      const answer = await call(node, name, 'PUT', `?capacity=${capacity}`);
      // Agents of earlier versions limit nothing, and do not report it.
      const { path, unlimited = 'its agent is of an earlier version' } = answer as Record<string, unknown>;
      if (typeof path !== 'string' || !isAbsolute(path) || normalize(path) !== path || !path.endsWith(`/${name}`))
        throw new Error(`the agent of the node ${node.metadata.name} answered without the path of the volume`);
      return { path, unlimited: String(unlimited).slice(0, LONGEST_REASON) };
    },
    async remove(node, name) {
      await call(node, name, 'DELETE');
    },
  };
}
