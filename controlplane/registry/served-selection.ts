/** Selects objects in the served version if a webhook converts between versions. */
import { newFieldSelector } from '../../api/meta/field-selector.ts';
import { everything } from '../../api/meta/selector.ts';
import type { Entry, ListOptions, ListResult, WatchEvent, WatchSink } from '../model/rest.ts';

type Selectors = Pick<ListOptions, 'labelSelector' | 'fieldSelector'>;
type FieldReaders = Readonly<Record<string, (object: Entry['object']) => string>>;
/** Whether an entry in the served version is selected. */
export type Matches = (entry: Entry) => boolean;

const isIdentity = (field: string): boolean => field === 'metadata.name' || field === 'metadata.namespace';

/**
 * Returns a function that evaluates selectors on objects in the served version. Returns `undefined` if the selectors name
 * nothing that a conversion may change.
 */
export function servedMatcher(
  { labelSelector, fieldSelector }: Selectors,
  readers: FieldReaders | undefined,
): Matches | undefined {
  if (labelSelector.isEmpty && fieldSelector.requirements.every(({ field }) => isIdentity(field))) return undefined;
  const fieldOf = ({ object }: Entry, field: string): string =>
    field === 'metadata.name'
      ? (object.metadata.name ?? '')
      : field === 'metadata.namespace'
        ? (object.metadata.namespace ?? '')
        : (readers?.[field]?.(object) ?? '');
  return (entry) =>
    labelSelector.matches(entry.object.metadata.labels ?? {}) &&
    fieldSelector.matches((field) => fieldOf(entry, field));
}

/** Removes the selectors that only a converted object can match. */
export function storedSelectors<Options extends Selectors>(options: Options): Options {
  const identityRequirements = options.fieldSelector.requirements.filter(({ field }) => isIdentity(field));
  return { ...options, labelSelector: everything, fieldSelector: newFieldSelector(identityRequirements) };
}

/** The minimum number of objects that are converted for a page. */
const MIN_PAGE = 500;

/**
 * Lists the entries that match in the served version. `page` returns converted entries in the stored order. A page for the
 * client has as many entries as the client requested, unless fewer are left.
 */
export async function listMatching(
  options: ListOptions,
  matches: Matches,
  page: (options: ListOptions) => Promise<ListResult> | ListResult,
): Promise<ListResult> {
  const entries: Entry[] = [];
  // As for other lists, the limit is ignored with resourceVersion=0.
  const limit = options.continue === '' && options.resourceVersion === '0' ? 0 : options.limit;
  let next = storedSelectors(options);
  for (;;) {
    const pageOptions = { ...next, limit: limit === 0 ? 0 : Math.max(limit, MIN_PAGE) };
    const result = await page(pageOptions);
    for (const [index, entry] of result.entries.entries()) {
      if (!matches(entry)) continue;
      entries.push(entry);
      if (limit === 0 || entries.length < limit || index + 1 === result.entries.length) continue;
      // The token of a shorter page continues right after the last entry, at the same revision, which a continue token already
      // names.
      const revision =
        next.continue === '' ? { resourceVersion: result.resourceVersion, resourceVersionMatch: 'Exact' as const } : {};
      const cut = await page({ ...next, ...revision, limit: index + 1 });
      return { ...cut, entries, remainingItemCount: undefined };
    }
    if (result.continue === '' || entries.length === limit) {
      return { ...result, entries, remainingItemCount: undefined };
    }
    next = { ...next, continue: result.continue, resourceVersion: '', resourceVersionMatch: '' };
  }
}

/**
 * Shows the client the events of matching objects, with the type that they have for the client. An object that the client may
 * know from before the watch, and that does not match, is reported as deleted when it changes.
 */
export function matchingSink(client: WatchSink, matches: Matches): WatchSink {
  const shown = new Map<string, boolean>();
  const eventsFor = (event: WatchEvent): WatchEvent[] => {
    if (!('entry' in event)) return [event];
    const { namespace = '', name = '' } = event.entry.object.metadata;
    const key = `${namespace}/${name}`;
    const before = shown.get(key);
    const now = matches(event.entry);
    if (event.type === 'DELETED') {
      shown.delete(key);
      return (before ?? now) ? [event] : [];
    }
    shown.set(key, now);
    if (now) return [before === undefined ? event : { type: before ? 'MODIFIED' : 'ADDED', entry: event.entry }];
    const mayBeKnown = before ?? event.type === 'MODIFIED';
    return mayBeKnown ? [{ type: 'DELETED', entry: event.entry }] : [];
  };
  return {
    isPatient: client.isPatient === true,
    onEvents(events) {
      const shownEvents = events.flatMap(eventsFor);
      return shownEvents.length === 0 ? true : client.onEvents(shownEvents);
    },
    onEnd: () => client.onEnd(),
  };
}
