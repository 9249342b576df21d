/**
 * Parses the path of an HTTP request once, so that no spelling of a path can be authorized as one thing and served or forwarded
 * as another.
 *
 * The path is percent-decoded once and then split at its slashes, as kube-apiserver does. Slashes at both ends do not count.
 * The path is not normalized otherwise: empty segments and dot segments remain and match no resource.
 */
import { quoteText } from '../meta/quote.ts';

/** A parsed path. */
export interface RequestPath {
  /** The path as the client sent it: percent-encoded and without the query. */
  readonly raw: string;
  /** The percent-decoded path. */
  readonly decoded: string;
  /** The decoded path without leading and trailing slashes, split at slashes. */
  readonly segments: readonly string[];
}

/** The error of an invalid path. Callers use its message as that of a 400. */
export class RequestPathError extends Error {
  override readonly name = 'RequestPathError';
}

const SLASH = 0x2f;
const PERCENT = 0x25;
const BACKSLASH = 0x5c;

/** The number of remembered paths, because clients request the same paths again. The oldest are dropped first. */
const MAX_REMEMBERED = 512;
const MAX_REMEMBERED_LENGTH = 256;
const remembered = new Map<string, RequestPath>();

/** Parses the path of a request, without its query. Throws `RequestPathError` for an invalid escape and for NUL characters. */
export function parseRequestPath(raw: string): RequestPath {
  const cached = remembered.get(raw);
  if (cached !== undefined) return cached;
  if (raw.length > MAX_REMEMBERED_LENGTH) return parse(raw);
  // A part of a text keeps the whole text in memory, which may have a long query.
  const copy = Buffer.from(raw).toString();
  if (copy !== raw) return parse(raw);
  const path = parse(copy);
  const oldest = remembered.size >= MAX_REMEMBERED ? remembered.keys().next().value : undefined;
  if (oldest !== undefined) remembered.delete(oldest);
  remembered.set(copy, path);
  return path;
}

function parse(raw: string): RequestPath {
  const decoded = decode(raw);
  return { raw, decoded, segments: split(decoded) };
}

/** Returns the path and the query of a request target, which may be an absolute URL (RFC 9112, section 3.2.2). */
export function splitTarget(target: string): { readonly path: string; readonly query: string } {
  const from = target.startsWith('/') ? 0 : absoluteStart(target);
  const mark = target.indexOf('?', from);
  return mark < 0
    ? { path: target.slice(from), query: '' }
    : { path: target.slice(from, mark), query: target.slice(mark + 1) };
}

function absoluteStart(target: string): number {
  const [authority = ''] = /^https?:\/\/[^/?]*(?=\/)/i.exec(target) ?? [];
  return authority.length;
}

/**
 * Returns the raw path after the first `count` segments, with a slash before it and otherwise byte for byte. It is empty if no
 * slash follows these segments.
 */
export function rawAfter({ raw }: RequestPath, count: number): string {
  let at = 0;
  while (slashLength(raw, at) > 0) at += slashLength(raw, at);
  for (let separators = 0; at < raw.length;) {
    const length = slashLength(raw, at);
    if (length > 0) {
      separators += 1;
      if (separators === count) return `/${raw.slice(at + length)}`;
    }
    at += length > 0 ? length : 1;
  }
  return '';
}

/**
 * Returns why a path must not be forwarded to an API server that authorizes it again, or an empty text. In addition to
 * `forwardingFault`, it refuses paths without a leading slash, empty segments and encoded slashes, because they shift the
 * segments of a resource. Throws `RequestPathError` as `parseRequestPath` does.
 */
export function apiForwardingFault({ raw, segments }: RequestPath, rawQuery = ''): string {
  if (!raw.startsWith('/') || raw.startsWith('//') || segments.includes('')) return 'it contains an empty segment';
  if (/%2f/i.test(raw)) return 'it contains an encoded slash';
  return forwardingFault(raw, rawQuery);
}

/** Returns the length of the plain or encoded slash at an offset, or 0 if there is none. */
function slashLength(raw: string, at: number): 0 | 1 | 3 {
  const code = raw.charCodeAt(at);
  if (code === SLASH) return 1;
  if (code !== PERCENT || raw.charCodeAt(at + 1) !== 0x32) return 0;
  return (raw.charCodeAt(at + 2) | 0x20) === 0x66 ? 3 : 0;
}

/**
 * Returns why a path and its query must not be forwarded to another server, or an empty text. Servers interpret dot segments,
 * backslashes and control characters differently, and some end at a fragment, which no target of a request has (RFC 9112,
 * section 3.2). Throws `RequestPathError` as `parseRequestPath` does.
 */
export function forwardingFault(rawPath: string, rawQuery = ''): string {
  const decoded = decode(rawPath);
  for (let at = 0; at < decoded.length; at += 1) {
    const code = decoded.charCodeAt(at);
    if (code < 0x20 || code === 0x7f || code === BACKSLASH) return 'it contains a backslash or a control character';
  }
  if (rawPath.includes(' ')) return 'it contains a space';
  if (rawPath.includes('#') || rawQuery.includes('#')) return 'it contains a fragment';
  return decoded.split('/').some((segment) => segment === '.' || segment === '..') ? 'it contains a dot segment' : '';
}

function decode(raw: string): string {
  if (!raw.includes('%')) return withoutNul(raw, raw);
  try {
    return withoutNul(raw, decodeURIComponent(raw));
  } catch (cause) {
    if (cause instanceof URIError) throw new RequestPathError(`invalid URL escape in ${quoteText(raw)}`, { cause });
    throw cause;
  }
}

function withoutNul(raw: string, decoded: string): string {
  if (decoded.includes('\0')) throw new RequestPathError(`invalid NUL character in ${quoteText(raw)}`);
  return decoded;
}

function split(path: string): string[] {
  let start = 0;
  let end = path.length;
  while (start < end && path.charCodeAt(start) === SLASH) start += 1;
  while (end > start && path.charCodeAt(end - 1) === SLASH) end -= 1;
  return start === end ? [] : path.slice(start, end).split('/');
}
