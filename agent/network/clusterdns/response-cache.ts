/**
 * Caches the responses of other name servers. A response is reused for the same query, byte for byte except its id, so that
 * the options of clients need no interpretation. Equal queries that arrive meanwhile wait for the same response. This also ends
 * loops: a query that another server sends back to this one waits for itself until it times out.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import { answersQuestion, messageTtls } from './message-ttls.ts';

/** Counts look-ups, with the types of CoreDNS' cache: `denial` for NXDOMAIN and for empty answers. */
export interface CacheObserver {
  hit(type: 'success' | 'denial'): void;
  miss(): void;
}

interface ResponseCacheOptions {
  readonly clock: Clock;
  readonly observer?: CacheObserver;
  /** The maximum number of responses, and of their bytes together. */
  readonly most?: { readonly responses: number; readonly bytes: number };
}

interface Entry {
  readonly response: Buffer;
  readonly offsets: readonly number[];
  readonly isDenial: boolean;
  readonly storedMs: number;
  readonly endsMs: number;
}

/** The bounds of the time in the cache. They are those of CoreDNS as kubeadm configures it. */
const MIN_SECONDS = 5;
const MAX_SECONDS = 30;
const MOST = { responses: 10_000, bytes: 8 * 1024 * 1024 };
/** The maximum size of a query whose response is cached. */
const MAX_QUERY_BYTES = 512;

/** The cache, bounded in entries and bytes; the oldest responses leave first. */
export class ResponseCache {
  readonly #options: ResponseCacheOptions;
  /** The responses in the order in which they were stored, the oldest first. */
  readonly #entries = new Map<string, Entry>();
  readonly #pending = new Map<string, Promise<Buffer>>();
  #bytes = 0;

  constructor(options: ResponseCacheOptions) {
    this.#options = options;
  }

  /** The number of cached responses. */
  get size(): number {
    return this.#entries.size;
  }

  /** Returns the response from the cache, or from `ask`. `scope` separates the transports. */
  async resolve(query: Buffer, scope: string, ask: () => Promise<Buffer>): Promise<Buffer> {
    if (query.length > MAX_QUERY_BYTES) return ask();
    const key = `${scope} ${query.toString('latin1', 2)}`;
    const id = query.readUInt16BE(0);
    const cached = this.#find(key);
    if (cached !== undefined) return withId(cached, id);
    this.#options.observer?.miss();
    const pending = this.#pending.get(key);
    if (pending !== undefined) return withId(Buffer.from(await pending), id);
    const asking = ask();
    this.#pending.set(key, asking);
    try {
      const response = await asking;
      if (answersQuestion(query, response)) this.#store(key, response);
      return response;
    } finally {
      this.#pending.delete(key);
    }
  }

  /** Forgets everything, because other name servers may give other answers. */
  clear(): void {
    this.#entries.clear();
    this.#bytes = 0;
  }

  #find(key: string): Buffer | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    const nowMs = this.#options.clock.monotonic();
    if (nowMs >= entry.endsMs) {
      this.#remove(key, entry);
      return undefined;
    }
    this.#options.observer?.hit(entry.isDenial ? 'denial' : 'success');
    const response = Buffer.from(entry.response);
    const age = Math.floor((nowMs - entry.storedMs) / 1000);
    for (const at of entry.offsets) response.writeUInt32BE(Math.max(0, response.readUInt32BE(at) - age), at);
    return response;
  }

  #store(key: string, response: Buffer): void {
    const ttls = messageTtls(response);
    // A TTL of 0 forbids caching (RFC 1035, section 3.2.1).
    if (ttls === undefined || ttls.seconds === 0) return;
    const storedMs = this.#options.clock.monotonic();
    const seconds = Math.min(MAX_SECONDS, Math.max(MIN_SECONDS, ttls.seconds));
    const old = this.#entries.get(key);
    if (old !== undefined) this.#remove(key, old);
    const { offsets, isDenial } = ttls;
    this.#entries.set(key, {
      // The message may be a part of a larger buffer.
      response: Buffer.from(response),
      offsets,
      isDenial,
      storedMs,
      endsMs: storedMs + seconds * 1000,
    });
    this.#bytes += costOf(key, response);
    const { responses, bytes } = this.#options.most ?? MOST;
    for (const [oldest, entry] of this.#entries) {
      if (this.#entries.size <= responses && this.#bytes <= bytes) break;
      this.#remove(oldest, entry);
    }
  }

  #remove(key: string, { response }: Entry): void {
    this.#entries.delete(key);
    this.#bytes -= costOf(key, response);
  }
}

const costOf = (key: string, response: Buffer): number => key.length + response.length;

function withId(response: Buffer, id: number): Buffer {
  response.writeUInt16BE(id, 0);
  return response;
}
