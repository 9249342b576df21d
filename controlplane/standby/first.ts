/**
 * Implements what the first control plane does for its standby: it sends its log, and takes no more writes once the standby
 * takes its place.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { parseJson } from '../../api/codec/json.ts';
import { type Clock, formatTime } from '../../api/machinery/clock.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { newBadRequest, newServiceUnavailable, newStatusError } from '../../api/meta/status-error.ts';
import type { Exchange } from '../server/exchange.ts';
import type { Storage } from '../storage/storage.ts';
import { FreezeGuard } from './freeze-guard.ts';
import { FrameWriter } from './frame-writer.ts';
import { type CopyPosition, streamLog } from './log-stream.ts';
import {
  FENCE_PATH,
  FIRST_PATH,
  type FirstReport,
  isPeerUrl,
  LOG_PATH,
  type PeerRoute,
  sendJson,
} from './peer-paths.ts';
import { findSuccessor, readStandbys, rememberStandby } from './successor.ts';
import { FencedError, fencedMessage, readRole, type Role, writeRole } from './role.ts';

/** What the first control plane serves its standby from. */
interface FirstOptions {
  readonly storage: Storage;
  readonly dataDirectory: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  /** Aborts when the control plane closes. */
  readonly signal: AbortSignal;
  /** Called when another control plane has taken the place of this one: the process must exit. */
  readonly onFatal: ((error: Error) => void) | undefined;
}

const MAX_STREAMS = 4;
/** How long a fenced control plane sends the rest of its log before it exits. */
const EXIT_AFTER_MS = 30_000;
/** How long a fenced control plane without a stream waits for its standby to connect again before it exits. */
const RECONNECT_MS = 3000;
const MAX_BODY_BYTES = 4096;

/**
 * Returns the routes by which a standby follows the log of this control plane, reads its state, and makes it take no more
 * writes. Registers the gauge `orchlet_standbys`. Without SQLite, the log and the fence are answered with 501.
 */
export function firstRoutes(options: FirstOptions): readonly PeerRoute[] {
  const first = new First(options);
  return [
    { method: 'GET', path: LOG_PATH, handle: ({ exchange, query }) => first.follow(exchange, query) },
    { method: 'GET', path: FIRST_PATH, handle: async ({ exchange }) => sendJson(exchange, 200, first.report()) },
    { method: 'POST', path: FENCE_PATH, handle: ({ exchange }) => first.fence(exchange) },
  ];
}

class First {
  readonly #options: FirstOptions;
  #streams = 0;
  #fence: Promise<number> | undefined;
  #guard: FreezeGuard | undefined;
  /** Exits the process. `undefined` before this control plane is fenced. */
  #exit: (() => void) | undefined;

  constructor(options: FirstOptions) {
    this.#options = options;
    const standbys = options.metrics.gauge({
      name: 'orchlet_standbys',
      help: 'Number of standbys that follow this control plane.',
    });
    options.metrics.collect(() => standbys.with().set(this.#streams));
    if (readStandbys(options.dataDirectory).length > 0) this.#watchForFreezes();
  }

  async follow(exchange: Exchange, query: URLSearchParams): Promise<void> {
    const { storage, logger, clock, signal, dataDirectory } = this.#options;
    const { log } = storage;
    const from = positionOf(query);
    const url = query.get('url');
    if (!isPeerUrl(url)) throw newBadRequest('url must be the URL of the standby');
    if (log === undefined) throw notSqlite();
    if (this.#streams >= MAX_STREAMS) throw newServiceUnavailable(`${MAX_STREAMS} standbys follow this control plane`);
    const disconnected = new AbortController();
    exchange.onClose(() => disconnected.abort());
    const standby = exchange.connection.remoteAddress;
    this.#streams += 1;
    logger.info({ standby, url, revision: from.lastRevision }, 'A standby follows this control plane');
    try {
      await rememberStandby(dataDirectory, url);
      this.#watchForFreezes();
      exchange.start(200, { 'content-type': 'application/octet-stream' });
      const sink = new FrameWriter(exchange, clock);
      await streamLog({ ...this.#options, log }, from, sink, AbortSignal.any([disconnected.signal, signal]));
      exchange.end();
    } catch (error) {
      if (!disconnected.signal.aborted && !signal.aborted)
        logger.warn({ err: error, standby }, 'The stream to a standby broke');
      exchange.abort();
    } finally {
      this.#streams -= 1;
      logger.info({ standby }, 'A standby no longer follows this control plane');
      this.#exitSoon();
    }
  }

  report(): FirstReport {
    const role = readRole(this.#options.dataDirectory);
    const promotion =
      role.role === 'promoted' ? { from: role.from, revision: role.revision, atMs: role.atMs } : undefined;
    return { revision: this.#options.storage.revision(), promotion };
  }

  /** Answers when the running writes are done, and the role is on the disk. */
  async fence(exchange: Exchange): Promise<void> {
    const { by, promotedAt } = successorOf(await exchange.readBody(MAX_BODY_BYTES));
    this.#refuseOlder(by, promotedAt);
    sendJson(exchange, 200, { revision: await this.#stopFor(by) });
  }

  /** Starts to check for freezes of the process. */
  #watchForFreezes(): void {
    if (this.#guard !== undefined) return;
    const guard = new FreezeGuard({ ...this.#options, check: () => this.#stopForSuccessor() });
    this.#guard = guard;
    this.#options.storage.guard?.(() => guard.before());
  }

  /** Takes no more writes if a standby was promoted while this process did not run. */
  async #stopForSuccessor(): Promise<void> {
    const by = await findSuccessor(this.#options);
    if (by === undefined) return;
    const { storage, dataDirectory, clock } = this.#options;
    // Writes stop even if the role cannot be written, because the next start asks again.
    await storage.fence?.(fencedMessage(dataDirectory, { role: 'fenced', by, atMs: clock.now() }));
    await this.#stopFor(by);
  }

  async #stopFor(by: string): Promise<number> {
    this.#fence ??= this.#fenceFor(by);
    try {
      return await this.#fence;
    } catch (error) {
      this.#fence = undefined;
      throw error;
    }
  }

  /**
   * Refuses a promotion that is not newer than that of this control plane: of two that were promoted, the one whose promotion
   * is the newest is the first.
   */
  #refuseOlder(by: string, promotedAt: number | undefined): void {
    if (promotedAt === undefined) return;
    const { promotion } = this.report();
    if (promotion === undefined || promotedAt > promotion.revision) return;
    throw newStatusError(
      409,
      'Conflict',
      `this control plane was promoted at ${formatTime(promotion.atMs)}, and ${by} was not promoted later`,
    );
  }

  async #fenceFor(by: string): Promise<number> {
    const { storage, dataDirectory, clock, logger, onFatal } = this.#options;
    if (storage.fence === undefined) throw notSqlite();
    const role: Extract<Role, { role: 'fenced' }> = { role: 'fenced', by, atMs: clock.now() };
    const message = fencedMessage(dataDirectory, role);
    await writeRole(dataDirectory, role);
    const revision = await storage.fence(message);
    logger.error(
      { successor: by, revision },
      'Another control plane takes the place of this one, which takes no more writes',
    );
    const error = new FencedError(message, by);
    let hasExited = false;
    this.#exit = () => {
      if (!hasExited) onFatal?.(error);
      hasExited = true;
    };
    clock.after(EXIT_AFTER_MS, this.#exit);
    this.#exitSoon();
    return revision;
  }

  /**
   * Ends the process a moment after the last stream, because a standby whose connection broke comes back for the rest of the
   * log.
   */
  #exitSoon(): void {
    if (this.#exit === undefined || this.#streams > 0) return;
    this.#options.clock.after(RECONNECT_MS, () => {
      if (this.#streams === 0) this.#exit?.();
    });
  }
}

const notSqlite = (): Error =>
  newStatusError(
    501,
    'NotImplemented',
    'this control plane does not keep its data in SQLite: a standby needs a first control plane that does',
  );

function positionOf(query: URLSearchParams): CopyPosition {
  const number = (name: string): number | undefined => {
    const text = query.get(name);
    if (text === null) return undefined;
    if (!/^\d{1,15}$/.test(text)) throw newBadRequest(`${name} must be a number`);
    return Number(text);
  };
  const [lastRevision, revision, checksum] = [number('after'), number('newest'), number('checksum')];
  const newest = revision === undefined || checksum === undefined ? undefined : { revision, checksum };
  return { lastRevision: lastRevision ?? 0, newest };
}

interface Successor {
  /** The URL of the control plane that takes over. */
  readonly by: string;
  /** The revision at which it was promoted. */
  readonly promotedAt: number | undefined;
}

function successorOf(body: Buffer): Successor {
  let by: unknown;
  let promotedAt: unknown;
  try {
    ({ by, promotedAt } = (parseJson(body).value ?? {}) as Record<string, unknown>);
  } catch (error) {
    throw newBadRequest(`the body must be JSON: ${errorMessage(error)}`);
  }
  if (!isPeerUrl(by)) throw newBadRequest('by must be the URL of the control plane that takes over');
  if (promotedAt !== undefined && typeof promotedAt !== 'number') throw newBadRequest('promotedAt must be a number');
  return { by, promotedAt };
}
