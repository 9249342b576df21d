/**
 * Selects the headers that a forwarded request keeps. Headers of the connection, credentials of the client, and headers by
 * which a front proxy names a user never reach a target.
 */
import type { IncomingMessage } from 'node:http';
import type { Origin } from '../../model/rest.ts';
import type { RequestHeaders, ResponseHeaders } from '../exchange.ts';
import type { ApiRequest } from '../request.ts';

const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** The WebSocket sub-protocol that carries a bearer token for browsers. */
const TOKEN_PROTOCOL = 'base64url.bearer.authorization.k8s.io.';

/** Names and prefixes of headers that are not forwarded, in lower case. */
export interface StrippedHeaders {
  readonly names: ReadonlySet<string>;
  readonly prefixes: readonly string[];
}

/**
 * Returns the headers that are not forwarded: `Host`, `Authorization`, the configured headers of the front proxy, and headers
 * that backends trust by default.
 */
export function strippedHeaders(configured: {
  readonly names: readonly string[];
  readonly prefixes: readonly string[];
}): StrippedHeaders {
  const prefixes = ['impersonate-', 'x-remote-', ...configured.prefixes.map((prefix) => prefix.toLowerCase())];
  return {
    names: new Set(['host', 'authorization', ...configured.names.map((name) => name.toLowerCase())]),
    // An empty prefix would strip every header.
    prefixes: prefixes.filter((prefix) => prefix !== ''),
  };
}

/** Returns pairs of name and value in the order in which they are sent. */
export function forwardedHeaders(request: ApiRequest, stripped: StrippedHeaders): [string, string][] {
  const pairs: [string, string][] = [];
  const { headers, connection } = request.exchange;
  const { remoteAddress } = connection;
  const named = connectionNames(headers);
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(':') || named.has(name) || isStripped(name, stripped)) continue;
    for (const one of Array.isArray(value) ? value : [value]) {
      const forwarded = name === 'sec-websocket-protocol' ? withoutToken(one) : one;
      if (forwarded !== undefined) pairs.push([name, forwarded]);
    }
  }
  const earlier = headers['x-forwarded-for'];
  const chain = earlier === undefined ? remoteAddress : `${String(earlier)}, ${remoteAddress}`;
  return [...pairs.filter(([name]) => name !== 'x-forwarded-for'), ['x-forwarded-for', chain]];
}

function isStripped(name: string, { names, prefixes }: StrippedHeaders): boolean {
  return HOP_BY_HOP.has(name) || names.has(name) || prefixes.some((prefix) => name.startsWith(prefix));
}

/** Returns the offered sub-protocols without the token, or `undefined` if the client offered nothing else. */
function withoutToken(protocols: string): string | undefined {
  if (!protocols.includes(TOKEN_PROTOCOL)) return protocols;
  const otherProtocols = protocols
    .split(',')
    .map((protocol) => protocol.trim())
    .filter((protocol) => protocol !== '' && !protocol.startsWith(TOKEN_PROTOCOL));
  return otherProtocols.length === 0 ? undefined : otherProtocols.join(', ');
}

/** Returns the headers that the sender declared as headers of its connection. */
function connectionNames(headers: RequestHeaders): ReadonlySet<string> {
  const value = headers['connection'];
  return new Set(typeof value === 'string' ? value.split(',').map((name) => name.trim().toLowerCase()) : []);
}

/** The statuses whose responses have no body. If they had a `Content-Length`, HTTP/2 clients would wait for a body. */
const BODYLESS: ReadonlySet<number | undefined> = new Set([204, 205]);

/**
 * Returns the headers of a target's response that the client gets, without those of the connection to the target. `audit-id` is
 * that of this server.
 */
export function answerHeaders(request: ApiRequest, message: IncomingMessage): ResponseHeaders {
  const headers: ResponseHeaders = {};
  const named = connectionNames(message.headers);
  for (const [name, value] of Object.entries(message.headers)) {
    if (value !== undefined && !HOP_BY_HOP.has(name) && !named.has(name)) headers[name] = value;
  }
  if (BODYLESS.has(message.statusCode)) delete headers['content-length'];
  return { ...headers, 'audit-id': request.auditId };
}

/** Returns the value of the `Host` header, without the default port of the scheme. */
export function hostOf({ secure, host, port }: Origin): string {
  const name = host.includes(':') ? `[${host}]` : host;
  return port === (secure ? 443 : 80) ? name : `${name}:${port}`;
}
