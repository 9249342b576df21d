/** Tests how a server reads its first state while etcd is compacted. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { EtcdReader } from '../../../../../controlplane/storage/etcd/etcd-reader.ts';
import type { EtcdServers } from '../../../../../controlplane/storage/etcd/etcd-servers.ts';
import { StorageError } from '../../../../../controlplane/storage/storage.ts';
import { plainValues } from '../../../../../controlplane/storage/value-transformer.ts';

type WatchResponse = Parameters<Parameters<EtcdServers['watch']>[1]>[0];

const CREATED = { created: true, canceled: false, compactRevision: 0, events: [] };
const EVENT = { ...CREATED, created: false, events: [{ type: 0 }] };
const COMPACTED = { ...CREATED, canceled: true, compactRevision: 40_000 };

/** The first read fails, because the member has compacted the revision. Its watch sends the responses, then stays open. */
function readerOf(responses: readonly object[]): EtcdReader {
  const results = [Promise.reject(new StorageError('compacted', 'required revision has been compacted'))];
  results[0]?.catch(() => undefined);
  return new EtcdReader({
    servers: {
      run: () => (results.shift() ?? Promise.resolve({ kvs: [], more: false })) as Promise<never>,
      watch: (_request, onMessage, signal) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => resolve());
          for (const response of responses) onMessage(response as WatchResponse);
        }),
    },
    layout: {
      prefix: '/registry',
      keys: { toEtcd: (key) => key, fromEtcd: () => undefined },
      values: { toEtcd: (value) => value, fromEtcd: (value) => value },
      transformer: plainValues,
    },
    logger: silentLogger,
    onUnreadable: undefined,
  });
}

test('the state begins at the compacted revision', async () => {
  assert.equal((await readerOf([CREATED, COMPACTED]).oldestState(45_000)).revision, 40_000);
});

test('the state begins at the same revision if another member has not compacted it', { timeout: 5000 }, async () => {
  assert.equal((await readerOf([CREATED, EVENT]).oldestState(45_000)).revision, 35_000);
});
