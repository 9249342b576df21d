/** Tests lists and watches in a version whose objects are converted, also by a webhook that fails. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { newFieldSelector } from '../../../../api/meta/field-selector.ts';
import { everything, selectorOfLabels } from '../../../../api/meta/selector.ts';
import { newInternalError, StatusError } from '../../../../api/meta/status-error.ts';
import type { ListOptions, WatchSink } from '../../../../controlplane/model/rest.ts';
import { unstoredEntry } from '../../../../controlplane/registry/store.ts';
import { type ReadVersion, VersionCodec } from '../../../../controlplane/registry/version-codec.ts';

const entry = unstoredEntry({ apiVersion: 'g.io/v1', kind: 'Thing', metadata: { name: 'a' } });
const codec = new VersionCodec({
  store: { strategy: {}, cache: { list: () => ({ entries: [entry] }) } },
  info: { group: 'g.io', version: 'v2', kind: 'Thing' },
  conversion: { convertAll: () => Promise.reject(newInternalError('the webhook is down')) },
} as unknown as ReadVersion);
const page = () => ({ entries: [entry], resourceVersion: '1', continue: '', remainingItemCount: undefined });
const all: ListOptions = {
  labelSelector: everything,
  fieldSelector: newFieldSelector([]),
  resourceVersion: '',
  resourceVersionMatch: '',
  limit: 0,
  continue: '',
};

describe('a list in a version whose webhook fails', () => {
  const cases: readonly (readonly [string, Partial<ListOptions>, number])[] = [
    ['is to be repeated', {}, 429],
    ['is to be repeated with a limit and a selector', { limit: 5, labelSelector: selectorOfLabels({ a: 'b' }) }, 429],
    ['shows the error of the webhook with a limit and no selector', { limit: 5 }, 500],
    ['shows the error of the webhook when it continues', { limit: 5, continue: 'x' }, 500],
  ];
  for (const [name, options, code] of cases) {
    test(name, async () => {
      await assert.rejects(
        async () => await codec.listSelected({ ...all, ...options }, page),
        (error) => {
          assert(error instanceof StatusError);
          assert.equal(error.status.code, code);
          if (code === 429) {
            assert.equal(error.status.details?.retryAfterSeconds, 1);
            assert.match(error.message, /^storage is \(re\)initializing: failed to list g\.io\/v2, Kind=Thing: /);
          }
          return true;
        },
      );
    });
  }
});

test('a watch in a version whose webhook fails is refused, and not opened', async () => {
  let opened = 0;
  const open = () => Promise.reject(new Error(`opened ${(opened += 1)}`));
  const client = { onEvents: () => undefined, onEnd: () => undefined };
  await assert.rejects(codec.watch(client as unknown as WatchSink, open), (error) => {
    assert(error instanceof StatusError);
    assert.equal(error.status.code, 429);
    return true;
  });
  assert.equal(opened, 0);
});

test('a watch in a version that the server converts is as patient as its client', async () => {
  const renaming = new VersionCodec({
    store: {},
    info: {},
    conversion: { fromStored: (object: unknown) => object },
  } as unknown as ReadVersion);
  for (const isPatient of [true, false]) {
    let opened: WatchSink | undefined;
    const client: WatchSink = { isPatient, onEvents: () => true, onEnd: () => undefined };
    await renaming.watch(client, (sink) => {
      opened = sink;
      return Promise.resolve({ resume: () => undefined, close: () => undefined });
    });
    assert.equal(opened?.isPatient, isPatient);
  }
});
