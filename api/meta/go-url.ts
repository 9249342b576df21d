/**
 * Parses URLs as Go's `net/url`, which differs from the URLs of browsers: it keeps default ports and the case of hosts, takes
 * rootless paths as opaque, and refuses what browsers repair.
 */
import { quote } from './field-error.ts';

/** A parsed URL. The scheme is in lower case. */
export interface GoUrl {
  readonly scheme: string;
  /** The host with its port, without user and password. */
  readonly host: string;
  /** The path as it is sent, and empty for opaque URLs. */
  readonly escapedPath: string;
  readonly rawQuery: string;
}

/** A text that is no URL. The message is Go's. */
export class GoUrlError extends Error {
  override readonly name = 'GoUrlError';
}

/** Parses a URL, or a path, without its fragment. Throws `GoUrlError`. */
export function parseGoUrl(text: string): GoUrl {
  return parse(text, text.split('#', 1)[0] ?? '', false);
}

/** Checks that a text can be the target of a request: an absolute URL, a path or `*`. Throws `GoUrlError`. */
export function checkRequestUri(text: string): void {
  parse(text, text, true);
}

/** Whether Go's `url.ParseRequestURI` accepts the text. */
export function isRequestUri(text: string): boolean {
  try {
    checkRequestUri(text);
    return true;
  } catch (error) {
    if (error instanceof GoUrlError) return false;
    throw error;
  }
}

function parse(text: string, url: string, isRequest: boolean): GoUrl {
  const fail = (why: string): never => {
    throw new GoUrlError(`parse ${quote(text)}: ${why}`);
  };
  if (/[\p{Cc}]/u.test(url.replaceAll(/[\u0080-\u009f]/g, ''))) fail('net/url: invalid control character in URL');
  if (url === '' && isRequest) fail('empty url');
  if (url === '*') return { scheme: '', host: '', escapedPath: '*', rawQuery: '' };
  if (url.startsWith(':')) fail('missing protocol scheme');
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(url)?.[1];
  const [path = '', ...queries] = (scheme === undefined ? url : url.slice(scheme.length + 1)).split('?');
  const found = { scheme: (scheme ?? '').toLowerCase(), rawQuery: queries.join('?') };
  if (!path.startsWith('/')) {
    if (scheme !== undefined) return { ...found, host: '', escapedPath: '' };
    if (isRequest) fail('invalid URI for request');
    if ((path.split('/', 1)[0] ?? '').includes(':')) fail('first path segment in URL cannot contain colon');
  }
  const hasAuthority = path.startsWith('//') && (scheme !== undefined || (!isRequest && !path.startsWith('///')));
  if (!hasAuthority) return { ...found, host: '', escapedPath: escapedPath(path, fail) };
  const [, authority = '', pathText = ''] = /^\/\/([^/]*)(.*)$/s.exec(path) ?? [];
  const at = authority.lastIndexOf('@');
  if (at >= 0 && !/^[A-Za-z0-9\-._:~!$&'()*+,;=%@]*$/.test(authority.slice(0, at))) fail('net/url: invalid userinfo');
  return { ...found, host: hostOf(authority.slice(at + 1), fail), escapedPath: escapedPath(pathText, fail) };
}

type Fail = (why: string) => never;

function hostOf(host: string, fail: Fail): string {
  const end = host.startsWith('[') ? host.lastIndexOf(']') : -1;
  if (host.startsWith('[') && end < 0) return fail("missing ']' in host");
  const colon = end >= 0 ? end + 1 : host.indexOf(':');
  const port = colon < 0 ? '' : host.slice(colon);
  if (!/^(?::\d*)?$/.test(port)) return fail(`invalid port ${quote(port)} after host`);
  const wrong = /[^A-Za-z0-9\-._~!$&'()*+,;=:[\]<>"%\u0080-\u{10ffff}]/u.exec(host);
  if (wrong !== null) return fail(`invalid character ${quote(wrong[0])} in host name`);
  return unescaped(host, fail);
}

function unescaped(text: string, fail: Fail): string {
  const wrong = /%(?![0-9A-Fa-f]{2}).{0,2}/s.exec(text);
  if (wrong !== null) fail(`invalid URL escape ${quote(wrong[0])}`);
  return text.replaceAll(/(?:%[0-9A-Fa-f]{2})+/g, (escapes) =>
    Buffer.from(escapes.replaceAll('%', ''), 'hex').toString(),
  );
}

/** Returns the path with everything escaped that must be. Fails for an invalid escape. */
function escapedPath(path: string, fail: Fail): string {
  const plain = unescaped(path, fail);
  if (/^[A-Za-z0-9\-._~!$&'()*+,;=:@[\]%/]*$/.test(path)) return path;
  return encodeURI(plain).replaceAll(/[!'()*#?]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Returns the values of each name. What is not escaped in a valid way, or has a semicolon, is skipped. */
export function queryOf({ rawQuery }: GoUrl): Map<string, string[]> {
  const values = new Map<string, string[]>();
  for (const part of rawQuery.split('&')) {
    if (part === '' || part.includes(';')) continue;
    const at = part.indexOf('=');
    const [name, value] = (at < 0 ? [part, ''] : [part.slice(0, at), part.slice(at + 1)]).map(decoded);
    if (name === undefined || value === undefined) continue;
    const nameValues = values.get(name);
    if (nameValues === undefined) values.set(name, [value]);
    else nameValues.push(value);
  }
  return values;
}

function decoded(text: string): string | undefined {
  if (/%(?![0-9A-Fa-f]{2})/.test(text)) return undefined;
  return unescaped(text.replaceAll('+', ' '), () => {
    throw new Error('bug: an escape was checked before');
  });
}
