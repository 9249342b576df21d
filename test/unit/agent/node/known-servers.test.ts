/** Tests the API servers that the agent knows: from its kubeconfig, from its state file, and from the cluster. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { followServers, loadServers } from '../../../../agent/node/known-servers.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { loadKubeconfig, newKubeconfig, serverAccess, writeKubeconfig } from '../../../../api/client/kubeconfig.ts';
import { endpoints } from '../../../../api/client/resources.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

async function agent() {
  const directory = temporaryFolder();
  const clock = new FakeClock();
  const options = { configured: ['https://api.example:6443'], directory, clock, logger: silentLogger };
  return { clock, client: new FakeClient(clock), options, path: join(directory, 'api-servers.json') };
}

const endpointsOf = (...addresses: string[]) => ({
  apiVersion: 'v1',
  kind: 'Endpoints',
  metadata: { name: 'kubernetes', namespace: 'default' },
  subsets: [{ addresses: addresses.map((ip) => ({ ip })), ports: [{ name: 'https', port: 6443 }] }],
});

test('the servers of the cluster are followed and stored, and known after a start', async () => {
  const { clock, client, options, path } = await agent();
  client.seed(endpoints, endpointsOf('192.0.2.1', '2001:db8::1', 'evil.example/x'));
  const servers = await loadServers(options);
  assert.deepEqual(servers.all, ['https://api.example:6443']);
  const stop = new AbortController();
  const running = followServers(options, servers, client, stop.signal);
  const all = ['https://api.example:6443', 'https://192.0.2.1:6443', 'https://[2001:db8::1]:6443'];
  await until('the first servers', () => servers.all.length === 3);
  assert.deepEqual(servers.all, all);
  client.seed(endpoints, endpointsOf('192.0.2.2'));
  await until('the changed servers', async () => {
    await clock.advance(15_000);
    return servers.all.length === 2;
  });
  const text = '{"servers":["https://192.0.2.2:6443"]}\n';
  await until('the state file', async () => (await readFile(path, 'utf8')) === text);
  assert.deepEqual(servers.all, ['https://api.example:6443', 'https://192.0.2.2:6443']);
  stop.abort(new Error('the test ends'));
  await running;
  assert.deepEqual((await loadServers(options)).all, servers.all);
});

test('a state file that is damaged or hostile does not keep the agent from starting', async () => {
  const { options, path } = await agent();
  for (const text of ['', '{', 'null', '[]', '{"servers":[1,"http://x","https://a/path","https://b:1"]}']) {
    await writeFile(path, text);
    const expected = text.includes('https://b:1') ? ['https://api.example:6443', 'https://b:1'] : options.configured;
    assert.deepEqual((await loadServers(options)).all, expected, text);
  }
});

test('addresses of the host, of its link and of metadata servers are not followed, and not taken from the state file', async () => {
  const { client, options, path } = await agent();
  const hostile = [
    '127.0.0.1',
    '::1',
    '169.254.169.254',
    '169.254.10.1',
    'fe80::1',
    '0.0.0.0',
    '224.0.0.1',
    'fd00:ec2::254',
  ];
  client.seed(endpoints, endpointsOf(...hostile, '::ffff:127.0.0.1', '192.0.2.1'));
  const servers = await loadServers(options);
  const stop = new AbortController();
  const running = followServers(options, servers, client, stop.signal);
  await until('the servers', () => servers.all.length > 1);
  assert.deepEqual(servers.all, ['https://api.example:6443', 'https://192.0.2.1:6443']);
  stop.abort(new Error('the test ends'));
  await running;
  const stored = hostile.map((ip) => `https://${ip.includes(':') ? `[${ip}]` : ip}:6443`);
  await writeFile(path, JSON.stringify({ servers: [...stored, 'https://a b:1', 'https://x@127.0.0.1:1'] }));
  assert.deepEqual((await loadServers(options)).all, options.configured);
});

test('a kubeconfig lists further servers in an extension', async () => {
  const { options, clock } = await agent();
  const path = join(options.directory, 'kubeconfig');
  const credentials = { token: 'abcdef.0123456789abcdef' };
  const otherServers = ['https://b:6443', 'https://c:6443'];
  const common = { cluster: 'c', server: 'https://a:6443', ca: '-----BEGIN', user: 'u', credentials };
  await writeKubeconfig(path, newKubeconfig({ ...common, otherServers }));
  assert.deepEqual((await serverAccess(await loadKubeconfig(path), { clock })).otherServers, otherServers);
  await writeKubeconfig(path, newKubeconfig(common));
  assert.doesNotMatch(await readFile(path, 'utf8'), /extensions/);
  assert.deepEqual((await serverAccess(await loadKubeconfig(path), { clock })).otherServers, []);
});
