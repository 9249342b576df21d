import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it, type TestContext } from 'node:test';
import { everyField, parseFieldSelector } from '../../../../api/meta/field-selector.ts';
import { parseSelector } from '../../../../api/meta/selector-parser.ts';
import { everything } from '../../../../api/meta/selector.ts';
import type { Rest, WatchHandle, WatchSink } from '../../../../controlplane/model/rest.ts';
import { TooManyRequests } from '../../../../controlplane/server/flowcontrol/too-many-requests.ts';
import { WatchSelectors } from '../../../../controlplane/server/watch-selectors.ts';
import { FakeCatalog, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { startFakeServer } from '../../../fakes/fake-server.ts';

const long = (count: number): string => Array.from({ length: count }, (_none, index) => `a!=${index}`).join(',');
const options = (count: number) => ({ labelSelector: parseSelector(long(count)), fieldSelector: everyField });

describe('the selectors of open watches', () => {
  it('are bounded in sum, of which one user gets half', () => {
    const selectors = new WatchSelectors(10_000);
    const take = (user: string): (() => void) => selectors.take(user, options(888));
    const releases = Array.from({ length: 5 }, () => take('alice'));
    assert.throws(() => take('alice'), TooManyRequests);
    take('bob');
    releases[0]?.();
    releases[0]?.();
    take('alice');
    assert.throws(() => take('alice'), TooManyRequests);
  });

  it('are free if they are short', () => {
    const selectors = new WatchSelectors(10);
    const short = {
      labelSelector: parseSelector('app=web,tier in (a,b),!legacy'),
      fieldSelector: parseFieldSelector('metadata.name=x,status.phase!=Failed'),
    };
    for (let count = 0; count < 100; count++) selectors.take('node', short);
    for (let count = 0; count < 100; count++)
      selectors.take('node', { labelSelector: everything, fieldSelector: everyField });
  });

  it('count their values as well', () => {
    const values = Array.from({ length: 100 }, (_none, index) => `v${index}`).join(',');
    const one = { labelSelector: parseSelector(`a in (${values})`), fieldSelector: everyField };
    assert.throws(() => new WatchSelectors(12).take('alice', one), TooManyRequests);
    new WatchSelectors(13).take('alice', one);
  });
});

/** Starts a server of a resource whose watches end with their sinks. `open` resolves to the status of a watch. */
async function servedWatches(t: TestContext, options: Parameters<typeof startFakeServer>[1]) {
  const sinks: WatchSink[] = [];
  const rest = {
    info: fakeInfo('configmaps', 'ConfigMap'),
    list: async () => assert.fail('not a list'),
    watch: async (_request: unknown, _namespace: string, _options: unknown, sink: WatchSink): Promise<WatchHandle> => {
      sinks.push(sink);
      return { close: () => undefined, resume: () => undefined };
    },
  } as unknown as Rest;
  const api = await startFakeServer(new FakeCatalog([rest]), options);
  t.after(() => api.close());
  const open = async (user: string, selector = long(888)): Promise<number> => {
    const path = `/api/v1/namespaces/ns/configmaps?watch=true&labelSelector=${encodeURIComponent(selector)}`;
    const stream = api.session.request({ ':path': path, authorization: `Bearer ${user}` });
    const [headers] = (await once(stream.resume(), 'response')) as [Record<string, number>];
    return headers[':status'] ?? 0;
  };
  const endFirst = async (): Promise<void> => {
    sinks[0]?.onEnd();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { open, endFirst };
}

describe('a client that watches with a thousand requirements again and again', () => {
  it('is refused after fifty watches until some of them end; others are served', async (t) => {
    const { open, endFirst } = await servedWatches(t, {});
    for (let count = 0; count < 50; count++) assert.equal(await open('alice'), 200);
    assert.equal(await open('alice'), 429);
    assert.equal(await open('bob'), 200);
    await endFirst();
    assert.equal(await open('alice'), 200);
  });

  it('is not charged for watches that are refused for want of memory', async (t) => {
    const { open, endFirst } = await servedWatches(t, { watchMemoryBytes: 20 * 1024 });
    assert.equal(await open('alice', 'app=web'), 200);
    for (let count = 0; count < 60; count++) assert.equal(await open('alice'), 429);
    await endFirst();
    assert.equal(await open('alice'), 200);
  });
});
