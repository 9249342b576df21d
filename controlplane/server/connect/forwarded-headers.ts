/**
 * The headers that a forwarded request keeps. Headers of the connection, credentials of the caller, and headers by which a
 * front proxy names a user never reach a target: one list serves proxies, tunnels and aggregation.
 */
import type { IncomingMessage } from 'node:http';
import type { Origin } from '../../model/rest.ts';
import type { RequestHeaders, ResponseHeaders } from '../exchange.ts';
import type { ApiRequest } from '../request.ts';

const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
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

/** Names and prefixes of headers that name a user, in lower case. */
export interface StrippedHeaders {
  readonly names: ReadonlySet<string>;
  readonly prefixes: readonly string[];
}

/** The names that a front proxy is configured with, beside those that backends believe by default. */
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

/** Pairs of name and value, in the order in which they are sent. */
export function forwardedHeaders(request: ApiRequest, stripped: StrippedHeaders): [string, string][] {
  const pairs: [string, string][] = [];
  const { headers, remoteAddress } = request.exchange;
  const named = connectionNames(headers);
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(':') || named.has(name) || isStripped(name, stripped)) continue;
    for (const one of Array.isArray(value) ? value : [value]) {
      const kept = name === 'sec-websocket-protocol' ? withoutToken(one) : one;
      if (kept !== undefined) pairs.push([name, kept]);
    }
  }
  const earlier = headers['x-forwarded-for'];
  const chain = earlier === undefined ? remoteAddress : `${String(earlier)}, ${remoteAddress}`;
  return [...pairs.filter(([name]) => name !== 'x-forwarded-for'), ['x-forwarded-for', chain]];
}

function isStripped(name: string, { names, prefixes }: StrippedHeaders): boolean {
  return HOP_BY_HOP.has(name) || names.has(name) || prefixes.some((prefix) => name.startsWith(prefix));
}

/** `undefined` where nothing but the token was offered. */
function withoutToken(protocols: string): string | undefined {
  if (!protocols.includes(TOKEN_PROTOCOL)) return protocols;
  const kept = protocols
    .split(',')
    .map((protocol) => protocol.trim())
    .filter((protocol) => protocol !== '' && !protocol.startsWith(TOKEN_PROTOCOL));
  return kept.length === 0 ? undefined : kept.join(', ');
}

/** Headers that the sender declared to be of its connection alone. */
function connectionNames(headers: RequestHeaders): ReadonlySet<string> {
  const value = headers['connection'];
  return new Set(typeof value === 'string' ? value.split(',').map((name) => name.trim().toLowerCase()) : []);
}

/** The headers of a target's answer that its client gets. */
export function answerHeaders(request: ApiRequest, message: IncomingMessage): ResponseHeaders {
  const headers: ResponseHeaders = { 'audit-id': request.auditId };
  for (const [name, value] of Object.entries(message.headers)) {
    if (value !== undefined && !HOP_BY_HOP.has(name)) headers[name] = value;
  }
  return headers;
}

/** The value of the `Host` header: the port is left out where it is the scheme's own. */
export function hostOf({ secure, host, port }: Origin): string {
  const name = host.includes(':') ? `[${host}]` : host;
  return port === (secure ? 443 : 80) ? name : `${name}:${port}`;
}
