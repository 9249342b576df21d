/**
 * Replaces the CAs of clients while the agent runs. As in the kubelet, the file is checked through a work queue, so that the
 * metrics of the queue show failures. A failed check is repeated sooner.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { type QueueObserver, WorkQueue } from '../../api/machinery/work-queue.ts';
import { readClientCa } from './client-trust.ts';
import type { AgentServer } from './server.ts';

const CHECK_MS = 60_000;
const FIRST_RETRY_MS = 1_000;
/** The kubelet's name of this queue. */
const QUEUE_NAME = 'DynamicCABundle-client-ca-bundle';

interface ClientCaOptions {
  readonly file: string;
  /** The CAs that the server was started with. */
  readonly first: string;
  readonly server: Pick<AgentServer, 'trustClients'>;
  readonly observeQueue: (name: string) => QueueObserver;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Replaces the CAs of clients when the file changes, until the signal aborts. An invalid file leaves the last CAs in effect.
 */
export async function followClientCa(options: ClientCaOptions, signal: AbortSignal): Promise<void> {
  const { file, first, server, observeQueue, clock, logger } = options;
  const queue = new WorkQueue({
    clock,
    observer: observeQueue(QUEUE_NAME),
    baseDelayMs: FIRST_RETRY_MS,
    maxDelayMs: CHECK_MS,
  });
  signal.addEventListener('abort', () => queue.shutDown(), { once: true });
  let current = first;
  queue.add(file);
  for (let key = await queue.next(); key !== undefined && !signal.aborted; key = await queue.next()) {
    try {
      const text = await readClientCa(key);
      if (text !== current) {
        server.trustClients(text);
        current = text;
        logger.info({ file }, 'Replaced the CAs of clients');
      }
      queue.forget(key);
      queue.addAfter(key, CHECK_MS);
    } catch (error) {
      logger.warn({ err: error, file }, 'Cannot read the CAs of clients, keeping the previous ones');
      queue.addRateLimited(key);
    }
    queue.done(key);
  }
}
