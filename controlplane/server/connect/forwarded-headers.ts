/** Which headers go on to a target: not those of the connection, and never the credentials of the caller. */
import type { RequestHeaders } from '../exchange.ts';
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

/** Pairs as they are written. */
export function forwardedHeaders(request: ApiRequest): [string, string][] {
  const pairs: [string, string][] = [];
  const { headers, remoteAddress } = request.exchange;
  const named = connectionNames(headers);
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(':') || isKept(name, named)) continue;
    for (const one of Array.isArray(value) ? value : [value]) pairs.push([name, one]);
  }
  const earlier = headers['x-forwarded-for'];
  const chain = earlier === undefined ? remoteAddress : `${String(earlier)}, ${remoteAddress}`;
  return [...pairs.filter(([name]) => name !== 'x-forwarded-for'), ['x-forwarded-for', chain]];
}

function isKept(name: string, named: ReadonlySet<string>): boolean {
  return (
    HOP_BY_HOP.has(name) ||
    named.has(name) ||
    name === 'host' ||
    name === 'authorization' ||
    name.startsWith('impersonate-')
  );
}

/** Headers that the sender declared to be of its connection alone. */
function connectionNames(headers: RequestHeaders): ReadonlySet<string> {
  const value = headers['connection'];
  return new Set(typeof value === 'string' ? value.split(',').map((name) => name.trim().toLowerCase()) : []);
}

export function isHopByHop(name: string): boolean {
  return HOP_BY_HOP.has(name);
}
