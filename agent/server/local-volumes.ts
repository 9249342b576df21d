/**
 * Serves `PUT` and `DELETE /localVolumes/<name>`, by which the control plane creates and removes local volumes of this node.
 * The query `capacity=BYTES` of `PUT` limits a volume, also one that exists.
 */
import type { FastifyInstance } from 'fastify';
import { newBadRequest } from '../../api/meta/status-error.ts';
import type { LocalVolumes } from '../volumes/local-volumes.ts';

/** Adds the routes. `PUT` responds with the path of the volume. */
export function installLocalVolumes(app: FastifyInstance, volumes: Pick<LocalVolumes, 'create' | 'remove'>): void {
  app.put('/localVolumes/:name', async (request, reply) => {
    const { name } = request.params as { name: string };
    const { capacity } = request.query as { capacity?: unknown };
    return reply.send(await volumes.create(name, bytesOf(capacity)));
  });
  app.delete('/localVolumes/:name', async (request, reply) => {
    const { name } = request.params as { name: string };
    await volumes.remove(name);
    return reply.send({ kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' });
  });
}

/**
 * Parses the capacity in bytes. Returns `undefined` if the control plane sent none, as earlier versions do. Throws a 400 for
 * anything but a number of at most 19 digits.
 */
function bytesOf(capacity: unknown): bigint | undefined {
  if (capacity === undefined) return undefined;
  if (typeof capacity !== 'string' || !/^\d{1,19}$/.test(capacity))
    throw newBadRequest('the parameter capacity must be a number of bytes with at most 19 digits');
  return BigInt(capacity);
}
