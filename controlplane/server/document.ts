/**
 * Serves documents that are the same for all clients until the set of resources changes, such as discovery and OpenAPI.
 * Small ones are bytes whose hash and compressed form are computed on first use. Large ones are assembled from runs.
 */
import { createHash } from 'node:crypto';
import { gzip } from 'node:zlib';
import { promisify } from 'node:util';
import type { Clock } from '../../api/machinery/clock.ts';
import { inSlices, TimeSlice } from '../../api/machinery/time-slice.ts';
import { partsInRange, selectBytes, type Selected } from './byte-ranges.ts';
import { gzipOf, plainBytes, summaryOf, type Run, type RunsSummary } from './compressed-runs.ts';
import { acceptsGzip } from './media-type.ts';
import type { Exchange, ResponseHeaders } from './exchange.ts';
import type { ApiRequest } from './request.ts';

const compress = promisify(gzip);
const GZIP_FROM_BYTES = 1400;

/** A document for `sendDocument`. */
export interface SendableDocument {
  readonly contentType: string;
  /** The time since which the content is the same, if the response names it. */
  readonly modifiedMs?: number;
  /** Upper-case hexadecimal SHA-512 of the content. */
  readonly hash: string;
  readonly sizeBytes: number;
  /** Returns the compressed content, whole or in parts. */
  zipped(): Promise<Buffer> | readonly Buffer[];
  /** Returns the uncompressed content, whole or in parts. */
  plain(): Buffer | AsyncIterable<Buffer>;
}

/** A document whose bytes are in memory. It is immutable. The type of content includes its parameters. */
export class Document implements SendableDocument {
  readonly contentType: string;
  readonly bytes: Buffer;
  readonly modifiedMs?: number;
  #hash: string | undefined;
  #zipped: Promise<Buffer> | undefined;

  constructor(contentType: string, bytes: Buffer, modifiedMs?: number) {
    this.contentType = contentType;
    this.bytes = bytes;
    if (modifiedMs !== undefined) this.modifiedMs = modifiedMs;
  }

  get sizeBytes(): number {
    return this.bytes.length;
  }

  plain(): Buffer {
    return this.bytes;
  }

  get hash(): string {
    this.#hash ??= createHash('sha512').update(this.bytes).digest('hex').toUpperCase();
    return this.#hash;
  }

  zipped(): Promise<Buffer> {
    this.#zipped ??= compress(this.bytes, { level: 6 });
    return this.#zipped;
  }
}

/** Keeps only the compressed runs of its parts. */
class RunDocument implements SendableDocument {
  readonly contentType: string;
  readonly modifiedMs: number;
  readonly #runs: readonly Run[];
  readonly #summary: RunsSummary;

  constructor(contentType: string, modifiedMs: number, runs: readonly Run[], summary: RunsSummary) {
    this.contentType = contentType;
    this.modifiedMs = modifiedMs;
    this.#runs = runs;
    this.#summary = summary;
  }

  get hash(): string {
    return this.#summary.hash;
  }

  get sizeBytes(): number {
    return this.#summary.sizeBytes;
  }

  zipped(): readonly Buffer[] {
    return gzipOf(this.#runs, this.#summary);
  }

  plain(): AsyncIterable<Buffer> {
    return plainBytes(this.#runs);
  }
}

/** Assembles a document in slices, between which the server handles requests. */
export async function documentOfRuns(
  contentType: string,
  runs: readonly Run[],
  clock: Pick<Clock, 'monotonic' | 'now'>,
): Promise<SendableDocument> {
  const slice = new TimeSlice(clock);
  return new RunDocument(contentType, clock.now(), runs, await inSlices(summaryOf(runs, slice), slice));
}

interface SendDocumentOptions {
  /** The request headers on which the response depends, as kube-apiserver names them for the document. */
  readonly vary?: 'Accept' | 'Accept-Encoding, Accept';
  /** States who may keep the document. By default, only the client may keep it, and it asks again each time. */
  readonly caching?: 'public' | 'public, immutable';
  /** The response has an `ETag`, and is a 304 if the client has the content. */
  readonly tagged: boolean;
}

/** The options of a document that caches may keep and that the client requests with its `ETag`. */
export const SHARED: SendDocumentOptions = { vary: 'Accept', caching: 'public', tagged: true };

/**
 * Sends a document, or the part or the status to which the conditions of the request lead. Resolves when the connection has the
 * whole response, or is closed.
 */
export async function sendDocument(
  request: ApiRequest,
  document: SendableDocument,
  options: SendDocumentOptions,
): Promise<void> {
  const headers = request.responseHeaders(document.contentType);
  const { vary, caching } = options;
  if (vary !== undefined) headers['vary'] = vary;
  const etag = options.tagged ? `"${document.hash}"` : undefined;
  if (document.modifiedMs !== undefined) {
    const { modifiedMs, sizeBytes } = document;
    headers['last-modified'] = new Date(modifiedMs).toUTCString();
    if (etag !== undefined) headers['etag'] = etag;
    if (etag !== undefined && caching !== undefined) headers['cache-control'] = caching;
    const selected = selectBytes(request, { etag, modifiedMs, sizeBytes });
    if (selected.kind !== 'whole') return sendSelected(request, document, headers, selected);
    headers['accept-ranges'] = 'bytes';
  } else if (etag !== undefined) {
    headers['etag'] = etag;
    if (caching !== undefined) headers['cache-control'] = caching;
    if (matches(request.header('if-none-match'), document.hash)) {
      delete headers['content-type'];
      request.status = 304;
      request.exchange.send(304, headers, undefined);
      return;
    }
  }
  request.status = 200;
  if (document.sizeBytes >= GZIP_FROM_BYTES && acceptsGzip(request.header('accept-encoding'))) {
    const body = await document.zipped();
    headers['content-encoding'] = 'gzip';
    headers['vary'] = vary === 'Accept' ? 'Accept-Encoding, Accept' : (vary ?? 'Accept-Encoding');
    if (Buffer.isBuffer(body)) {
      request.responseBytes = body.length;
      request.exchange.send(200, headers, body);
      return;
    }
    request.responseBytes = body.reduce((sum, part) => sum + part.length, 0);
    headers['content-length'] = request.responseBytes;
    await sendInOrder(request.exchange, headers, body);
    return;
  }
  request.responseBytes = document.sizeBytes;
  headers['content-length'] = document.sizeBytes;
  const plain = document.plain();
  if (Buffer.isBuffer(plain)) request.exchange.send(200, headers, plain);
  else await sendInOrder(request.exchange, headers, plain);
}

/** Sends one range, or the status for which the client does not get the document: 304, 412 or 416. */
async function sendSelected(
  request: ApiRequest,
  document: SendableDocument,
  documentHeaders: ResponseHeaders,
  selected: Exclude<Selected, { readonly kind: 'whole' }>,
): Promise<void> {
  const { exchange } = request;
  const headers = { ...documentHeaders };
  if (selected.kind === 'range') {
    const { range } = selected;
    request.status = 206;
    request.responseBytes = range.to - range.from;
    headers['accept-ranges'] = 'bytes';
    headers['content-range'] = `bytes ${range.from}-${range.to - 1}/${document.sizeBytes}`;
    headers['content-length'] = request.responseBytes;
    const plain = document.plain();
    if (Buffer.isBuffer(plain)) exchange.send(206, headers, plain.subarray(range.from, range.to));
    else await sendInOrder(exchange, headers, partsInRange(plain, range), 206);
    return;
  }
  if (selected.kind === 'failed') {
    // kube-apiserver sets the content type of a document without a tag only after it has checked the conditions.
    if (headers['etag'] === undefined) delete headers['content-type'];
    request.status = 412;
    exchange.send(412, headers, '');
    return;
  }
  if (selected.kind === 'not-modified') {
    delete headers['content-type'];
    if (headers['etag'] !== undefined) delete headers['last-modified'];
    request.status = 304;
    exchange.send(304, headers, undefined);
    return;
  }
  delete headers['etag'];
  delete headers['last-modified'];
  headers['content-type'] = 'text/plain; charset=utf-8';
  headers['x-content-type-options'] = 'nosniff';
  if (!selected.overlaps) headers['content-range'] = `bytes */${document.sizeBytes}`;
  request.status = 416;
  exchange.send(416, headers, `invalid range${selected.overlaps ? '' : ': failed to overlap'}\n`);
}

/** Sends the parts no faster than the client reads. Stops when the client is disconnected. */
async function sendInOrder(
  exchange: Exchange,
  headers: ResponseHeaders,
  parts: AsyncIterable<Buffer> | Iterable<Buffer>,
  status = 200,
): Promise<void> {
  let wake = (): void => undefined;
  exchange.onDrain(() => wake());
  exchange.onClose(() => wake());
  exchange.start(status, headers);
  for await (const part of parts) {
    if (exchange.closed) return;
    if (exchange.write(part) || exchange.closed) continue;
    const drained = Promise.withResolvers<void>();
    wake = drained.resolve;
    await drained.promise;
  }
  exchange.end();
}

function matches(header: string | undefined, hash: string): boolean {
  if (header === undefined) return false;
  return header.split(',').some((part) => part.trim().replace(/^W\//, '') === `"${hash}"` || part.trim() === '*');
}
