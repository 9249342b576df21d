/** Selection of converted objects: pages are full, and watches report each object as the client sees it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseFieldSelector } from '../../../../api/meta/field-selector.ts';
import { everything } from '../../../../api/meta/selector.ts';
import type { Entry, ListOptions, ListResult, WatchEvent } from '../../../../controlplane/model/rest.ts';
import { listMatching, matchingSink, servedMatcher } from '../../../../controlplane/registry/served-selection.ts';

const readers = { host: (object: Entry['object']): string => String(object['host'] ?? '') };
const entryOf = (at: number, host: string): Entry => ({
  object: {
    kind: 'Thing',
    metadata: { name: `t${String(at).padStart(5, '0')}`, namespace: 'n' },
    host,
  } as Entry['object'],
  bytes: Buffer.alloc(0),
});
const options = (selector: string, limit = 0): ListOptions => ({
  labelSelector: everything,
  fieldSelector: parseFieldSelector(selector),
  resourceVersion: '',
  resourceVersionMatch: '',
  limit,
  continue: '',
});

/** A store of converted entries, whose token is the position after the page. */
const pagesOf =
  (all: readonly Entry[]) =>
  ({ limit, continue: token }: ListOptions): ListResult => {
    const from = Number(token);
    const to = limit === 0 ? all.length : Math.min(all.length, from + limit);
    return {
      entries: all.slice(from, to),
      resourceVersion: '1',
      continue: to < all.length ? String(to) : '',
      remainingItemCount: undefined,
    };
  };

const all = Array.from({ length: 2000 }, (_, at) => entryOf(at, at % 300 === 7 ? 'host1' : 'other'));
const names = (entries: readonly Entry[]): (string | undefined)[] => entries.map(({ object }) => object.metadata.name);
const wanted = names(all.filter(({ object }) => object['host'] === 'host1'));

async function list(selector: string, limit: number): Promise<{ names: (string | undefined)[]; pages: number[] }> {
  const found: (string | undefined)[] = [];
  const pages: number[] = [];
  let next = options(selector, limit);
  for (;;) {
    const matches = servedMatcher(next, readers);
    assert(matches !== undefined);
    const result = await listMatching(next, matches, pagesOf(all));
    found.push(...names(result.entries));
    pages.push(result.entries.length);
    if (result.continue === '') return { names: found, pages };
    next = { ...next, continue: result.continue };
  }
}

test('a list finds what matches after the conversion, in one page or in many', async () => {
  assert.deepEqual((await list('host=host1', 0)).names, wanted);
  for (const limit of [1, 2, 3, 5]) {
    const { names: found, pages } = await list('host=host1', limit);
    assert.deepEqual(found, wanted, `pages of ${limit}`);
    assert.ok(
      pages.slice(0, -1).every((size) => size === limit),
      `full pages of ${limit}: ${pages.join()}`,
    );
  }
});

test('an inequality spares what has the value after the conversion', async () => {
  const { names: found } = await list('host!=host1', 0);
  assert.equal(found.length, all.length - wanted.length);
  assert.ok(wanted.every((name) => !found.includes(name)));
});

test('with resourceVersion=0 the limit is ignored, as the store does', async () => {
  const asked = { ...options('host=host1', 2), resourceVersion: '0' };
  const matches = servedMatcher(asked, readers);
  assert(matches !== undefined);
  const unlimited = (page: ListOptions): ListResult =>
    pagesOf(all)(page.resourceVersion === '0' ? { ...page, limit: 0 } : page);
  const result = await listMatching(asked, matches, unlimited);
  assert.deepEqual([names(result.entries), result.continue], [wanted, '']);
});

test('a page and its token are of one revision, though objects come while it is converted', async () => {
  const asked = options('host=host1', 2);
  const matches = servedMatcher(asked, readers);
  assert(matches !== undefined);
  const seen: Pick<ListOptions, 'resourceVersion' | 'resourceVersionMatch'>[] = [];
  await listMatching(asked, matches, (page) => {
    seen.push(page);
    return { ...pagesOf(all)(page), resourceVersion: '17' };
  });
  assert.deepEqual(
    seen.map(({ resourceVersion, resourceVersionMatch }) => [resourceVersion, resourceVersionMatch]),
    [
      ['', ''],
      ['17', 'Exact'],
    ],
  );
});

test('selectors of names alone are left to the cache', () => {
  assert.equal(servedMatcher(options('metadata.name=a,metadata.namespace!=b'), readers), undefined);
});

test('a watch shows objects when they begin to match and deletes them when they no longer do', () => {
  const seen: string[] = [];
  const matches = servedMatcher(options('host=host1'), readers);
  assert(matches !== undefined);
  const sink = matchingSink(
    {
      onEvents(events) {
        for (const event of events) {
          seen.push(
            event.type === 'BOOKMARK' || event.type === 'ERROR'
              ? event.type
              : `${event.type} ${String(event.entry.object['host'])}`,
          );
        }
        return true;
      },
      onEnd: () => undefined,
    },
    matches,
  );
  const event = (type: 'ADDED' | 'MODIFIED' | 'DELETED', host: string, at = 1): WatchEvent => ({
    type,
    entry: entryOf(at, host),
  });
  sink.onEvents([event('ADDED', 'other'), event('MODIFIED', 'host1'), event('MODIFIED', 'host1')]);
  sink.onEvents([event('MODIFIED', 'other'), event('MODIFIED', 'other'), event('DELETED', 'other')]);
  sink.onEvents([event('MODIFIED', 'other', 2), event('MODIFIED', 'other', 2), event('DELETED', 'host1', 3)]);
  sink.onEvents([{ type: 'BOOKMARK', resourceVersion: '9', initialEventsEnd: false }]);
  assert.deepEqual(seen, [
    'ADDED host1',
    'MODIFIED host1',
    'DELETED other',
    'DELETED other',
    'DELETED host1',
    'BOOKMARK',
  ]);
});
