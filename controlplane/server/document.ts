/**
 * Documents that are the same for everybody until the set of resources changes (discovery, OpenAPI): bytes, their hash and
 * their compressed form are made once, on first use, and answered with `ETag`.
 */
import { createHash } from 'node:crypto';
import { gzip } from 'node:zlib';
import { promisify } from 'node:util';
import { acceptsGzip } from './media-type.ts';
import type { ApiRequest } from './request.ts';

const compress = promisify(gzip);
const GZIP_FROM_BYTES = 1400;

export class Document {
  readonly contentType: string;
  readonly bytes: Buffer;
  #etag: string | undefined;
  #zipped: Promise<Buffer> | undefined;

  constructor(contentType: string, bytes: Buffer) {
    this.contentType = contentType;
    this.bytes = bytes;
  }

  /** Upper-case hexadecimal SHA-512, as the reference's. */
  get hash(): string {
    this.#etag ??= createHash('sha512').update(this.bytes).digest('hex').toUpperCase();
    return this.#etag;
  }

  zipped(): Promise<Buffer> {
    this.#zipped ??= compress(this.bytes, { level: 6 });
    return this.#zipped;
  }
}

export interface SendDocumentOptions {
  /** Another answer's `Accept` may not be answered from a cache of this one. */
  readonly negotiated: boolean;
  /** The address holds the hash: it never changes. */
  readonly immutable?: boolean;
  /** Answered with `ETag`, and 304 where the client has it. */
  readonly tagged: boolean;
}

export async function sendDocument(
  request: ApiRequest,
  document: Document,
  options: SendDocumentOptions,
): Promise<void> {
  const headers = request.responseHeaders(document.contentType);
  const vary = options.negotiated ? ['Accept-Encoding', 'Accept'] : ['Accept-Encoding'];
  headers['vary'] = vary.join(', ');
  if (options.tagged) {
    headers['etag'] = `"${document.hash}"`;
    headers['cache-control'] = options.immutable === true ? 'public, immutable' : 'public';
    if (matches(request.header('if-none-match'), document.hash)) {
      delete headers['content-type'];
      request.status = 304;
      request.exchange.send(304, headers, undefined);
      return;
    }
  }
  let body = document.bytes;
  if (body.length >= GZIP_FROM_BYTES && acceptsGzip(request.header('accept-encoding'))) {
    body = await document.zipped();
    headers['content-encoding'] = 'gzip';
  }
  request.status = 200;
  request.responseBytes = body.length;
  request.exchange.send(200, headers, body);
}

function matches(header: string | undefined, hash: string): boolean {
  if (header === undefined) return false;
  return header.split(',').some((part) => part.trim().replace(/^W\//, '') === `"${hash}"` || part.trim() === '*');
}
