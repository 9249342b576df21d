/** Tests the members of etcd that a control plane uses, while none of them answers. */
import assert from 'node:assert/strict';
import { mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { test } from 'node:test';
import { parseFlags } from '../../../../../api/component/flags.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { etcdPaths, writeMember } from '../../../../../controlplane/storage/etcd-member/etcd-files.ts';
import { followMembers } from '../../../../../controlplane/storage/etcd-member/etcd-followed-members.ts';
import { controlPlaneFlags } from '../../../../../controlplane/options/controlplane-options.ts';
import { startEmbeddedEtcd } from '../../../../../controlplane/start/embedded-etcd.ts';
import type { Setting } from '../../../../../controlplane/start/setting.ts';
import { EtcdServers } from '../../../../../controlplane/storage/etcd/etcd-servers.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const [A, B, C] = ['http://127.0.0.1:1', 'http://127.0.0.1:2', 'http://127.0.0.1:3'] as const;
const open = (...servers: string[]): Promise<EtcdServers> =>
  EtcdServers.open({ servers, tls: {}, clock: new FakeClock() });

test('the first one is used, and the next one after it was left', async () => {
  const servers = await open(A, B);
  servers.leave(B);
  assert.equal(servers.url, A);
  servers.leave(A);
  assert.equal(servers.url, B);
  servers.leave(B);
  assert.equal(servers.url, A);
  servers.close();
});

test('the one in use stays when others come and go, and another one is used when it leaves', async () => {
  const servers = await open(A, B);
  servers.leave(A);
  await servers.replace([A, B, C, C]);
  assert.deepEqual([servers.url, servers.urls], [B, [A, B, C]]);
  await servers.replace([C, A]);
  assert.deepEqual([servers.url, servers.urls], [C, [C, A]]);
  servers.leave(C);
  assert.equal(servers.url, A);
  servers.close();
});

test('none at all, and what is no URL, changes nothing', async () => {
  const servers = await open(A);
  await servers.replace([]);
  await assert.rejects(servers.replace([B, 'x']), { code: 'unusable' });
  assert.deepEqual(servers.urls, [A]);
  servers.close();
  await servers.replace([B]);
  assert.deepEqual(servers.urls, [A]);
  await assert.rejects(open(), { code: 'unusable' });
});

test('no channel stays open when one of the URLs is no URL of a server', async (t) => {
  const { Client } = (await import('@grpc/grpc-js')).default;
  const close = t.mock.method(Client.prototype, 'close');
  const servers = await open(A);
  await assert.rejects(servers.replace([A, B, 'x', C]), { code: 'unusable' });
  assert.equal(close.mock.callCount(), 2, 'the channels of B and C');
  await assert.rejects(open(B, 'x'), { code: 'unusable' });
  assert.equal(close.mock.callCount(), 3);
  servers.close();
  assert.equal(close.mock.callCount(), 4);
});

test('members that cannot be read leave the servers as they are, and following ends with its signal', async (t) => {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true }));
  const paths = etcdPaths(directory);
  await mkdir(dirname(paths.member), { recursive: true });
  const record = {
    name: 'a',
    peerUrl: 'http://127.0.0.1:9',
    clientUrl: A,
    initialCluster: 'a=http://127.0.0.1:9',
    isJoined: false,
  };
  await writeMember(paths, record);
  const servers = await open(A);
  const clock = new FakeClock();
  const stop = new AbortController();
  const failures: string[] = [];
  const logger = { ...silentLogger, debug: (_fields: object, message: string) => void failures.push(message) };
  const over = followMembers({ servers, paths, tls: {}, clock, logger, signal: stop.signal });
  await clock.advance(10_000);
  await until('a failed read', () => failures.length > 0);
  assert.deepEqual([failures, servers.urls], [['The members of etcd cannot be read now'], [A]]);
  stop.abort();
  await over;
  servers.close();
});

test('an etcd that orchlet runs excludes another one, and other storage', async () => {
  const defaults = parseFlags(controlPlaneFlags, []).values;
  const start = (change: object): Promise<unknown> =>
    startEmbeddedEtcd({ flags: { ...defaults, etcd: 'embedded', ...change } } as Setting);
  await assert.rejects(start({ etcdServers: [A] }), /--etcd=embedded and --etcd-servers exclude each other/);
  await assert.rejects(start({ storageBackend: 'sqlite' }), /--etcd=embedded and --storage-backend=sqlite exclude/);
});
