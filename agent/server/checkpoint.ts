/**
 * Serves `POST /checkpoint/<namespace>/<pod>/<container>`. The runtime writes the container's state to an archive below the
 * root directory, and the response names the archive.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { errorMessage } from '../../api/meta/error-message.ts';
import { newStatusError, StatusError } from '../../api/meta/status-error.ts';
import { type Clock, formatTime } from '../../api/machinery/clock.ts';
import type { PodHost } from './pod-host.ts';
import type { Runtime } from '../runtime/runtime.ts';

/** The runtime that writes archives, and the root directory, whose folder `checkpoints` gets them. */
export interface CheckpointOptions {
  readonly runtime: Pick<Runtime, 'checkpoint'>;
  readonly rootDirectory: string;
  readonly clock: Clock;
}

/** Adds the route. Authorization is done before the route is reached. */
export function installCheckpoint(app: FastifyInstance, host: PodHost, options: CheckpointOptions): void {
  app.post('/checkpoint/:namespace/:pod/:container', (request, reply) => checkpoint(host, options, request, reply));
}

async function checkpoint(
  host: PodHost,
  { runtime, rootDirectory, clock }: CheckpointOptions,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { namespace, pod: podName, container } = request.params as Record<'namespace' | 'pod' | 'container', string>;
  const pod = host.podByName(namespace, podName);
  if (pod === undefined) throw newStatusError(404, 'NotFound', 'pod does not exist');
  const { containers, initContainers = [], ephemeralContainers = [] } = pod.spec;
  if (![...containers, ...initContainers, ...ephemeralContainers].some(({ name }) => name === container))
    throw newStatusError(404, 'NotFound', `container ${container} does not exist`);
  const { timeout: asked } = request.query as { readonly timeout?: string | readonly string[] };
  // Of several timeouts the last one counts.
  const text = asked === undefined ? '0' : ([asked].flat().at(-1) ?? '');
  if (!/^[+-]?\d{1,18}$/.test(text)) throw newStatusError(404, 'NotFound', 'cannot parse value of timeout parameter');
  const directory = join(rootDirectory, 'checkpoints');
  const archive = join(directory, `checkpoint-${podName}_${namespace}-${container}-${formatTime(clock.now())}.tar`);
  try {
    const id = await host.runningContainer({ namespace, pod: podName, uid: '', container });
    if (id === undefined) throw new Error(`container ${container} not found`);
    if (Number(text) < 0) throw new Error('CheckpointContainer requires the timeout value to be > 0');
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await runtime.checkpoint(id, archive, { timeoutSeconds: Number(text) });
  } catch (error) {
    const why = errorMessage(error);
    if (error instanceof StatusError && error.code === 404) throw error;
    throw newStatusError(500, 'InternalError', `checkpointing of ${namespace}/${podName}/${container} failed (${why})`);
  }
  return reply.send({ items: [archive] });
}
