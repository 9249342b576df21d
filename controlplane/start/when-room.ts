/**
 * Runs writes of the start that the next start would repeat: objects that every cluster has, and what the server publishes
 * about itself. A full disk does not prevent the start, because what is stored can be read and deleted without them.
 */
import { background, untilDone } from '../../api/machinery/background.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import { isStorageError } from '../storage/storage.ts';
import type { Setting } from './setting.ts';

const RETRY_MS = 10_000;

/**
 * Runs work that writes objects at the start. Resolves when the objects are written, or when the disk is found to be full. Then
 * the work is repeated until it succeeds. `what` is the subject of a sentence, capitalized. Rejects with other failures of the
 * first attempt.
 */
export async function whenRoom(
  { clock, logger, signal }: Pick<Setting, 'clock' | 'logger' | 'signal'>,
  what: string,
  work: () => Promise<unknown>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!isFull(error)) throw error;
    logger.warn({ err: error }, `${what} could not be written because the disk is full, retrying`);
    const backoff = new Backoff({ firstMs: RETRY_MS, longestMs: RETRY_MS });
    const onError = (again: unknown): void => logger.debug({ err: again }, `${what} could not be written yet`);
    const repeat = async (): Promise<void> => {
      await clock.sleep(RETRY_MS, signal);
      await untilDone(work, { clock, backoff, signal, onError });
    };
    background(repeat(), { logger, what, signal });
  }
}

/** Whether the error of a client in this process is that of a full disk. */
const isFull = (error: unknown): boolean => error instanceof Error && isStorageError(error.cause, 'full');
