/**
 * Tests a cluster of three members of etcd, three control planes and three agents: servers are killed, and the cluster goes on
 * without starting a pod twice or giving an address twice. The second and third control plane join the first.
 *
 * Everything runs in a network namespace of its own, since each server needs an address with the same port.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Agent } from '../../agent/main.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { keepAlive, systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import { loadKubeconfig, serverAccess } from '../../api/client/kubeconfig.ts';
import {
  configMaps,
  customResourceDefinitions,
  deployments,
  endpoints,
  groupVersion,
  leases,
  nodes,
  pods,
  services,
} from '../../api/client/resources.ts';
import { ServerList } from '../../api/client/server-list.ts';
import { typedClient, type TypedClient } from '../../api/client/typed-client.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isAlreadyExists, tolerate } from '../../api/meta/status-error.ts';
import { readAll } from '../../api/client/response-body.ts';
import { etcdMissing } from '../etcd-process.ts';
import { startAgentInMemory } from '../fakes/agent-in-memory.ts';
import { createFakeHost, type FakeHost, FakeRuntime } from '../fakes/fake-runtime.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const INSIDE = 'ORCHLET_TEST_NAMESPACE';
const ADDRESSES = ['10.213.0.1', '10.213.0.2', '10.213.0.3'];
const TIMES = [
  '--leader-elect-lease-duration=3s',
  '--leader-elect-renew-deadline=2s',
  '--leader-elect-retry-period=500ms',
];
const missing =
  etcdMissing || (spawnSync('unshare', ['--net', '--mount', 'true']).status === 0 ? false : 'no namespaces here');

if (process.env[INSIDE] === undefined) {
  test('several control planes on one etcd', { skip: missing, timeout: 600_000 }, async () => {
    const up = ['ip link set lo up', ...ADDRESSES.map((address) => `ip address add ${address}/32 dev lo`)];
    const line = `${up.join(' && ')} && exec "$0" --test --test-reporter=spec "$1"`;
    const child = spawn('unshare', ['--net', '--mount', 'sh', '-c', line, process.execPath, import.meta.filename], {
      stdio: 'inherit',
      env: { ...process.env, [INSIDE]: 'yes', NODE_TEST_CONTEXT: undefined },
    });
    const [code] = (await once(child, 'exit')) as [number | null];
    assert.equal(code, 0);
  });
} else insideNamespace();

interface Plane {
  readonly address: string;
  readonly directory: string;
  readonly client: HttpClient;
  child: ChildProcess;
}

function insideNamespace(): void {
  const directory = temporaryFolder();
  const alive = keepAlive();
  const etcds: ChildProcess[] = [];
  const planes: Plane[] = [];
  const agents: { readonly agent: Agent; readonly host: FakeHost }[] = [];
  /** Reaches whichever server lives. */
  let client: TypedClient;
  let everywhere: HttpClient;

  const etcdFlags = ['--etcd-servers', [0, 1, 2].map((at) => `http://127.0.0.1:${23790 + at}`).join()];

  function startEtcd(at: number): ChildProcess {
    const url = `http://127.0.0.1:${23790 + at}`;
    const peer = (of: number): string => `http://127.0.0.1:${23800 + of}`;
    const cluster = [0, 1, 2].map((of) => `e${of}=${peer(of)}`).join();
    const args = [
      ...['--name', `e${at}`, '--data-dir', join(directory, `etcd-${at}`), '--unsafe-no-fsync'],
      ...['--listen-client-urls', url, '--advertise-client-urls', url, '--initial-cluster', cluster],
      ...['--listen-peer-urls', peer(at), '--initial-advertise-peer-urls', peer(at)],
    ];
    return spawn('etcd', args, { stdio: 'ignore' });
  }

  function launch(address: string, dataDir: string): ChildProcess {
    const own = [
      '--data-dir',
      dataDir,
      '--bind-address',
      address,
      '--advertise-address',
      address,
      '--manifests-dir',
      '',
    ];
    return spawn(ORCHLET, ['controlplane', ...own, ...etcdFlags, ...TIMES], { stdio: 'ignore' });
  }

  async function startPlane(at: number): Promise<Plane> {
    const address = ADDRESSES[at] ?? '';
    const own = join(directory, `plane-${at}`);
    const child = launch(address, own);
    const kubeconfig = join(own, 'admin.kubeconfig');
    await until('the kubeconfig', () => existsSync(kubeconfig));
    const access = await serverAccess(await loadKubeconfig(kubeconfig), { clock: systemClock });
    const plane = { address, directory: own, child, client: new HttpClient({ ...access, clock: systemClock }) };
    await isReady(plane);
    planes.push(plane);
    return plane;
  }

  const isReady = (plane: Plane): Promise<unknown> =>
    until(`/readyz of ${plane.address}`, async () => (await textOf(plane, '/readyz')) === 'ok');

  async function textOf(plane: Plane, path: string): Promise<string> {
    const { body } = await plane.client.raw({ method: 'GET', path, accept: '*/*' });
    return (await readAll(body)).toString();
  }

  function orchlet(...args: readonly string[]): string {
    const done = spawnSync(ORCHLET, args, { encoding: 'utf8' });
    assert.equal(done.status, 0, done.stderr);
    return done.stdout;
  }

  async function startAgent(name: string, joinLine: readonly string[]): Promise<void> {
    const own = join(directory, name);
    orchlet('join', ...joinLine, '--config-dir', own, '--start=false', '--node-name', name);
    const host = createFakeHost(['shell:1']);
    const flags = {
      hostnameOverride: name,
      bootstrapKubeconfig: join(own, 'bootstrap.kubeconfig'),
      kubeconfig: join(own, 'agent.kubeconfig'),
      certDir: join(own, 'pki'),
      nodeStatusUpdateFrequency: 2000,
      nodeLeaseDurationSeconds: 4,
    };
    const runtime = new FakeRuntime(systemClock, host);
    agents.push({ host, agent: await startAgentInMemory(own, flags, { runtime, logger: silentLogger }) });
  }

  async function leaderOf(lease: string): Promise<Plane> {
    return until(`the leader of ${lease}`, async () => {
      for (const plane of planes) {
        if (plane.child.exitCode !== null || plane.child.signalCode !== null) continue;
        const text = await textOf(plane, '/metrics');
        if (text.includes(`leader_election_master_status{name="${lease}"} 1`)) return plane;
      }
      return undefined;
    });
  }

  async function kill(plane: Plane): Promise<void> {
    const ended = once(plane.child, 'exit');
    plane.child.kill('SIGKILL');
    await ended;
  }

  const restart = async (plane: Plane): Promise<void> => {
    plane.child = launch(plane.address, plane.directory);
    await isReady(plane);
  };

  const workload = (name: string, replicas: number): KubeObject => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name, namespace: 'default' },
    spec: {
      replicas,
      selector: { matchLabels: { app: name } },
      template: {
        metadata: { labels: { app: name } },
        spec: {
          terminationGracePeriodSeconds: 1,
          containers: [{ name: 'c', image: 'shell:1', imagePullPolicy: 'Never', command: ['sleep', '100000'] }],
        },
      },
    },
  });

  const running = (name: string, count: number): Promise<unknown> =>
    until(`${count} running pods of ${name}`, async () => {
      const { items } = await client.list(pods, { namespace: 'default', labelSelector: `app=${name}` });
      return items.length === count && items.every(({ status }) => status?.phase === 'Running');
    });

  /** A create whose server died may have succeeded. */
  const deploy = (name: string, replicas: number): Promise<unknown> =>
    until(`the deployment ${name}`, async () => {
      const made = everywhere.create(deployments, 'default', workload(name, replicas));
      return (await tolerate(made, isAlreadyExists)) ?? true;
    });

  const published = async (): Promise<readonly string[]> =>
    ((await client.get(endpoints, 'default', 'kubernetes')).subsets ?? []).flatMap(({ addresses = [] }) =>
      addresses.map(({ ip }) => ip),
    );

  before(async () => {
    for (const at of [0, 1, 2]) etcds.push(startEtcd(at));
    const first = await startPlane(0);
    const token = ['--kubeconfig', join(first.directory, 'admin.kubeconfig'), '--data-dir', first.directory];
    const line = orchlet('token', 'create', '--control-plane', ...token, ...etcdFlags).trim();
    const words = line.split(' ').slice(2);
    for (const at of [1, 2]) {
      orchlet('join', ...words, '--data-dir', join(directory, `plane-${at}`));
      await startPlane(at);
    }
    const access = await serverAccess(await loadKubeconfig(join(first.directory, 'admin.kubeconfig')), {
      clock: systemClock,
    });
    const urls = ADDRESSES.map((address) => `https://${address}:6443`);
    everywhere = new HttpClient({ ...access, servers: new ServerList(urls, systemClock), clock: systemClock });
    client = typedClient(everywhere);
    const more = orchlet('token', 'create', '--print-join-command', ...token).trim();
    for (const name of ['agent-1', 'agent-2', 'agent-3']) await startAgent(name, more.split(' ').slice(2));
  });

  after(async () => {
    await Promise.all(agents.map(({ agent }) => agent.close()));
    everywhere.close();
    for (const plane of planes) {
      plane.client.close();
      plane.child.kill('SIGKILL');
    }
    for (const etcd of etcds) etcd.kill('SIGKILL');
    alive.cancel();
    const mounts = readFileSync('/proc/self/mounts', 'utf8')
      .split('\n')
      .map((row) => row.split(' ')[1] ?? '');
    for (const mount of mounts.filter((path) => path.startsWith(directory)).toReversed()) spawnSync('umount', [mount]);
    rmSync(directory, { recursive: true, force: true });
  });

  test('all servers are in the endpoints, and each is known by its Lease', async () => {
    await until('three addresses', async () => (await published()).join() === ADDRESSES.join());
    const { items } = await client.list(leases, {
      namespace: 'kube-system',
      labelSelector: 'apiserver.kubernetes.io/identity=kube-apiserver',
    });
    assert.ok(items.length > 0);
  });

  const DEFINITIONS = 24;

  /** Defines a resource at one server, and uses it at the others as soon as the first one shows it. */
  async function useAtOnce(at: number): Promise<void> {
    const [first, second, third] = [0, 1, 2].map((step) => planes[(at + step) % 3]?.client);
    const group = 'example.org';
    const plural = `gadgets${at}`;
    const kind = `Gadget${at}`;
    await first?.create(customResourceDefinitions, '', {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: `${plural}.${group}` },
      spec: {
        group,
        scope: 'Namespaced',
        names: { plural, kind },
        versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
      },
    } as KubeObject);
    for (let isEstablished = false; !isEstablished;) {
      const found = (await first?.get(customResourceDefinitions, '', `${plural}.${group}`)) as KubeObject | undefined;
      const { conditions } = (found?.['status'] ?? {}) as {
        readonly conditions?: readonly { type: string; status: string }[] | null;
      };
      isEstablished = (conditions ?? []).some((one) => one.type === 'Established' && one.status === 'True');
    }
    const gadgets = groupVersion(group, 'v1').namespaced(plural, kind);
    const gadget = { apiVersion: `${group}/v1`, kind, metadata: { name: 'one', namespace: 'default' } };
    await second?.create(gadgets, 'default', gadget);
    assert.equal((await third?.get(gadgets, 'default', 'one'))?.metadata.name, 'one');
    await third?.delete(customResourceDefinitions, '', `${plural}.${group}`);
  }

  test('definitions are served by all servers as soon as one shows them', async () => {
    await Promise.all(Array.from({ length: DEFINITIONS }, (_, at) => useAtOnce(at)));
    await until('the end of the definitions', async () => {
      const { items } = await client.list(customResourceDefinitions);
      return items.length === 0;
    });
  });

  test('a control plane with a CA of its own is refused while others run', () => {
    const own = ['--data-dir', join(directory, 'stranger'), '--bind-address', '127.0.0.1', '--secure-port', '0'];
    const done = spawnSync(ORCHLET, ['controlplane', ...own, ...etcdFlags], { encoding: 'utf8', timeout: 60_000 });
    assert.notEqual(done.status, 0);
    assert.match(
      done.stderr,
      /has another CA than .*: bring its keys to this host with 'orchlet join --control-plane'/,
    );
  });

  test('services that are created at all servers at the same time get different addresses and ports', async () => {
    const made = await Promise.all(
      Array.from({ length: 60 }, (_, at) => {
        const spec = { type: 'NodePort', ports: [{ port: 80 }] };
        const object = { apiVersion: 'v1', kind: 'Service', metadata: { name: `s${at}`, namespace: 'default' }, spec };
        return planes[at % 3]?.client.create(services, 'default', object as KubeObject);
      }),
    );
    const specs = made.map((one) => one?.['spec'] as { clusterIP: string; ports: { nodePort: number }[] });
    assert.equal(new Set(specs.map(({ clusterIP }) => clusterIP)).size, 60);
    assert.equal(new Set(specs.map(({ ports }) => ports[0]?.nodePort)).size, 60);
  });

  test('controllers and scheduler are taken over when their leader is killed, and agents change over', async () => {
    await deploy('first', 6);
    await running('first', 6);
    const killed = await leaderOf('kube-controller-manager');
    const fromMs = performance.now();
    await kill(killed);
    await deploy('second', 6);
    await running('second', 6);
    const tookMs = Math.round(performance.now() - fromMs);
    process.stdout.write(`# 6 pods run ${tookMs} ms after the leader of the controllers was killed\n`);
    await until('the address of the killed server to go', async () => !(await published()).includes(killed.address));
    await restart(killed);
    await until('the address of the restarted server', async () => (await published()).includes(killed.address));
    const scheduler = await leaderOf('kube-scheduler');
    await kill(scheduler);
    await deploy('third', 6);
    await running('third', 6);
    await restart(scheduler);
  });

  test('agents stay ready while one server after the other is killed', async () => {
    for (const plane of planes) {
      await kill(plane);
      const renewals = async (): Promise<readonly string[]> => {
        const { items } = await client.list(leases, { namespace: 'kube-node-lease' });
        return items.map(({ spec }) => spec?.renewTime ?? '');
      };
      const before = await renewals();
      await until('all agents to renew their leases', async () => {
        const now = await renewals();
        return now.every((time, at) => time > (before[at] ?? ''));
      });
      const { items } = await client.list(nodes);
      const ready = items.map(({ status }) => status?.conditions?.find(({ type }) => type === 'Ready')?.status);
      assert.deepEqual(ready, ['True', 'True', 'True']);
      await restart(plane);
    }
  });

  test('a leader that was frozen beyond its lease writes nothing when it goes on, and agents leave it', async () => {
    const frozen = await leaderOf('kube-controller-manager');
    frozen.child.kill('SIGSTOP');
    await deploy('fourth', 4);
    await running('fourth', 4);
    const { items } = await client.list(nodes);
    const ready = items.map(({ status }) => status?.conditions?.find(({ type }) => type === 'Ready')?.status);
    assert.deepEqual(ready, ['True', 'True', 'True']);
    frozen.child.kill('SIGCONT');
    await until('the end of its term', async () =>
      (await textOf(frozen, '/metrics')).includes('leader_election_master_status{name="kube-controller-manager"} 0'),
    );
    await isReady(frozen);
  });

  test('etcd loses its leader and a server stops cleanly: writes go on, and another one leads at once', async () => {
    etcds[0]?.kill('SIGKILL');
    await until('a write', async () => {
      const metadata = { name: 'written', namespace: 'default' };
      return client.create(configMaps, 'default', { apiVersion: 'v1', kind: 'ConfigMap', metadata } as never);
    });
    const leader = await leaderOf('kube-controller-manager');
    const ended = once(leader.child, 'exit');
    leader.child.kill('SIGTERM');
    assert.equal((await ended)[0], 0);
    assert.equal((await published()).includes(leader.address), false, 'it took its address away');
    const next = await leaderOf('kube-controller-manager');
    assert.notEqual(next.address, leader.address);
  });

  test('no pod was started twice, and no address given twice', async () => {
    const { items } = await client.list(pods, { namespace: 'default' });
    assert.equal(items.length, 22, 'no controller created a pod too much');
    const started = agents.flatMap(({ host }) => [...host.sandboxes.values()].map(({ pod }) => pod.uid));
    const wanted = items.map(({ metadata }) => metadata.uid ?? '').toSorted();
    assert.deepEqual(started.toSorted(), wanted);
    const containers = agents.flatMap(({ host }) => [...host.containers.values()]);
    assert.equal(containers.length, 22);
    const ips = (await client.list(services)).items.map(({ spec }) => spec?.clusterIP ?? '');
    assert.equal(new Set(ips).size, ips.length);
  });
}
