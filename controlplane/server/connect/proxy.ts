/**
 * Serves `proxy`: forwards a plain request to a pod, a service or a node, and returns the response. Redirects are not followed.
 * A redirect to the target itself is rewritten to the path of the proxy, and so are the links of pages.
 */
import type { IncomingMessage } from 'node:http';
import { pipeline, type Readable, Transform } from 'node:stream';
import { createDeflateRaw, createGunzip, createGzip, createInflateRaw } from 'node:zlib';
import type { ApiRequest } from '../request.ts';
import { answerHeaders, forwardedHeaders, hostOf, type StrippedHeaders } from './forwarded-headers.ts';
import { HtmlLinks, type ProxiedPlace, throughProxy } from './html-links.ts';
import { passBody, requestTarget, type OpenTarget } from './passed-response.ts';
import { TEXT_TYPE } from '../../../api/http/media-types.ts';

/** The headers that state where a request came from: a target must not read those of the client. */
const OWN_HEADERS: ReadonlySet<string> = new Set(['x-forwarded-uri', 'x-forwarded-proto', 'x-forwarded-host']);

/**
 * Forwards a request to the target and the response to the client. Resolves when the response has ended. A GET or HEAD of the
 * root of the target without a slash at its end is redirected (301) to the path with the slash.
 */
export async function proxyRequest(request: ApiRequest, target: OpenTarget, stripped: StrippedHeaders): Promise<void> {
  const { exchange } = request;
  const bare = request.info.parts.length === 3 && !request.rawPath.endsWith('/');
  if (bare && (exchange.method === 'GET' || exchange.method === 'HEAD')) {
    redirectToSlash(request);
    return;
  }
  const headers = forwardedHeaders(request, stripped).filter(([name]) => !OWN_HEADERS.has(name));
  headers.push(['host', hostOf(target.origin)], ['x-forwarded-uri', request.rawPath], ['x-forwarded-proto', 'https']);
  const host = request.header('host') ?? request.header(':authority');
  if (host !== undefined) headers.push(['x-forwarded-host', host]);
  const message = await requestTarget({
    ...target,
    method: exchange.method,
    headers,
    body: exchange.method === 'GET' || exchange.method === 'HEAD' ? undefined : exchange.bodyStream(),
    signal: request.signal,
  });
  request.status = message.statusCode ?? 502;
  const place: ProxiedPlace = {
    prefix: proxyPath(request),
    targetHost: hostOf(target.origin),
    requestHost: host ?? '',
  };
  const answer = answerHeaders(request, message);
  if (message.headers.location !== undefined) answer['location'] = throughProxy(message.headers.location, place);
  const page = message.headers.location === undefined ? linkedPage(message, place) : undefined;
  if (page !== undefined) delete answer['content-length'];
  exchange.start(request.status, answer);
  await passBody(page ?? message, exchange);
}

/** The supported content encodings of pages. Pages with another encoding pass unchanged. */
const ENCODINGS: ReadonlyMap<string, () => [first: Transform, last: Transform] | []> = new Map(
  Object.entries({
    '': () => [],
    gzip: () => [createGunzip(), createGzip()],
    deflate: () => [createInflateRaw(), createDeflateRaw()],
  }),
);

/** Returns the page with rewritten links, or `undefined` if the response is not a page that can be read. */
function linkedPage(message: IncomingMessage, place: ProxiedPlace): Readable | undefined {
  if (message.headers['content-type']?.split(';')[0]?.trim() !== 'text/html') return undefined;
  const coding = ENCODINGS.get(message.headers['content-encoding'] ?? '')?.();
  if (coding === undefined) return undefined;
  const links = new HtmlLinks((link) => throughProxy(link, place));
  // Latin-1 preserves each byte, whatever the encoding of the page.
  const rewriting = new Transform({
    transform: (chunk: Buffer, _encoding, done) =>
      done(null, Buffer.from(links.push(chunk.toString('latin1')), 'latin1')),
    flush: (done) => done(null, Buffer.from(links.end(), 'latin1')),
  });
  const [first, last] = coding;
  // The client detects by the broken connection that the page is incomplete.
  const done = (): void => undefined;
  if (first === undefined || last === undefined) return pipeline(message, rewriting, done);
  return pipeline(message, first, rewriting, last, done);
}

function redirectToSlash(request: ApiRequest): void {
  const headers = request.responseHeaders(TEXT_TYPE);
  headers['location'] = `${request.rawPath}/${request.rawQuery === '' ? '' : `?${request.rawQuery}`}`;
  request.status = 301;
  request.exchange.send(301, headers, undefined);
}

/** Returns the path up to the root of the target. */
function proxyPath(request: ApiRequest): string {
  const { path, parts } = request.info;
  const subpath = parts.slice(3).join('/');
  return subpath === '' ? path.replace(/\/$/, '') : path.slice(0, path.lastIndexOf(`/${subpath}`));
}
