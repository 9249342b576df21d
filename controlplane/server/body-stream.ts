/** Sends the bodies of responses: small ones at once, large ones in chunks that wait for the client. */
import { createGzip, constants as zlib } from 'node:zlib';
import { ChunkBuffers } from './chunk-buffers.ts';
import { acceptsGzip } from './media-type.ts';
import type { Exchange } from './exchange.ts';
import { Pieces } from './pieces.ts';
import type { ApiRequest, MaybePromise } from './request.ts';

/** The size above which bodies of responses to GET are compressed for clients that accept it. */
export const GZIP_FROM_BYTES = 128 * 1024;
const CHUNK_BYTES = 256 * 1024;
/** The size of the chunks of a generated body. They are smaller than other chunks, because generating them takes long. */
export const GENERATED_CHUNK_BYTES = 64 * 1024;
const chunkBuffers = new ChunkBuffers(CHUNK_BYTES);

/**
 * Sends small bodies at once. Large ones are sent in chunks that wait for the client, and are compressed if it accepts that.
 * The promise of a large one resolves when the last chunk is passed on or the client is disconnected, and rejects if a chunk
 * cannot be assembled.
 */
export function sendBody(request: ApiRequest, status: number, contentType: string, pieces: Pieces): MaybePromise<void> {
  pieces.gather(CHUNK_BYTES);
  const size = pieces.bytes;
  const compress = size > GZIP_FROM_BYTES && mayCompress(request);
  if (!compress && size <= CHUNK_BYTES) {
    request.send(status, contentType, pieces.whole());
    return undefined;
  }
  return sendChunks(request, status, contentType, { chunks: new Chunks(pieces), compress });
}

/** Sends a body that is generated while the client reads it, as `sendBody` does. One of several chunks counts as large. */
export function sendGenerated(
  request: ApiRequest,
  status: number,
  contentType: string,
  body: Generator<Buffer>,
): MaybePromise<void> {
  const first = body.next();
  const second = first.done === true ? first : body.next();
  const begun = [first, second].flatMap((one) => (one.done === true ? [] : [one.value]));
  if (second.done === true) return sendBody(request, status, contentType, Pieces.of(begun));
  const chunks: ChunkSource = {
    isSlow: true,
    next() {
      const one = begun.length > 0 ? begun.shift() : (body.next() as IteratorResult<Buffer, undefined>).value;
      if (one === undefined) return undefined;
      return { bytes: one, read: () => undefined };
    },
  };
  return sendChunks(request, status, contentType, { chunks, compress: mayCompress(request) });
}

const mayCompress = (request: ApiRequest): boolean =>
  request.exchange.method === 'GET' && acceptsGzip(request.header('accept-encoding'));

function sendChunks(
  request: ApiRequest,
  status: number,
  contentType: string,
  { chunks, compress }: { readonly chunks: ChunkSource; readonly compress: boolean },
): Promise<void> {
  const { exchange } = request;
  const headers = request.responseHeaders(contentType);
  request.status = status;
  if (compress) {
    headers['content-encoding'] = 'gzip';
    headers['vary'] = 'Accept-Encoding';
  }
  exchange.start(status, headers);
  const counted: ChunkSource = {
    isSlow: chunks.isSlow,
    next() {
      const one = chunks.next();
      request.responseBytes += one?.bytes.length ?? 0;
      return one;
    },
  };
  return new Promise((resolve, reject) => {
    exchange.onClose(resolve);
    const send = compress ? pumpCompressed : pump;
    send(exchange, counted, { resolve, reject });
  });
}

interface Outcome {
  /** Called when the last chunk is passed on. */
  resolve(): void;
  reject(error: unknown): void;
}

/** Returns a function that passes its errors on. Events of the connection call it, where an error would reach nobody. */
const passingErrors =
  (step: () => void, { reject }: Outcome): (() => void) =>
  () => {
    try {
      step();
    } catch (error) {
      reject(error);
    }
  };

interface ChunkSource {
  /** Whether generating a chunk takes long. Each chunk then has a turn of the event loop of its own. */
  readonly isSlow: boolean;
  /** Returns `undefined` after the last one. The caller calls `read` when it has read the chunk. */
  next(): { readonly bytes: Buffer; readonly read: () => void } | undefined;
}

/** The chunks of one body. The reader of a chunk releases its buffer. */
class Chunks implements ChunkSource {
  readonly isSlow = false;
  readonly #chunks: Generator<Buffer>;
  #buffer: Buffer | undefined;

  constructor(pieces: Pieces) {
    this.#chunks = pieces.chunks(() => (this.#buffer = chunkBuffers.take()));
  }

  next(): { readonly bytes: Buffer; readonly read: () => void } | undefined {
    // The generator takes the buffer of a chunk before it yields that chunk, and none before it is asked for the next.
    const { value } = this.#chunks.next() as IteratorResult<Buffer, undefined>;
    const buffer = this.#buffer;
    if (value === undefined || buffer === undefined) return undefined;
    return { bytes: value, read: () => chunkBuffers.giveBack(buffer) };
  }
}

function pump(exchange: Exchange, chunks: ChunkSource, outcome: Outcome): void {
  const step = passingErrors(() => {
    for (;;) {
      if (exchange.closed) return;
      const next = chunks.next();
      if (next === undefined) {
        exchange.end();
        outcome.resolve();
        return;
      }
      if (!exchange.write(next.bytes, next.read)) return;
      if (!chunks.isSlow) continue;
      setImmediate(step);
      return;
    }
  }, outcome);
  exchange.onDrain(step);
  step();
}

function pumpCompressed(exchange: Exchange, chunks: ChunkSource, outcome: Outcome): void {
  const gzip = createGzip({ level: zlib.Z_BEST_SPEED, chunkSize: CHUNK_BYTES });
  const feed = passingErrors(() => {
    for (;;) {
      const next = chunks.next();
      if (next === undefined) {
        gzip.end();
        return;
      }
      const { bytes, read } = next;
      if (!gzip.write(bytes, (error) => (error instanceof Error ? undefined : read()))) return;
    }
  }, outcome);
  gzip.on('drain', feed);
  gzip.on('data', (chunk: Buffer) => {
    if (!exchange.write(chunk)) gzip.pause();
  });
  gzip.on('end', () => {
    exchange.end();
    outcome.resolve();
  });
  exchange.onDrain(() => gzip.resume());
  exchange.onClose(() => gzip.destroy());
  feed();
}
