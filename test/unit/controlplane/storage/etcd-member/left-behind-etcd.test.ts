/** Tests how a left-behind process is stopped, with processes that stand for etcd. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { stopEtcdProcess } from '../../../../../controlplane/storage/etcd-member/left-behind-etcd.ts';

test('a process of etcd is stopped, and one that has exited before is no error', async (t) => {
  const etcd = spawn('sh', ['-c', 'while :; do sleep 1; done', '/data/of/etcd'], { stdio: 'ignore' });
  t.after(() => etcd.kill('SIGKILL'));
  await once(etcd, 'spawn');
  const exited = once(etcd, 'exit');
  const { pid } = etcd;
  assert.ok(pid !== undefined);
  await stopEtcdProcess(pid, '/data/of/etcd', systemClock);
  await exited;
  await stopEtcdProcess(pid, '/data/of/etcd', systemClock);
});
