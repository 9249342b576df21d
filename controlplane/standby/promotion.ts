/**
 * Makes a standby the first control plane. The former first is asked to take no more writes, and nothing is lost once the copy
 * has all of them. If the first does not answer or the copy does not catch up, the operator decides (`force`): the missing
 * writes are lost, and the former first must not come back as the first.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import type { Logger } from '../../api/component/logger.ts';
import { type Clock, formatTime } from '../../api/machinery/clock.ts';
import type { HttpClient } from '../../api/client/http-client.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { newStatusError } from '../../api/meta/status-error.ts';
import type { CopyState, Follower } from './follower.ts';
import { FENCE_PATH } from './peer-paths.ts';
import { writeRole } from './role.ts';

/** The standby that is promoted, and the control plane whose place it takes. */
interface PromotionOptions {
  readonly follower: Follower;
  /** A client of the first. */
  readonly client: HttpClient;
  readonly dataDirectory: string;
  /** The URL of the first. */
  readonly of: string;
  /** The URL of this control plane. */
  readonly url: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The result of a promotion, which `PROMOTE_PATH` answers. */
export interface Promotion {
  /** The last revision of the copy. */
  readonly revision: number;
  /** Whether the former first has stopped writing, and the copy has everything that it wrote. */
  readonly isComplete: boolean;
}

const CATCH_UP_MS = 30_000;

/**
 * Resolves when the data directory has the role of a first control plane. If it throws, this is still a standby, but only
 * another process can continue if the follower was stopped. The error is a StatusError (409) for the operator if the standby
 * cannot be promoted. With `force`, records may be missing, and the first need not answer.
 */
export async function promote(options: PromotionOptions, { force }: { readonly force: boolean }): Promise<Promotion> {
  const { follower, dataDirectory, of, clock, logger } = options;
  if (follower.state.completeAtMs === 0)
    throw refusal(`the copy of ${of} was never complete, so there is nothing to promote`);
  const last = await stopFirst(options, force);
  const isComplete = last !== undefined && (await follower.reaches(last, CATCH_UP_MS));
  if (last !== undefined && !isComplete && !force)
    throw refusal(
      `${of} has stopped writing at revision ${last}, but only ${follower.state.revision} have been copied: repeat the command, or promote without the rest with --force`,
    );
  const copy = await follower.release();
  if (copy === undefined) throw refusal('the copy cannot be opened');
  const revision = copy.lastRevision;
  try {
    await copy.leap();
  } finally {
    await copy.close();
  }
  const atMs = clock.now();
  await writeRole(dataDirectory, { role: 'promoted', from: of, revision, atMs, isFenced: last !== undefined });
  logger.warn({ from: of, revision, isComplete }, 'This standby is now the first control plane');
  return { revision, isComplete };
}

/** Returns the last revision of the first, or `undefined` if it does not answer and that is accepted. */
async function stopFirst(options: PromotionOptions, force: boolean): Promise<number | undefined> {
  const { client, of, url, logger, follower, clock } = options;
  try {
    return await askToStop(client, { by: url });
  } catch (error) {
    const why = errorMessage(error);
    if (!force)
      throw refusal(
        `${of} does not stop (${why}). ${lossOf(follower.state, clock.now())} Make sure that it does not run, and repeat the command with --force`,
      );
    logger.warn({ err: error, first: of }, 'The request to stop the first control plane failed');
    return undefined;
  }
}

/**
 * Asks a control plane to take no more writes, with what `FENCE_PATH` defines. Resolves to its last revision. Rejects if it
 * does not answer with one.
 */
export async function askToStop(
  client: HttpClient,
  successor: { readonly by: string; readonly promotedAt?: number },
  signal?: AbortSignal,
): Promise<number> {
  const answer = await client.json({
    method: 'POST',
    path: FENCE_PATH,
    body: stringifyJson(successor),
    ...(signal === undefined ? {} : { signal }),
  });
  const { revision } = answer as { readonly revision?: unknown };
  if (typeof revision !== 'number') throw new Error('the answer has no revision');
  return revision;
}

/** Returns how far the copy goes, and so what is lost if the first does not come back, as sentences. */
export function lossOf(
  { revision, newestRevision, completeAtMs }: Pick<CopyState, 'revision' | 'newestRevision' | 'completeAtMs'>,
  nowMs: number,
): string {
  const seconds = Math.max(0, Math.round((nowMs - completeAtMs) / 1000));
  const missing = newestRevision - revision;
  const knownLoss = missing > 0 ? `It is known to lack ${missing} revisions. ` : '';
  return `The copy ends at revision ${revision} and was complete ${seconds} s ago (${formatTime(completeAtMs)}). ${knownLoss}What the first has written since then is not in it.`;
}

function refusal(message: string): Error {
  return newStatusError(409, 'Conflict', message);
}
