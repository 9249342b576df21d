/** Tests a control plane that starts on a host without any network, to which addresses come later and change. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, readlinkSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { freePort } from './free-port.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { unmountBelow } from '../mounts.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const canUnshare = spawnSync('unshare', ['-n', 'ip', 'link']).status === 0;

const directory = temporaryFolder();
const kubeconfig = join(directory, 'admin.kubeconfig');
let host: ChildProcess | undefined;
let plane: ChildProcess | undefined;
let port = 0;

/** Runs a program in the network of the host. */
function inside(...words: readonly string[]): string {
  const done = spawnSync('nsenter', ['-t', String(host?.pid), '-n', ...words], {
    encoding: 'utf8',
    env: { ...process.env, KUBECONFIG: kubeconfig, KUBECACHEDIR: join(directory, 'cache') },
  });
  if (done.status !== 0) throw new Error(`${words.join(' ')}: ${done.stderr}${done.stdout}`);
  return done.stdout;
}
const endpoint = (): string =>
  inside('kubectl', 'get', 'endpoints', 'kubernetes', '-o', 'jsonpath={.subsets[0].addresses[0].ip}');
const slices = (): string =>
  inside(
    'kubectl',
    'get',
    'endpointslices',
    'kubernetes',
    '-o',
    'jsonpath={.addressType} {.endpoints[0].addresses[0]}',
  );
const clusterInfo = (): string =>
  inside('kubectl', 'get', 'configmap', '-n', 'kube-public', 'cluster-info', '-o', 'jsonpath={.data.kubeconfig}');

async function stop(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill();
  await ended;
}

const options = { skip: canUnshare ? false : 'network namespaces cannot be made here' };

before(async () => {
  if (!canUnshare) return;
  host = spawn('unshare', ['-n', 'sleep', 'infinity'], { stdio: 'ignore' });
  const networkOf = (pid: string): string => readlinkSync(`/proc/${pid}/ns/net`);
  await until('the namespace', () => networkOf(String(host?.pid)) !== networkOf('self'));
  inside('ip', 'link', 'set', 'lo', 'up');
  port = await freePort();
  const flags = ['controlplane', '--data-dir', directory, '--secure-port', String(port), '--disable', 'manifests'];
  plane = spawn('nsenter', ['-t', String(host.pid), '-n', ORCHLET, ...flags], { stdio: 'ignore' });
  await until(
    'a ready control plane',
    () => existsSync(kubeconfig) && inside('kubectl', 'get', '--raw', '/readyz') === 'ok',
  );
});
after(async () => {
  await stop(plane);
  await stop(host);
  unmountBelow(directory);
  rmSync(directory, { recursive: true, force: true });
});

test('without a network it serves on loopback and publishes no endpoint', options, () => {
  assert.throws(endpoint, /NotFound/);
  assert.match(clusterInfo(), /server: https:\/\/127\.0\.0\.1:/);
});

test('a new address is published, and the serving certificate contains it', options, async () => {
  inside('ip', 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'up1');
  inside('ip', 'link', 'set', 'up1', 'up');
  inside('ip', 'link', 'set', 'up0', 'up');
  inside('ip', 'address', 'add', '10.9.8.7/24', 'dev', 'up0');
  await until('the endpoint', () => endpoint() === '10.9.8.7');
  await until('cluster-info', () => clusterInfo().includes(`https://10.9.8.7:${port}`));
  await until('a certificate with the address', () =>
    inside('curl', '-s', '--cacert', join(directory, 'pki/ca.crt'), `https://10.9.8.7:${port}/version`).includes(
      'gitVersion',
    ),
  );
});

test('an address that changes is followed, to the other family as well', options, async () => {
  inside('ip', 'address', 'del', '10.9.8.7/24', 'dev', 'up0');
  inside('ip', 'address', 'add', '10.9.8.99/24', 'dev', 'up0');
  await until('the new address', () => slices() === 'IPv4 10.9.8.99');
  inside('ip', 'address', 'del', '10.9.8.99/24', 'dev', 'up0');
  inside('ip', 'address', 'add', 'fd00::7/64', 'dev', 'up0', 'nodad');
  await until('the address of the other family', () => slices() === 'IPv6 fd00::7' && endpoint() === 'fd00::7');
});
