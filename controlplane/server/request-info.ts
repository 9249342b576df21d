/** Determines the resource and the verb of a request from its method, its parsed path and its query. */
import { parseFieldSelector } from '../../api/meta/field-selector.ts';
import type { RequestPath } from '../../api/http/request-path.ts';
import { isStatusError } from '../../api/meta/status-error.ts';

/** What a request is about. For paths of no resource, the fields from `group` on are empty. */
export interface RequestInfo {
  readonly isResource: boolean;
  /** `get`, `list`, `watch` and others; empty for an unknown method. For paths of no resource, the lower-case method. */
  readonly verb: string;
  /** The percent-decoded path without the query. */
  readonly path: string;
  readonly group: string;
  readonly version: string;
  readonly namespace: string;
  readonly resource: string;
  readonly subresource: string;
  /** The name in the path, or that of `metadata.name=` in the field selector of a list or watch. */
  readonly name: string;
  /** The segments from the resource on. */
  readonly parts: readonly string[];
  /** Whether the path is `/api/v1/watch/…`, the older form of a watch. */
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

/** The error for a path of the API that names no resource. */
export class RequestInfoError extends Error {
  override readonly name = 'RequestInfoError';
}

/** The infos of paths by method, which do not depend on the query. */
const remembered = new WeakMap<RequestPath, Map<string, RequestInfo>>();

/**
 * Returns the resource and the verb of a request. Throws a `RequestInfoError` if the path ends after `/watch`. `query` is
 * called only if the verb or the name depends on it.
 */
export function parseRequestInfo(method: string, from: RequestPath, query: () => URLSearchParams): RequestInfo {
  return remembered.get(from)?.get(method) ?? parseOnce(method, from, query);
}

/** Parses the info and remembers it if it does not depend on the query. */
function parseOnce(method: string, from: RequestPath, query: () => URLSearchParams): RequestInfo {
  let usesQuery = false;
  const info = infoOf(method, from, () => {
    usesQuery = true;
    return query();
  });
  if (usesQuery || !(METHOD_VERBS.has(method) && info.isResource)) return info;
  let byMethod = remembered.get(from);
  if (byMethod === undefined) remembered.set(from, (byMethod = new Map()));
  byMethod.set(method, info);
  return info;
}

function infoOf(method: string, from: RequestPath, query: () => URLSearchParams): RequestInfo {
  const { decoded: path, segments } = from;
  const prefix = segments[0];
  const grouped = prefix === 'apis';
  if ((prefix !== 'api' && !grouped) || segments.length < (grouped ? 4 : 3)) return nonResource(method, path);

  let at = 1;
  const group = grouped ? (segments[at++] ?? '') : '';
  const version = segments[at++] ?? '';
  let verb = METHOD_VERBS.get(method) ?? '';
  let watchPrefix = false;
  if (segments[at] === 'watch') {
    if (segments.length - at < 2) throw new RequestInfoError('unable to determine kind and namespace from url');
    verb = 'watch';
    watchPrefix = true;
    at += 1;
  }
  let namespace = '';
  if (segments[at] === 'namespaces' && segments.length > at + 1) {
    namespace = segments[at + 1] ?? '';
    const next = segments[at + 2];
    if (next !== undefined && !NAMESPACE_SUBRESOURCES.has(next)) at += 2;
  }
  const parts = at === 0 ? segments : segments.slice(at);
  const subresource = parts.length >= 3 && !watchPrefix ? (parts[2] ?? '') : '';
  const pathName = parts[1] ?? '';
  let name = pathName;
  if (pathName === '' && verb === 'get') {
    const params = query();
    verb = wantsWatch(params) ? 'watch' : 'list';
  }
  if (pathName === '' && verb === 'delete') verb = 'deletecollection';
  // The deletion of a collection concerns the whole collection, whatever its selector.
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

/** Returns the info of a request for a path that names no resource. */
export function nonResource(method: string, path: string): RequestInfo {
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

/** Converts a query parameter to a boolean: only `0` and `false`, in letters of any case, are false. */
export function queryBoolean(value: string): boolean {
  return value !== '0' && value.toLowerCase() !== 'false';
}

function wantsWatch(query: URLSearchParams): boolean {
  const value = query.get('watch');
  return value !== null && queryBoolean(value);
}

/**
 * Returns the name that a field selector requires if it could be a segment of a path. It is empty otherwise, and for an invalid
 * selector.
 */
function selectedName(selector: string): string {
  if (!selector.includes('metadata.name')) return '';
  let name: string;
  try {
    name = parseFieldSelector(selector).exactValue('metadata.name') ?? '';
  } catch (error) {
    // The verb refuses the selector later. Authorization checks a request for all names.
    if (isStatusError(error)) return '';
    throw error;
  }
  return name === '.' || name === '..' || /[/%]/.test(name) ? '' : name;
}
