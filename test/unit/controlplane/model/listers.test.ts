/** Tests how the informers of listers open their watches again. */
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { secrets } from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { ResourceCatalog, WatchSink } from '../../../../controlplane/model/rest.ts';
import { listersFromCatalog } from '../../../../controlplane/model/listers.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('a watch that has ended is opened again without a further listener at the signal, and not after an abort', async () => {
  const sinks: WatchSink[] = [];
  const watch = (_context: unknown, _namespace: string, _options: unknown, sink: WatchSink) => {
    sinks.push(sink);
    return Promise.resolve({ resume: () => undefined, close: () => undefined });
  };
  const catalog = { find: () => ({ info: { resource: 'secrets' }, watch }) } as unknown as ResourceCatalog;
  const clock = new FakeClock();
  const stop = new AbortController();
  const { signal } = stop;
  listersFromCatalog(catalog, { clock, logger: silentLogger, signal }).of(secrets);
  for (let restart = 1; restart <= 3; restart += 1) {
    await clock.settle();
    sinks.at(-1)?.onEnd();
    await clock.advance(1000);
  }
  assert.equal(sinks.length, 4);
  assert.equal(getEventListeners(signal, 'abort').length, 1);
  sinks.at(-1)?.onEnd();
  stop.abort();
  await clock.advance(5000);
  assert.equal(sinks.length, 4);
});

test('listers of two versions of a resource have the objects of their own version', async () => {
  const find = (group: string, version: string) => ({
    info: { resource: 'widgets' },
    watch: (_context: unknown, _namespace: string, _options: unknown, sink: WatchSink) => {
      const object = { apiVersion: `${group}/${version}`, kind: 'Widget', metadata: { name: 'a' } };
      sink.onEvents([{ type: 'ADDED', entry: { object } }] as unknown as Parameters<WatchSink['onEvents']>[0]);
      return Promise.resolve({ resume: () => undefined, close: () => undefined });
    },
  });
  const catalog = { find } as unknown as ResourceCatalog;
  const clock = new FakeClock();
  const listers = listersFromCatalog(catalog, { clock, logger: silentLogger, signal: new AbortController().signal });
  const widgets = { group: 'example.com', resource: 'widgets', kind: 'Widget', namespaced: false };
  const versions = ['v1', 'v2'].map((version) => listers.of<KubeObject>({ ...widgets, version }));
  await clock.settle();
  assert.deepEqual(
    versions.map((lister) => lister.get('', 'a')?.apiVersion),
    ['example.com/v1', 'example.com/v2'],
  );
});
