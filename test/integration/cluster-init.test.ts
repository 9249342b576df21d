/**
 * `orchlet up --cluster-init`: one command begins a cluster whose etcd orchlet runs, with a node; it is taken over after a
 * kill, a further control plane joins it, and a stop leaves no etcd behind.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { etcdPaths } from '../../controlplane/storage/etcd-member/etcd-files.ts';
import { etcdMissing } from '../etcd-process.ts';
import { until } from '../until.ts';
import { skipWithoutDocker } from './container-runtimes.ts';
import { freePort } from './free-port.ts';
import { RunningCluster } from './running-cluster.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';
import { unmountBelow } from '../mounts.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'first' },
  spec: {
    hostNetwork: true,
    terminationGracePeriodSeconds: 1,
    containers: [{ name: 'c', image: DEMO_IMAGE, command: ['sleep', '1000000'] }],
  },
};

const orchlet = (...args: readonly string[]): { status: number | null; stdout: string; stderr: string } =>
  spawnSync(ORCHLET, args, { encoding: 'utf8', timeout: 90_000 });

const isAlive = (pid: number): boolean => existsSync(`/proc/${pid}`);

describe('orchlet up --cluster-init', { skip: skipWithoutDocker || etcdMissing, timeout: 300_000 }, () => {
  const scratch = temporaryFolder();
  let cluster: RunningCluster;
  let joined: ChildProcess | undefined;
  const etcdPid = (): number => Number(readFileSync(etcdPaths(cluster.directory).pid, 'utf8'));
  const members = (): string[] =>
    orchlet('etcd', 'members', '--data-dir', cluster.directory).stdout.trim().split('\n').slice(1);

  before(async () => {
    cluster = await RunningCluster.start([
      ...['--cluster-init', '--cluster-cidr', '10.219.0.0/16', '--service-proxy', 'none'],
      ...['--advertise-address', '127.0.0.1', '--manifests-dir', ''],
      ...['--controlplane-arg', `etcd-client-port=${await freePort()}`],
      ...['--controlplane-arg', `etcd-peer-port=${await freePort()}`],
    ]);
  });
  after(async () => {
    if (joined !== undefined && joined.exitCode === null) {
      const exited = once(joined, 'exit');
      joined.kill('SIGTERM');
      await exited;
    }
    await cluster?.remove();
    unmountBelow(scratch);
    rmSync(scratch, { recursive: true, force: true });
  });

  it('begins a cluster of one member, on which a pod runs, and keeps no database beside it', async () => {
    assert.equal(members().length, 1);
    assert.ok(!existsSync(join(cluster.directory, 'storage/orchlet.db')));
    await until('the service account', () => cluster.kubectl(['get', 'serviceaccount', 'default']).code === 0);
    cluster.run(['apply', '-f', '-'], { input: JSON.stringify(POD) });
    cluster.run(['wait', 'pod/first', '--for=condition=Ready', '--timeout=60s']);
  });

  it('takes over its etcd and its pods after a kill', async () => {
    const pid = etcdPid();
    const started = cluster.run(['get', 'pod', 'first', '-o', 'jsonpath={.status.containerStatuses[0].containerID}']);
    await cluster.stop('SIGKILL');
    assert.ok(isAlive(pid), 'etcd votes on');
    await cluster.launch();
    await until('the end of the former etcd', () => !isAlive(pid));
    const now = cluster.run(['get', 'pod', 'first', '-o', 'jsonpath={.status.containerStatuses[0].containerID}']);
    assert.equal(now, started);
    assert.equal(members().length, 1);
  });

  it('lets a further control plane join by what token create prints, and serves the same cluster from both', async () => {
    const { directory, kubeconfig } = cluster;
    const made = orchlet('token', 'create', '--control-plane', '--kubeconfig', kubeconfig, '--data-dir', directory);
    assert.equal(made.status, 0, made.stderr);
    const target = join(scratch, 'joined');
    const done = await until('a join', () => {
      const tried = orchlet('join', ...made.stdout.trim().split(' ').slice(2), '--data-dir', target);
      if (tried.status !== 0) throw new Error(tried.stderr);
      return tried;
    });
    const flags = [/--etcd=embedded/, /--etcd-join=\S+/].map((form) => form.exec(done.stdout)?.[0] ?? '');
    assert.ok(!done.stdout.includes('--standby-of'), 'on etcd, it is no standby');
    const port = await freePort();
    joined = spawn(
      ORCHLET,
      [
        ...['controlplane', '--data-dir', target, '--bind-address', '127.0.0.1', '--secure-port', String(port)],
        ...['--advertise-address', '127.0.0.1', '--etcd-client-port', String(await freePort())],
        ...['--etcd-peer-port', String(await freePort()), '--manifests-dir', '', ...flags],
      ],
      { stdio: 'ignore' },
    );
    const admin = join(target, 'admin.kubeconfig');
    const seen = await until('the pod at the other server', () => {
      if (joined?.exitCode !== null) throw new Error('it exited');
      if (!existsSync(admin)) return undefined;
      const { code, stdout } = cluster.kubectl(['--kubeconfig', admin, 'get', 'pod', 'first', '-o', 'name']);
      return code === 0 ? stdout.trim() : undefined;
    });
    assert.equal(seen, 'pod/first');
    assert.equal(members().filter((row) => / yes +(answers|leader) /.test(row)).length, 2);
  });

  it('ends its etcd when it stops', async () => {
    const pid = etcdPid();
    await cluster.stop();
    await until('the end of etcd', () => !isAlive(pid));
  });
});
