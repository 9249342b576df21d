/** Serves `PUT` and `DELETE /localVolumes/<name>`, by which the control plane makes and removes local volumes of this node. */
import type { FastifyInstance } from 'fastify';
import type { LocalVolumes } from '../volumes/local-volumes.ts';

export function installLocalVolumes(app: FastifyInstance, volumes: Pick<LocalVolumes, 'create' | 'remove'>): void {
  app.put('/localVolumes/:name', async (request, reply) => {
    const { name } = request.params as { name: string };
    return reply.send({ path: await volumes.create(name) });
  });
  app.delete('/localVolumes/:name', async (request, reply) => {
    const { name } = request.params as { name: string };
    await volumes.remove(name);
    return reply.send({ kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' });
  });
}
