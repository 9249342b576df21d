/**
 * Receives the body of a request, for both protocols. What arrives before its reader is gathered, because Node.js would keep
 * each part, however small, in an object of its own. For the same reason the bodies of reads, which have no reader, are
 * dropped: a watch may last for hours.
 */
import type { Readable } from 'node:stream';
import { GatheredBytes } from '../../api/machinery/gathered-bytes.ts';
import { newRequestEntityTooLarge } from '../../api/meta/status-error.ts';

/** The initial window of an HTTP/2 stream. */
const MOST_UNREAD_BYTES = 64 * 1024;

interface Reader {
  readonly limit: number;
  readonly count: ((bytes: number) => void) | undefined;
  resolve(body: Buffer): void;
  reject(error: Error): void;
}

/** Returns `undefined` for a read, whose body is dropped as it comes. */
export function incomingBody(method: string, source: Readable): IncomingBody | undefined {
  if (method !== 'GET' && method !== 'HEAD') return new IncomingBody(source);
  source.resume();
  return undefined;
}

/** It listens to the stream, because an iterator costs several times as much as a small body. */
export class IncomingBody {
  readonly #source: Readable;
  /** Emptied at the end, because the stream outlives the body. */
  readonly #gathered = new GatheredBytes();
  #state: 'open' | 'ended' | 'closed' = 'open';
  #reader: Reader | undefined;

  constructor(source: Readable) {
    this.#source = source;
    if (source.destroyed) this.#state = 'closed';
    else source.on('data', this.#onData).once('end', this.#onEnd).once('close', this.#onClose);
  }

  /**
   * Rejects with a 413 if the body is longer than `limit` bytes, and with another error if the client is disconnected before
   * the end of the body. `count` receives the size of each part.
   */
  whole(limit: number, count?: (bytes: number) => void): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      this.#reader = { limit, count, resolve, reject };
      if (this.#gathered.size > 0 && !this.#isWithin(this.#reader, this.#gathered.size)) return;
      if (this.#state === 'ended') resolve(this.#gathered.take());
      else if (this.#state === 'closed') reject(disconnected());
      else this.#source.resume();
    });
  }

  /** The parts as they come. The stream stays open if the consumer leaves. */
  async *parts(): AsyncGenerator<Buffer, void, undefined> {
    this.#leave();
    this.#source.pause();
    if (this.#gathered.size > 0) yield this.#gathered.take();
    if (this.#state === 'closed') throw disconnected();
    if (this.#state === 'open') yield* this.#source.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  }

  /** Drops what came and what comes. */
  discard(): void {
    this.#leave();
    this.#gathered.take();
    this.#source.resume();
  }

  readonly #onData = (part: Buffer): void => {
    this.#gathered.push(part);
    if (this.#reader !== undefined) this.#isWithin(this.#reader, part.length);
    else if (this.#gathered.size >= MOST_UNREAD_BYTES) this.#source.pause();
  };

  readonly #onEnd = (): void => {
    this.#leave();
    this.#state = 'ended';
    this.#reader?.resolve(this.#gathered.take());
  };

  readonly #onClose = (): void => {
    this.#leave();
    this.#state = 'closed';
    this.#gathered.take();
    this.#reader?.reject(disconnected());
  };

  #isWithin({ limit, count, reject }: Reader, bytes: number): boolean {
    if (this.#gathered.size <= limit) {
      count?.(bytes);
      return true;
    }
    this.#leave();
    this.#source.pause();
    this.#gathered.take();
    reject(newRequestEntityTooLarge(`Request entity too large: limit is ${limit}`));
    return false;
  }

  #leave(): void {
    this.#source.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
  }
}

const disconnected = (): Error => new Error('the client was disconnected before the end of the body');
