/** Causes the faults of a soak test of several control planes on one etcd. A fault ends before the servers are ready again. */
import { systemClock } from '../../../api/machinery/clock.ts';
import { compactThrough } from '../../../controlplane/storage/etcd/etcd-compactor.ts';
import type { EtcdProcess } from '../../etcd-process.ts';
import type { HeldProxy } from '../../held-proxy.ts';
import { until } from '../../until.ts';
import { count, type Recording } from '../clients.ts';
import type { Random } from '../random.ts';
import type { SoakServer } from './servers.ts';

export interface Scene {
  readonly servers: readonly SoakServer[];
  readonly members: readonly EtcdProcess[];
  readonly random: Random;
  readonly recording: Recording;
  /** What broke a promise that the clients' records do not show. */
  readonly problems: string[];
}

const MAPS = '/api/v1/namespaces/default/configmaps';
/** How far the clocks of servers are apart at most. */
export const CLOCKS_SECONDS = 60;
/** What one transaction of a slow etcd takes. */
const SLOW_MS = 1000;

const sleep = (ms: number): Promise<void> => systemClock.sleep(ms);

/** Proxies are cut, held or slowed, and healed again. */
async function disturbNetwork(
  { recording }: Scene,
  proxies: readonly (HeldProxy | undefined)[],
  disturb: (proxy: HeldProxy) => void,
  forMs: number,
): Promise<void> {
  const concerned = proxies.filter((proxy) => proxy !== undefined);
  count(recording, 'partitions');
  for (const proxy of concerned) disturb(proxy);
  await sleep(forMs);
  for (const proxy of concerned) proxy.heal();
}

function killServer({ servers, random, recording }: Scene, signal: NodeJS.Signals): void {
  count(recording, 'kills');
  random.pick(servers).kill(signal);
}

async function killMembers({ recording, random }: Scene, killed: readonly EtcdProcess[]): Promise<void> {
  for (const _ of killed) count(recording, 'kills');
  await Promise.all(killed.map((member) => member.stop('SIGKILL')));
  await sleep(random.between(0, 4000));
  await Promise.all(killed.map((member) => member.launch()));
}

async function leaderOf(members: readonly EtcdProcess[]): Promise<EtcdProcess> {
  return until('a leader of etcd', async () => {
    for (const member of members) if (await member.isLeader()) return member;
    return undefined;
  });
}

/** The faults by name. Each resolves when it is over. */
export const ETCD_FAULTS: Readonly<Record<string, (scene: Scene) => Promise<void>>> = {
  async 'server-killed'(scene) {
    killServer(scene, 'SIGKILL');
    await sleep(scene.random.between(0, 2000));
  },
  async 'server-terminated'(scene) {
    killServer(scene, 'SIGTERM');
    await sleep(scene.random.between(0, 2000));
  },
  async 'servers-killed'({ servers, random, recording }) {
    for (const server of servers) {
      count(recording, 'kills');
      server.kill('SIGKILL');
    }
    await sleep(random.between(0, 2000));
  },
  async 'member-killed'(scene) {
    await killMembers(scene, [scene.random.pick(scene.members)]);
  },
  async 'leader-killed'(scene) {
    await killMembers(scene, [await leaderOf(scene.members)]);
  },
  /** Only what is on disks survives, as after a power failure. */
  async 'members-killed'(scene) {
    await killMembers(scene, scene.members);
  },
  async 'member-paused'({ members, random }) {
    const member = random.pick(members);
    await member.pause();
    await sleep(random.between(500, 6000));
    member.resume();
  },
  /** Other members do not reach one, which still reaches them. */
  async 'peers-cut-off'(scene) {
    const { members, random } = scene;
    await disturbNetwork(scene, [random.pick(members).peers], (proxy) => proxy.cut(), random.between(500, 6000));
  },
  async 'server-cut-off'(scene) {
    const { servers, random } = scene;
    await disturbNetwork(scene, random.pick(servers).proxies, (proxy) => proxy.cut(), random.between(200, 5000));
  },
  /** The connections of a server stay open, and new ones are accepted, but they carry nothing. */
  async 'server-held'(scene) {
    const { servers, random } = scene;
    await disturbNetwork(scene, random.pick(servers).proxies, (proxy) => proxy.hold(), random.between(500, 8000));
  },
  async 'etcd-slow'(scene) {
    const proxies = scene.servers.flatMap((server) => server.proxies);
    await disturbNetwork(scene, proxies, (proxy) => proxy.slow(SLOW_MS), scene.random.between(3000, 8000));
  },
  async 'etcd-full'(scene) {
    await withoutSpace(scene);
  },
  async 'clock-jumps'({ servers, random }) {
    random.pick(servers).clockAhead(random.between(-CLOCKS_SECONDS, CLOCKS_SECONDS));
    await sleep(random.between(200, 1000));
  },
  async 'cut-off-and-compacted'(scene) {
    const { servers, members, random, recording } = scene;
    count(recording, 'partitions');
    const { proxies } = random.pick(servers);
    for (const proxy of proxies) proxy.cut();
    await sleep(random.between(500, 2000));
    const etcd = await random.pick(members).connect();
    try {
      const { header } = await etcd.run((rpc, options) => rpc.call('range', { key: Buffer.from('x') }, options));
      await compactThrough(etcd, header?.revision ?? 1);
    } finally {
      etcd.close();
      for (const proxy of proxies) proxy.heal();
    }
  },
};

/** Lets etcd run out of space. Writes then end with a clear error, reads go on, and deletions succeed. */
async function withoutSpace({ servers, members, random, recording, problems }: Scene): Promise<void> {
  const { api } = random.pick(servers);
  const member = random.pick(members);
  const name = `full-${random.between(0, 1e9)}`;
  await until('a write', async () => (await api.call('POST', MAPS, { metadata: { name } })).status === 201);
  await member.asMember((etcd) => etcd.raiseNoSpace());
  try {
    const write = async (): Promise<boolean> => {
      const { status, body } = await api.call('POST', MAPS, { metadata: { name: `${name}-refused` } });
      return status === 500 && body.message?.includes('database space exceeded') === true;
    };
    // The alarm reaches one member after the other.
    await until('a write to be refused for lack of space', write, 20_000);
    const read = await api.call('GET', `${MAPS}/${name}`);
    if (read.status !== 200) problems.push(`a read gives ${read.status} while etcd has no space: ${read.body.message}`);
    const ready = await api.call('GET', '/readyz');
    if (ready.status !== 500) problems.push(`/readyz gives ${ready.status} while etcd has no space`);
    const deleted = await api.call('DELETE', `${MAPS}/${name}`);
    if (deleted.status !== 200) problems.push(`a deletion gives ${deleted.status} while etcd has no space`);
    await sleep(random.between(0, 2000));
  } catch (error) {
    problems.push(String(error));
  } finally {
    let ended = 0;
    await until('the end of all alarms', async () => {
      const found = await member.disarm();
      ended += found;
      return found === 0;
    });
    if (ended > 1) count(recording, 'alarms that came back');
  }
  const again = async (): Promise<boolean> => (await api.call('POST', MAPS, { metadata: { name } })).status === 201;
  await until('a write after the alarm', again, 20_000).catch((error: unknown) => problems.push(String(error)));
}
