/** Stops containers of the Docker Engine, and waits until the engine's container list shows their exit. */
import type { Logger } from '../../../api/component/logger.ts';
import { type DockerClient, isCode, unlessGone } from './docker-client.ts';

/** How much time beyond the grace period the engine may need to observe that a process has exited. */
const STOP_MARGIN_MS = 60_000;

/**
 * Stops a container. Resolves when the container does not run any more, also if it does not exist. A grace period of 0 kills it
 * at once.
 */
export async function stopContainer(client: DockerClient, id: string, gracePeriodSeconds: number): Promise<void> {
  const container = client.docker.getContainer(id);
  const timeoutMs = gracePeriodSeconds * 1000 + STOP_MARGIN_MS;
  if (gracePeriodSeconds > 0) {
    await unlessGone(client.call('stop container', () => container.stop({ t: gracePeriodSeconds }), { timeoutMs }));
    return;
  }
  const exited = client.call('wait for container', () => container.wait({ condition: 'not-running' }), { timeoutMs });
  // If the kill fails, the exit is not awaited, and its failure must not count as an unhandled rejection.
  exited.catch(() => undefined);
  try {
    await unlessGone(client.call('kill container', () => container.kill({ signal: 'SIGKILL' })));
  } catch (error) {
    // The engine answers 409 for a container that does not run.
    if (!isCode(error, 'invalid')) throw error;
  }
  await unlessGone(exited);
}

/**
 * Waits until the engine's container list shows a container's exit. The engine sends the exit event before it updates the list,
 * but does both under the container's lock. An inspection takes the same lock, so after an inspection the list is up to date. A
 * container that hangs delays only its own event. Never rejects: a failed inspection is logged.
 */
export async function exitListed(client: DockerClient, logger: Logger, id: string): Promise<void> {
  try {
    await client.call('inspect container', () => client.docker.getContainer(id).inspect());
  } catch (error) {
    logger.debug({ err: error, id }, 'Cannot inspect a container after its exit event');
  }
}
