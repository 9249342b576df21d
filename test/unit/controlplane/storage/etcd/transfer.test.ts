/** Tests the copy from etcd to rows of the database. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EtcdClient } from '../../../../../controlplane/storage/etcd/etcd-client.ts';
import { etcdKeys } from '../../../../../controlplane/storage/etcd/keys.ts';
import { rowsFromEtcd, type EtcdLayout } from '../../../../../controlplane/storage/etcd/transfer.ts';
import { plainValues } from '../../../../../controlplane/storage/value-transformer.ts';

test('objects that one transaction of etcd wrote get revisions of their own, and the last revision covers them', async () => {
  const entry = (name: string) => ({
    key: `/registry/configmaps/default/${name}`,
    value: Buffer.from(
      JSON.stringify({ kind: 'ConfigMap', apiVersion: 'v1', metadata: { name, namespace: 'default' } }),
    ),
    createRevision: 5,
    modRevision: 5,
    isLeased: false,
  });
  const layout = {
    etcd: {
      async *pages() {
        yield ['a', 'b', 'c'].map(entry);
      },
      revision: () => Promise.resolve(5),
    } as unknown as EtcdClient,
    prefix: '/registry',
    keys: etcdKeys('/registry'),
    values: { toEtcd: (value: Buffer) => value, fromEtcd: (value: Buffer) => value },
    transformer: plainValues,
    progress: () => undefined,
  } satisfies EtcdLayout;
  const { rows, lastRevision } = await rowsFromEtcd(layout, plainValues, 0);
  assert.deepEqual(
    rows.map(({ revision }) => revision),
    [5, 6, 7],
  );
  assert.equal(lastRevision, 7);
});
