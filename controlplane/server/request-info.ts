/**
 * What a request asks for, read from its method, path and query: the same reading serves authorization and routing, so that
 * no spelling of a path can be authorized as one resource and served as another.
 *
 * The path is percent-decoded once and split at every slash afterwards; nothing is cleaned (`..` and empty segments stay
 * what they are and lead nowhere).
 */
import { newBadRequest } from '../../api/meta/status-error.ts';

export interface RequestInfo {
  readonly isResource: boolean;
  /** `get`, `list`, `watch`, …; the lower-case method for other paths. */
  readonly verb: string;
  /** Decoded, without the query. */
  readonly path: string;
  readonly group: string;
  readonly version: string;
  readonly namespace: string;
  readonly resource: string;
  readonly subresource: string;
  /** Of the path, or of `metadata.name=` in the field selector of a list: what authorization sees. */
  readonly name: string;
  /** Segments from the resource on. */
  readonly parts: readonly string[];
  /** `/api/v1/watch/…`: the older form of watching. */
  readonly watchPrefix: boolean;
}

const NO_PARTS: readonly string[] = [];
const NAMESPACE_SUBRESOURCES: ReadonlySet<string> = new Set(['status', 'finalize']);
const METHOD_VERBS: ReadonlyMap<string, string> = new Map([
  ['POST', 'create'],
  ['GET', 'get'],
  ['HEAD', 'get'],
  ['PUT', 'update'],
  ['PATCH', 'patch'],
  ['DELETE', 'delete'],
]);

/** Throws 400 where the path is no valid percent-encoding, or ends after `/watch` or `/proxy`. */
export function parseRequestInfo(method: string, rawPath: string, query: () => URLSearchParams): RequestInfo {
  const path = decodePath(rawPath);
  const segments = splitPath(path);
  const prefix = segments[0];
  const grouped = prefix === 'apis';
  if ((prefix !== 'api' && !grouped) || segments.length < (grouped ? 4 : 3)) return nonResource(method, path);

  let at = 1;
  const group = grouped ? (segments[at++] ?? '') : '';
  const version = segments[at++] ?? '';
  let verb = METHOD_VERBS.get(method) ?? '';
  let watchPrefix = false;
  const special = segments[at];
  if (special === 'watch' || special === 'proxy') {
    if (segments.length - at < 2) throw newBadRequest(`unable to determine kind and namespace from url, ${rawPath}`);
    verb = special;
    watchPrefix = special === 'watch';
    at += 1;
  }
  let namespace = '';
  if (segments[at] === 'namespaces' && segments.length > at + 1) {
    namespace = segments[at + 1] ?? '';
    const next = segments[at + 2];
    if (next !== undefined && !NAMESPACE_SUBRESOURCES.has(next)) at += 2;
  }
  const parts = at === 0 ? segments : segments.slice(at);
  const subresource = parts.length >= 3 && special !== 'watch' && special !== 'proxy' ? (parts[2] ?? '') : '';
  const pathName = parts[1] ?? '';
  let name = pathName;
  if (pathName === '' && verb === 'get') {
    const params = query();
    verb = wantsWatch(params) ? 'watch' : 'list';
  }
  if (pathName === '' && verb === 'delete') verb = 'deletecollection';
  // A collection's deletion is about all of it, whatever its selector says.
  if (pathName === '' && (verb === 'list' || verb === 'watch')) {
    name = selectedName(query().get('fieldSelector') ?? '');
  }
  return {
    isResource: true,
    verb,
    path,
    group,
    version,
    namespace,
    resource: parts[0] ?? '',
    subresource,
    name,
    parts,
    watchPrefix,
  };
}

function nonResource(method: string, path: string): RequestInfo {
  return {
    isResource: false,
    verb: method.toLowerCase(),
    path,
    group: '',
    version: '',
    namespace: '',
    resource: '',
    subresource: '',
    name: '',
    parts: NO_PARTS,
    watchPrefix: false,
  };
}

function decodePath(rawPath: string): string {
  if (!rawPath.includes('%')) return rawPath;
  try {
    return decodeURIComponent(rawPath);
  } catch (cause) {
    if (cause instanceof URIError) throw newBadRequest(`invalid URL escape in ${JSON.stringify(rawPath)}`);
    throw cause;
  }
}

/** Slashes at both ends do not count. */
function splitPath(path: string): string[] {
  let start = 0;
  let end = path.length;
  while (start < end && path.charCodeAt(start) === 47) start += 1;
  while (end > start && path.charCodeAt(end - 1) === 47) end -= 1;
  return start === end ? [] : path.slice(start, end).split('/');
}

/** As query parameters become booleans: only `false` and `0` are false. */
export function queryBoolean(value: string): boolean {
  return value !== '0' && value.toLowerCase() !== 'false';
}

function wantsWatch(query: URLSearchParams): boolean {
  const value = query.get('watch');
  return value !== null && queryBoolean(value);
}

/** The name that a field selector pins, where it is one that could stand in a path. */
function selectedName(selector: string): string {
  if (selector === '') return '';
  for (const term of selector.split(',')) {
    const match = /^metadata\.name==?(.*)$/.exec(term);
    const name = match?.[1] ?? '';
    if (name !== '' && name !== '.' && name !== '..' && !/[/%]/.test(name)) return name;
  }
  return '';
}
