/**
 * Implements gets, lists and watches of the generic store: the state that a resourceVersion requests, pages, and the errors for
 * compacted and future states.
 */
import { quoteText } from '../../api/meta/quote.ts';
import type { FieldSelector } from '../../api/meta/field-selector.ts';
import { pathSegmentErrors } from '../../api/meta/names.ts';
import { ownMember } from '../../api/meta/own-member.ts';
import {
  newBadRequest,
  newErrorWithoutReason,
  newExpired,
  newStatusError,
  type StatusError,
} from '../../api/meta/status-error.ts';
import { isStorageError } from '../storage/storage.ts';
import { selectionOf, type Selection } from '../storage/selection.ts';
import type { CacheList } from '../storage/cache-list.ts';
import type { CacheWatchHandle } from '../storage/cache-watch.ts';
import type { CacheEntry } from '../storage/cache-entry.ts';
import { decodeContinue, encodeContinue, expiredContinue, type ContinueToken } from './continue-token.ts';
import type { GetOptions, ListOptions, ListResult, RequestContext, WatchOptions, WatchSink } from '../model/rest.ts';
import { catchUp, notFoundIn, type StoredResource } from './store.ts';
import { UINT64_MAX } from '../../api/meta/integers.ts';

/**
 * Returns an object as it is at a resource version or later; an empty one or `0` takes what the cache has. Waits until the
 * cache has the version. Throws, or rejects with, a 404, a 400 for a name that no object can have, a 500 for a text that is no
 * version, and a 504 if the wait takes too long.
 */
export function getEntry(
  store: StoredResource,
  context: RequestContext,
  target: { readonly namespace: string; readonly name: string },
  options: GetOptions,
): Promise<CacheEntry> | CacheEntry {
  const text = options.resourceVersion;
  if (text === '' || text === '0') return currentEntry(store, target.namespace, target.name);
  if (!isVersion(text)) throw newErrorWithoutReason(`resourceVersion: ${notAVersion(text)}`);
  const revision = Number(text);
  if (revision <= store.cache.revision()) return currentEntry(store, target.namespace, target.name);
  return waitFor(store, revision, context.signal).then(() => currentEntry(store, target.namespace, target.name));
}

/** Returns the object that the cache has now. Throws 404, or 400 for a name that no object can have. */
export function currentEntry(store: StoredResource, namespace: string, name: string): CacheEntry {
  const entry = store.cache.get(namespace, name);
  if (entry === undefined) throw missing(store, name);
  return entry;
}

/** Returns the error for an object that does not exist: a 404, or a 400 for a name that no object can have. */
export function missing(store: StoredResource, name: string): StatusError {
  return nameFault(name) ?? notFoundIn(store, name);
}

/** Returns the 400 for a name that cannot be part of a key of the storage, or `undefined` for any other name. */
export function nameFault(name: string): StatusError | undefined {
  const [error] = pathSegmentErrors(name);
  return error === undefined ? undefined : newBadRequest(`Name parameter invalid: ${quoteText(name)}: ${error}`);
}

/** The maximum length of a text that is read as a number. No resource version has as many digits. */
const MAX_DIGITS = 1000;

const isVersion = (text: string): boolean =>
  /^\d+$/.test(text) && text.length <= MAX_DIGITS && BigInt(text) <= UINT64_MAX;

function notAVersion(text: string): string {
  const why = /^\d+$/.test(text) ? 'value out of range' : 'invalid syntax';
  return `Invalid value: ${quoteText(text)}: strconv.ParseUint: parsing ${quoteText(text)}: ${why}`;
}

async function waitFor(store: StoredResource, revision: number, signal: AbortSignal): Promise<void> {
  try {
    await store.cache.waitFor(revision, { signal });
  } catch (error) {
    if (isStorageError(error, 'future-revision')) throw tooLarge(revision, store.cache.revision());
    throw error;
  }
}

function tooLarge(revision: number, current: number): StatusError {
  return newStatusError(504, 'Timeout', `Timeout: Too large resource version: ${revision}, current: ${current}`, {
    details: {
      causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
      retryAfterSeconds: 1,
    },
  });
}

/** The state that a list shows, and the page of it. */
interface RequestedPage {
  /** `undefined` means the newest state. */
  readonly exact: number | undefined;
  readonly notOlderThan: number;
  /** The maximum number of objects. 0 means no limit. */
  readonly limit: number;
  readonly token: ContinueToken | undefined;
}

/** The objects that a list shows. */
interface Selected {
  readonly selection: Selection;
  /** The part that the keys of all objects of the list begin with. The key in a continue token does not contain it. */
  readonly prefix: string;
}

/**
 * Evaluates resourceVersion, resourceVersionMatch, limit and continue. Throws a 400 for an invalid version or token, and for a
 * version other than 0 beside a token.
 */
function requestedPage(options: ListOptions): RequestedPage {
  const { resourceVersion, resourceVersionMatch: match, limit } = options;
  if (options.continue !== '') {
    const token = decodeContinue(options.continue);
    if (resourceVersion !== '' && resourceVersion !== '0') {
      throw newBadRequest('specifying resource version is not allowed when using continue');
    }
    // As in kube-apiserver, whose watch cache ignores the limit then.
    const pageLimit = resourceVersion === '0' ? 0 : limit;
    return { exact: token.revision < 0 ? undefined : token.revision, notOlderThan: 0, limit: pageLimit, token };
  }
  if (resourceVersion === '') return { exact: undefined, notOlderThan: 0, limit, token: undefined };
  if (!isVersion(resourceVersion)) {
    throw newBadRequest(`invalid resource version: resourceVersion: ${notAVersion(resourceVersion)}`);
  }
  const revision = Number(resourceVersion);
  if (revision === 0) return { exact: undefined, notOlderThan: 0, limit: 0, token: undefined };
  const exact = match === 'Exact' || (match === '' && limit > 0);
  return { exact: exact ? revision : undefined, notOlderThan: revision, limit, token: undefined };
}

/**
 * Lists entries. It is synchronous if the cache is new enough and one time slice is enough. Fails with a 400 for invalid
 * options, a 410 for a revision that is compacted, and a 504 for one that does not exist yet.
 */
export function listEntries(
  store: StoredResource,
  context: RequestContext,
  target: { readonly namespace: string; readonly name?: string },
  options: ListOptions,
): Promise<ListResult> | ListResult {
  checkFields(store, options.fieldSelector);
  const request = requestedPage(options);
  const selected: Selected = {
    selection: selectionOf(target.namespace, {
      ...(target.name === undefined ? {} : { name: target.name }),
      labels: options.labelSelector,
      fields: options.fieldSelector,
    }),
    prefix: listPrefix(store, target.namespace),
  };
  if (request.notOlderThan > store.cache.revision()) {
    return waitFor(store, request.notOlderThan, context.signal).then(() =>
      listState(store, context, selected, request),
    );
  }
  return listState(store, context, selected, request);
}

function listState(
  store: StoredResource,
  context: RequestContext,
  { selection, prefix }: Selected,
  request: RequestedPage,
): Promise<ListResult> | ListResult {
  const { limit, token, exact } = request;
  const read = {
    selection,
    limit,
    ...(token === undefined ? {} : { startAfter: prefix + token.after }),
    ...(exact === undefined ? {} : { revision: exact }),
  };
  const page = readPage(store, request, () => store.cache.listInSlices(read, context.signal));
  return page instanceof Promise ? page.then((one) => resultOf(one, prefix)) : resultOf(page, prefix);
}

function resultOf(page: CacheList, prefix: string): ListResult {
  const last = page.entries.at(-1);
  const more = page.more && last !== undefined;
  return {
    entries: page.entries,
    resourceVersion: String(page.revision),
    continue: more ? encodeContinue({ revision: page.revision, after: last.key.slice(prefix.length) }) : '',
    remainingItemCount: more ? page.remaining : undefined,
  };
}

function listPrefix(store: StoredResource, namespace: string): string {
  const { group, resource } = store.cache.resource;
  const prefix = `/${group}/${resource}/`;
  return namespace === '' || !store.info.namespaced ? prefix : `${prefix}${namespace}/`;
}

/** Reads a page. Throws, or rejects with, a 410 if its state is compacted, and a 504 if its state does not exist yet. */
function readPage(
  store: StoredResource,
  request: RequestedPage,
  read: () => Promise<CacheList> | CacheList,
): Promise<CacheList> | CacheList {
  const explain = (error: unknown): never => {
    if (isStorageError(error, 'compacted')) {
      if (request.token !== undefined) throw expiredContinue(request.token);
      throw newExpired('The resourceVersion for the provided list is too old.');
    }
    if (isStorageError(error, 'future-revision'))
      throw tooLarge(request.exact ?? request.notOlderThan, store.cache.revision());
    throw error;
  };
  try {
    const page = read();
    return page instanceof Promise ? page.catch(explain) : page;
  } catch (error) {
    return explain(error);
  }
}

/** Throws a 400 for a field by which the kind cannot be selected. */
export function checkFields(store: StoredResource, selector: FieldSelector): void {
  for (const { field } of selector.requirements) {
    const { selectableFields } = store.strategy;
    if (field === 'metadata.name') continue;
    // Kinds without selectable fields accept the namespace even if they have none.
    if (field === 'metadata.namespace' && (store.info.namespaced || selectableFields === undefined)) continue;
    if (ownMember(selectableFields, field) !== undefined) continue;
    if (store.strategy.unsupportedField !== undefined) throw newBadRequest(store.strategy.unsupportedField(field));
    if (selectableFields !== undefined) throw newBadRequest(`field label not supported: ${field}`);
    throw newBadRequest(
      `${quoteText(field)} is not a known field selector: only "metadata.name", "metadata.namespace"`,
    );
  }
}

/**
 * Opens a watch from a resource version. Rejects with a 500 for a text that is no version, a 400 for an unknown field, a 410
 * for a version that is compacted, a 504 for one that does not exist yet, if existing objects are requested, and a 503 if the
 * storage does not answer.
 */
export async function watchEntries(
  store: StoredResource,
  context: RequestContext,
  { namespace, ...options }: WatchOptions & { readonly namespace: string },
  sink: WatchSink,
): Promise<CacheWatchHandle> {
  checkFields(store, options.fieldSelector);
  const text = options.resourceVersion;
  if (text !== '' && !isVersion(text)) throw newErrorWithoutReason(`resourceVersion: ${notAVersion(text)}`);
  const revision = Number(text);
  const initial = options.sendInitialEvents ?? revision === 0;
  // Another server may have shown the revision to the client.
  if (revision > store.cache.revision()) await catchUp(store.storage);
  if (initial && revision > store.cache.revision()) await waitFor(store, revision, context.signal);
  const selection = selectionOf(namespace, {
    name: options.name,
    labels: options.labelSelector,
    fields: options.fieldSelector,
  });
  const existing = initial ? await store.cache.listInSlices({ selection }, context.signal) : undefined;
  const afterRevision = initial ? undefined : revision === 0 ? store.cache.revision() : revision;
  try {
    return store.cache.watch(
      {
        selection,
        afterRevision,
        ...(existing === undefined ? {} : { existing }),
        bookmarks: options.allowWatchBookmarks,
        initialEventsEnd: options.sendInitialEvents === true && options.allowWatchBookmarks,
      },
      sink,
    );
  } catch (error) {
    if (isStorageError(error, 'compacted')) throw newExpired(error.message);
    throw error;
  }
}
