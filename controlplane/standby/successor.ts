/**
 * Keeps a first control plane from coming back after another one has taken its place. It remembers the URLs of the standbys
 * that followed it, in a file beside the database, and asks them at its next start, and when it did not run for a while.
 */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import { parseJson, stringifyJson } from '../../api/codec/json.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { makeFolder, replaceFile } from '../../api/machinery/replace-file.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { StartError } from '../model/start-error.ts';
import { type ClusterKeys, peerClient, readClusterKeys } from './identity.ts';
import { FIRST_PATH, type FirstReport, isPeerUrl } from './peer-paths.ts';
import { fencedMessage, readRole, type Role, writeRole } from './role.ts';

/** The maximum number of standbys that are remembered, the newest ones. */
const MAX_STANDBYS = 4;
/**
 * How long a start, or a write after a pause, waits for the answers of standbys. One that was just promoted does not listen for
 * a moment.
 */
export const ANSWER_MS = 3000;
const ASK_EVERY_MS = 200;

const fileOf = (dataDirectory: string): string => join(dataDirectory, 'storage', 'standbys.json');

/** Stores the URL of a standby. Resolves when it is on the disk. */
export async function rememberStandby(dataDirectory: string, url: string): Promise<void> {
  const earlier = readStandbys(dataDirectory);
  if (earlier.at(-1) === url) return;
  const file = fileOf(dataDirectory);
  await makeFolder(dirname(file), 0o700);
  const standbys = [...earlier.filter((one) => one !== url), url].slice(-MAX_STANDBYS);
  await replaceFile(file, `${stringifyJson({ standbys })}\n`, { mode: 0o600 });
}

/**
 * Returns the URLs, the newest one last, or an empty list without the file. Throws a StartError if the file is invalid, and
 * the system's error if it cannot be read.
 */
export function readStandbys(dataDirectory: string): readonly string[] {
  const file = fileOf(dataDirectory);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
  try {
    const { standbys } = (parseJson(text).value ?? {}) as Record<string, unknown>;
    if (Array.isArray(standbys) && standbys.every(isPeerUrl)) return standbys;
  } catch (cause) {
    throw new StartError(`${file} cannot be read`, { cause });
  }
  throw new StartError(`${file} cannot be read: a newer version may have written it`);
}

/** The other control planes that may have taken the place of this one. */
interface SuccessorOptions {
  readonly dataDirectory: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Asks the standbys that this control plane had whether one was promoted since. If one was, stores the role `fenced`, and
 * throws a StartError with the remedy. Standbys that do not answer within 3 seconds prevent no start.
 */
export async function refuseSuccessor(options: SuccessorOptions): Promise<void> {
  const { dataDirectory, clock } = options;
  const by = await findSuccessor(options);
  if (by === undefined) return;
  const role: Extract<Role, { role: 'fenced' }> = { role: 'fenced', by, atMs: clock.now() };
  await writeRole(dataDirectory, role);
  throw new StartError(fencedMessage(dataDirectory, role));
}

/**
 * Resolves to the URL of a standby that this control plane had and that was promoted later than this one, if there is one.
 * Rejects with a StartError if the keys of the cluster are missing, or if the file of standbys is invalid.
 */
export async function findSuccessor(options: SuccessorOptions): Promise<string | undefined> {
  const { dataDirectory, clock, logger } = options;
  const standbys = readStandbys(dataDirectory);
  if (standbys.length === 0) return undefined;
  const keys = await readClusterKeys(dataDirectory);
  const ownPromotion = promotionOf(readRole(dataDirectory));
  const reports = await Promise.all(
    standbys.map(async (url) => ({ url, report: await reportOf({ url, keys, clock, logger }, ANSWER_MS) })),
  );
  return reports.find(({ report }) => (report?.promotion?.revision ?? 0) > ownPromotion)?.url;
}

/**
 * Returns the last revision that a control plane had copied when it was promoted, or 0. The control plane with the higher
 * number was promoted later, whatever the clocks say.
 */
export const promotionOf = (role: Role): number => (role.role === 'promoted' ? role.revision : 0);

interface ReportOptions {
  readonly url: string;
  readonly keys: ClusterKeys;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Asks another control plane for its state, again and again within a time. Resolves to `undefined` if it is a standby, or does
 * not answer.
 */
export async function reportOf(
  { url, keys, clock, logger }: ReportOptions,
  withinMs: number,
): Promise<FirstReport | undefined> {
  const client = peerClient(url, keys, clock, { timeoutMs: ANSWER_MS });
  const untilMs = clock.monotonic() + withinMs;
  try {
    for (;;) {
      try {
        return (await client.json({ method: 'GET', path: FIRST_PATH })) as FirstReport;
      } catch (error) {
        if (isNotFound(error)) return undefined;
        if (clock.monotonic() + ASK_EVERY_MS < untilMs) await clock.sleep(ASK_EVERY_MS);
        else {
          logger.warn({ err: error, other: url }, 'The other control plane does not report whether it is the first');
          return undefined;
        }
      }
    }
  } finally {
    client.close();
  }
}
