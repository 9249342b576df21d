/**
 * Receives the body of a request, for both protocols. What arrives before its reader is gathered, and counts for the limit of
 * unread bodies that all requests share.
 */
import type { Readable } from 'node:stream';
import { GatheredBytes } from '../../api/machinery/gathered-bytes.ts';
import { newRequestEntityTooLarge } from '../../api/meta/status-error.ts';
import type { Share } from './shares.ts';
import { TooManyRequests } from './flowcontrol/too-many-requests.ts';

/** The number of unread bytes from which on a body is paused. */
export const MAX_UNREAD_BYTES = 3 * 1024 * 1024;

const RETRY_SECONDS = 1;

/** Opens the share of a body that arrives before its reader. `refuse` is called if there is no room for the body. */
type OpenUnread = (refuse: () => void) => Share;

interface Reader {
  readonly limit: number;
  readonly count: ((bytes: number) => void) | undefined;
  resolve(body: Buffer): void;
  reject(error: Error): void;
}

/** Returns the body of a request. Returns `undefined` for a read, whose body is dropped as it comes. */
export function incomingBody(method: string, source: Readable, openUnread?: OpenUnread): IncomingBody | undefined {
  if (method !== 'GET' && method !== 'HEAD') return new IncomingBody(source, openUnread);
  source.resume();
  return undefined;
}

/** Listens to events of the stream, because iterating over it costs several times as much as a small body itself. */
export class IncomingBody {
  readonly #source: Readable;
  /** Emptied at the end, because the stream outlives the body. */
  readonly #gathered = new GatheredBytes();
  readonly #openUnread: OpenUnread | undefined;
  #state: 'open' | 'ended' | 'closed' | 'refused' = 'open';
  #reader: Reader | undefined;
  #unread: Share | undefined;

  constructor(source: Readable, openUnread?: OpenUnread) {
    this.#source = source;
    this.#openUnread = openUnread;
    if (source.destroyed) this.#state = 'closed';
    else source.on('data', this.#onData).once('end', this.#onEnd).once('close', this.#onClose);
  }

  /**
   * Rejects with a 413 if the body is longer than `limit` bytes, and with `TooManyRequests` if there was no room for it before
   * it was read. Rejects with another error if the client is disconnected before the end of the body. `count` receives the size
   * of each part.
   */
  whole(limit: number, count?: (bytes: number) => void): Promise<Buffer> {
    this.#unread?.close();
    return new Promise((resolve, reject) => {
      if (this.#state === 'refused') throw new TooManyRequests(RETRY_SECONDS);
      this.#reader = { limit, count, resolve, reject };
      if (this.#gathered.size > 0 && !this.#countOrReject(this.#reader, this.#gathered.size)) return;
      if (this.#state === 'ended') resolve(this.#gathered.take());
      else if (this.#state === 'closed') reject(disconnected());
      else this.#source.resume();
    });
  }

  /**
   * Yields the parts of the body as they come. The stream stays open if the consumer leaves. Throws as `whole` does, but has no
   * limit.
   */
  async *parts(): AsyncGenerator<Buffer, void, undefined> {
    if (this.#state === 'refused') throw new TooManyRequests(RETRY_SECONDS);
    this.#removeListeners();
    this.#unread?.close();
    this.#source.pause();
    if (this.#gathered.size > 0) yield this.#gathered.take();
    if (this.#state === 'closed') throw disconnected();
    if (this.#state === 'open') yield* this.#source.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  }

  /** Drops the gathered bytes, and all that still arrive. */
  discard(): void {
    this.#removeListeners();
    this.#unread?.close();
    this.#gathered.take();
    this.#source.resume();
  }

  readonly #onData = (part: Buffer): void => {
    this.#gathered.push(part);
    if (this.#reader !== undefined) this.#countOrReject(this.#reader, part.length);
    else this.#count(part.length);
  };

  /** Counts received bytes, and pauses the stream when too many are unread. */
  #count(bytes: number): void {
    this.#unread ??= this.#openUnread?.(() => this.#refuse());
    if (this.#state === 'refused') this.#unread?.close();
    else this.#unread?.add(bytes);
    if (this.#state === 'open' && this.#gathered.size > MAX_UNREAD_BYTES) this.#source.pause();
  }

  #refuse(): void {
    this.#state = 'refused';
    this.discard();
  }

  readonly #onEnd = (): void => {
    this.#removeListeners();
    this.#state = 'ended';
    this.#reader?.resolve(this.#gathered.take());
  };

  readonly #onClose = (): void => {
    this.#removeListeners();
    this.#unread?.close();
    this.#state = 'closed';
    this.#gathered.take();
    this.#reader?.reject(disconnected());
  };

  /** Reports received bytes to the reader. Returns false if the body is longer than the limit, after rejecting the reader. */
  #countOrReject({ limit, count, reject }: Reader, bytes: number): boolean {
    if (this.#gathered.size <= limit) {
      count?.(bytes);
      return true;
    }
    this.#removeListeners();
    this.#source.pause();
    this.#gathered.take();
    reject(newRequestEntityTooLarge(`Request entity too large: limit is ${limit}`));
    return false;
  }

  #removeListeners(): void {
    this.#source.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
  }
}

const disconnected = (): Error => new Error('the client was disconnected before the end of the body');
