/**
 * Tests with `orchlet controlplane` as a process that services and their IPAddress objects correspond to each other, also if
 * the server is killed while clients create and delete services. Further ranges can be added, are kept while they are in use,
 * and can be removed.
 */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { systemClock } from '../../api/machinery/clock.ts';
import { send, type Answer } from '../hostile/send.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const TOKEN = 'addresses-token';
const SERVICES = '/api/v1/namespaces/default/services';
const NETWORKING = '/apis/networking.k8s.io/v1';
const CLIENTS = 12;
const ROUNDS = 3;
const MAX_ROUND_MS = 500;

interface Item {
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly finalizers?: readonly string[] };
  readonly spec: {
    readonly clusterIPs?: readonly string[];
    readonly parentRef?: { readonly namespace: string; readonly name: string };
  };
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

const directory = temporaryFolder();
let server: ControlPlaneProcess;
let agent = new Agent({ keepAlive: true, rejectUnauthorized: false });

before(async () => {
  const file = join(directory, 'tokens.csv');
  writeFileSync(file, `${TOKEN},tester,1,"system:masters"\n`);
  server = await ControlPlaneProcess.start(['--token-auth-file', file, '--service-cluster-ip-range', '10.96.0.0/24']);
  await until('the kubernetes service', async () => ((await pairs()).services.length > 0 ? true : undefined));
});
after(async () => {
  agent.destroy();
  await server.remove();
  rmSync(directory, { recursive: true, force: true });
});

function call(method: 'GET' | 'POST' | 'DELETE', path: string, body?: object): Promise<Answer> {
  const sent = body === undefined ? {} : { type: 'application/json', body: () => JSON.stringify(body) };
  return send({ origin: `https://127.0.0.1:${server.port}`, agent, token: TOKEN }, { method, path, ...sent });
}

async function items(path: string): Promise<readonly Item[]> {
  const { status, text } = await call('GET', path);
  assert.equal(status, 200, text);
  return (JSON.parse(text) as { items: Item[] }).items;
}

const service = (name: string, clusterIP?: string): object => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name },
  spec: { ports: [{ port: 80 }], ...(clusterIP === undefined ? {} : { clusterIP }) },
});

/** Creates services and deletes every second one, until the server is killed. */
async function work(id: number, round: number): Promise<void> {
  for (let n = 0; ; n += 1) {
    const name = `s-${round}-${id}-${n}`;
    try {
      const made = await call('POST', SERVICES, service(name));
      assert.ok(made.status === 201 || /range is full/.test(made.text), made.text);
      if (n % 8 !== 7) assert.ok((await call('DELETE', `${SERVICES}/${name}`)).status < 500);
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      // The server was killed, so it is unknown whether this write succeeded.
      return;
    }
  }
}

async function pairs(): Promise<{ readonly services: readonly string[]; readonly addresses: readonly string[] }> {
  const services = (await items('/api/v1/services')).flatMap(({ metadata, spec }) =>
    (spec.clusterIPs ?? [])
      .filter((address) => address !== 'None')
      .map((address) => `${address} ${metadata.namespace}/${metadata.name}`),
  );
  const addresses = (await items(`${NETWORKING}/ipaddresses`)).map(
    ({ metadata, spec }) => `${metadata.name} ${spec.parentRef?.namespace}/${spec.parentRef?.name}`,
  );
  return { services: services.toSorted(), addresses: addresses.toSorted() };
}

test('services and addresses belong together one to one after each SIGKILL', async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const working = Array.from({ length: CLIENTS }, (_, id) => work(id, round));
    await systemClock.sleep(50 + Math.random() * MAX_ROUND_MS);
    await server.stop('SIGKILL');
    agent.destroy();
    agent = new Agent({ keepAlive: true, rejectUnauthorized: false });
    await Promise.all(working);
    await server.launch();
    const { services, addresses } = await pairs();
    assert.deepEqual(addresses, services);
    assert.equal(new Set(services.map((text) => text.split(' ')[0])).size, services.length);
  }
});

test('an IPAddress that is deleted manually is recreated', async () => {
  const before = await pairs();
  const [name = ''] = before.addresses[0]?.split(' ') ?? [];
  assert.equal((await call('DELETE', `${NETWORKING}/ipaddresses/${name}`)).status, 200);
  await until('the address', async () =>
    (await pairs()).addresses.length === before.addresses.length ? true : undefined,
  );
  assert.deepEqual(await pairs(), before);
});

test('an additional range becomes ready, is kept while it is in use, and can be deleted afterwards', async () => {
  const ranges = `${NETWORKING}/servicecidrs`;
  const range = async (): Promise<Item | undefined> =>
    (await items(ranges)).find(({ metadata }) => metadata.name === 'more');
  const readyIs = (status: string) => async () =>
    (await range())?.status?.conditions?.some((one) => one.type === 'Ready' && one.status === status) === true
      ? true
      : undefined;
  const body = {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'ServiceCIDR',
    metadata: { name: 'more' },
    spec: { cidrs: ['203.0.113.0/24'] },
  };
  assert.equal((await call('POST', ranges, body)).status, 201);
  await until('a ready range', readyIs('True'));
  assert.deepEqual((await range())?.metadata.finalizers, ['networking.k8s.io/service-cidr-finalizer']);
  const made = await call('POST', SERVICES, service('in-more', '203.0.113.10'));
  assert.equal(made.status, 201, made.text);
  assert.equal((await call('DELETE', `${ranges}/more`)).status, 200);
  await until('a range that is in use', readyIs('False'));
  const refused = await call('POST', SERVICES, service('too-late', '203.0.113.11'));
  assert.match(refused.text, /the provided network does not match the current range/);
  assert.equal((await call('DELETE', `${SERVICES}/in-more`)).status, 200);
  await until('the range to be gone', async () => ((await range()) === undefined ? true : undefined));
});
