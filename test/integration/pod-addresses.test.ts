/**
 * Tests that pods of one node cannot pass for each other. Network namespaces behind a bridge take the place of pods; one of
 * them sends frames as a container with `NET_RAW` could. Each attack succeeds until the pods are bound to their addresses.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { AddressBinder } from '../../agent/network/podaddresses/address-binder.ts';
import { addressRulesProblem } from '../../agent/network/podaddresses/address-rules.ts';
import { bridgePorts } from '../../agent/network/podaddresses/pod-interface.ts';
import { hostNftables } from '../../agent/network/nftables.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { until } from '../until.ts';
import { checksum, ip, packet } from './raw-packets.ts';
import { run } from './running-cluster.ts';
import { namespacePrefix } from './test-namespaces.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const NODE = namespacePrefix('ad');
const PREFIX = ['ip', 'netns', 'exec', NODE];
const TABLE = 'orchlet_addresses_test';
const NODE_IPS = ['10.77.0.1', 'fd77::1'] as const;
const LIST_TABLE = [...PREFIX.slice(1), 'nft', 'list', 'table', 'bridge', TABLE];
const nft = hostNftables(PREFIX);

async function whyNot(): Promise<string | false> {
  const made = spawnSync('ip', ['netns', 'add', NODE], { encoding: 'utf8' });
  if (made.status !== 0) return `this host makes no network namespaces: ${made.error?.message ?? made.stderr}`;
  const problem = await addressRulesProblem(nft, TABLE);
  if (problem !== '') spawnSync('ip', ['netns', 'delete', NODE]);
  return problem === '' ? false : problem;
}

const skip = await whyNot();

interface Pod {
  readonly namespace: string;
  readonly port: string;
  readonly bridge: string;
  readonly ips: readonly [string, string];
  mac: string;
  holder: ChildProcess | undefined;
}

const pod = (name: string, port: number, address = port, bridge = 'pods'): Pod => ({
  ...{ namespace: `${NODE}${name}`, port: `veth${port}`, bridge },
  ips: [`10.77.0.${address}`, `fd77::${address}`],
  ...{ mac: '', holder: undefined },
});

/** Sends frames from `eth0` of a namespace. The arguments are its index and the frames in hexadecimal. */
const SEND = `socket(my $s, 17, 3, 768) or die $!; my $i = shift;
bind($s, pack("SnlSCCa8", 17, 3, $i, 0, 0, 0, "")) or die $!;
for (@ARGV) { defined send($s, pack("H*", $_), 0) or die $! }`;

const hex = (mac: string): string => mac.replaceAll(':', '');
const arpReply = (of: string, mac: string, to: { readonly ip: string; readonly mac: string }): string =>
  `08060001080006040002${hex(mac)}${ip(of)}${hex(to.mac)}${ip(to.ip)}`;

/**
 * Returns an ICMPv6 message of neighbor discovery in hexadecimal. The option with the address of the link follows the target.
 * `type`: 136 is an advertisement, 134 one of a router.
 */
function neighborMessage(type: number, from: string, to: string, body: string): string {
  const message = (sum: string): string => `${type.toString(16)}00${sum}${body}`;
  const length = (message('0000').length / 2).toString(16).padStart(4, '0');
  const pseudo = `${ip(from)}${ip(to)}0000${length}0000003a${message('0000')}`;
  return `86dd60000000${length}3aff${ip(from)}${ip(to)}${message(checksum(Buffer.from(pseudo, 'hex')))}`;
}

const advertisement = (of: string, mac: string, from: string): string =>
  neighborMessage(136, from, NODE_IPS[1], `20000000${ip(of)}0201${hex(mac)}`);

describe('the addresses of pods on one bridge', { skip, timeout: 120_000 }, () => {
  const [attacker, victim, other] = [pod('a', 2), pod('b', 3), pod('c', 4)];
  const pods = [attacker, victim, other];
  const directory = temporaryFolder();
  const nodeMac = '02:00:00:00:77:01';

  const inside = ({ namespace }: Pod, ...args: readonly string[]): string =>
    run('ip', ['netns', 'exec', namespace, ...args]);

  /** Creates the binder of an agent, whose table has the name of the agent. */
  const newBinder = (agent = 'test', bridge = 'pods'): AddressBinder =>
    new AddressBinder({
      ...{ nft, table: `orchlet_addresses_${agent}`, clock: systemClock, logger: silentLogger },
      ports: bridgePorts([bridge], {
        prefix: PREFIX,
        devices: () => Promise.resolve(run('ip', [...PREFIX.slice(1), 'cat', '/proc/net/dev'])),
      }),
      file: () => Promise.resolve(join(directory, `${agent}.json`)),
      processOf: (id) => Promise.resolve(pods.find(({ namespace }) => namespace === id)?.holder?.pid ?? 0),
      onUnbound: (problem) => assert.fail(problem),
    });

  async function createPod(created: Pod): Promise<void> {
    const { namespace, port, ips, bridge } = created;
    run('ip', ['netns', 'add', namespace]);
    run('ip', ['-n', NODE, 'link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace]);
    run('ip', ['-n', NODE, 'link', 'set', port, 'master', bridge, 'up']);
    inside(created, 'ip', 'address', 'add', `${ips[0]}/24`, 'dev', 'eth0');
    inside(created, 'ip', 'address', 'add', `${ips[1]}/64`, 'dev', 'eth0', 'nodad');
    inside(created, 'ip', 'link', 'set', 'eth0', 'up');
    created.holder = spawn('ip', ['netns', 'exec', namespace, 'sleep', '300'], { stdio: 'ignore' });
    await once(created.holder, 'spawn');
    await until('the link-local address of the pod', () => !inside(created, 'ip', 'address').includes('tentative'));
    created.mac = inside(created, 'cat', '/sys/class/net/eth0/address').trim();
    const seen = 'table netdev seen { chain in { type filter hook ingress device eth0 priority 0; }; }';
    inside(created, 'nft', seen);
  }

  before(async () => {
    // Without an address of its own, a bridge takes the lowest one of its ports.
    run('ip', ['-n', NODE, 'link', 'add', 'pods', 'address', nodeMac, 'type', 'bridge']);
    run('ip', ['-n', NODE, 'address', 'add', `${NODE_IPS[0]}/24`, 'dev', 'pods']);
    run('ip', ['-n', NODE, 'address', 'add', `${NODE_IPS[1]}/64`, 'dev', 'pods', 'nodad']);
    run('ip', ['-n', NODE, 'link', 'set', 'pods', 'up']);
    for (const each of pods) await createPod(each);
    // Entries change at once, and not at most every second.
    run('ip', ['netns', 'exec', NODE, 'sh', '-c', 'echo 0 > /proc/sys/net/ipv4/neigh/pods/locktime']);
  });

  after(() => {
    for (const { holder } of pods) holder?.kill();
    for (const name of [...pods.map(({ namespace }) => namespace), NODE]) spawnSync('ip', ['netns', 'delete', name]);
    rmSync(directory, { recursive: true, force: true });
  });

  function send(from: Pod, to: string, what: string, source = from.mac): void {
    const [, index = ''] = /^(\d+):/.exec(inside(from, 'ip', 'link', 'show', 'eth0')) ?? [];
    inside(from, 'perl', '-e', SEND, index, `${hex(to)}${hex(source)}${what}`);
  }

  /** Whether the frame arrives at the third pod, where `match` recognizes it. */
  function arrives(
    what: string,
    match: string,
    {
      from = attacker,
      source = from.mac,
      at = other,
    }: { readonly from?: Pod; readonly source?: string; readonly at?: Pod } = {},
  ): boolean {
    inside(at, 'nft', `flush chain netdev seen in; add rule netdev seen in ${match} counter`);
    send(from, at.mac, what, source);
    return !inside(at, 'nft', 'list', 'table', 'netdev', 'seen').includes('packets 0 ');
  }

  /** Whether the node believes that `address` is at the pod that sends the frame. */
  function poisons(address: string, what: string, from = attacker): boolean {
    const entry = ['-n', NODE, 'neighbor', 'replace', address, 'dev', 'pods', 'nud', 'stale', 'lladdr'];
    run('ip', [...entry, '02:00:00:00:00:99']);
    send(from, nodeMac, what);
    return run('ip', ['-n', NODE, 'neighbor', 'show', address, 'dev', 'pods']).includes(from.mac);
  }

  /** Matches packets alone: pods send multicast listener reports and neighbor solicitations on their own, too. */
  const packetOf = (address: string): string => `ip6 saddr ${address} meta l4proto udp`;
  const linkLocal = (of: Pod): string => /inet6 (fe80[^/]+)/.exec(inside(of, 'ip', 'address'))?.[1] ?? '';
  const FREE = ['10.77.0.99', 'fd77::99'] as const;

  const attacks: Readonly<Record<string, () => boolean>> = {
    'an IPv4 packet of another pod': () => arrives(packet(victim.ips[0], other.ips[0]), `ip saddr ${victim.ips[0]}`),
    'an IPv6 packet of another pod': () => arrives(packet(victim.ips[1], other.ips[1]), packetOf(victim.ips[1])),
    'an IPv4 packet of nobody': () => arrives(packet(FREE[0], other.ips[0]), `ip saddr ${FREE[0]}`),
    'an IPv6 packet of nobody': () => arrives(packet(FREE[1], other.ips[1]), packetOf(FREE[1])),
    'a packet of the node': () => arrives(packet(NODE_IPS[0], other.ips[0]), `ip saddr ${NODE_IPS[0]}`),
    'an IPv6 packet without a source': () => arrives(packet('::', other.ips[1]), packetOf('::')),
    'a packet from the link-local address of another pod': () =>
      arrives(packet(linkLocal(victim), other.ips[1]), packetOf(linkLocal(victim))),
    'a frame with the hardware address of another pod': () =>
      arrives(packet(attacker.ips[0], other.ips[0]), `ether saddr ${victim.mac} ip saddr ${attacker.ips[0]}`, {
        source: victim.mac,
      }),
    'a packet of another pod with a VLAN tag': () =>
      arrives(`81000007${packet(victim.ips[0], other.ips[0])}`, `ether saddr ${attacker.mac} vlan id 7`),
    'an ARP reply for another pod': () =>
      poisons(victim.ips[0], arpReply(victim.ips[0], attacker.mac, { ip: NODE_IPS[0], mac: nodeMac })),
    'a neighbor advertisement for another pod': () =>
      poisons(victim.ips[1], advertisement(victim.ips[1], attacker.mac, attacker.ips[1])),
    'an advertisement of a router': () =>
      arrives(
        neighborMessage(134, linkLocal(attacker), 'ff02::1', `40000708${'00'.repeat(8)}`),
        'icmpv6 type nd-router-advert',
      ),
  };
  const honest: Readonly<Record<string, () => boolean>> = {
    'an IPv4 packet': () => arrives(packet(attacker.ips[0], other.ips[0]), `ip saddr ${attacker.ips[0]}`),
    'an IPv6 packet': () => arrives(packet(attacker.ips[1], other.ips[1]), packetOf(attacker.ips[1])),
    'a packet from its link-local address': () =>
      arrives(packet(linkLocal(attacker), other.ips[1]), packetOf(linkLocal(attacker))),
    'an ARP reply': () =>
      poisons(attacker.ips[0], arpReply(attacker.ips[0], attacker.mac, { ip: NODE_IPS[0], mac: nodeMac })),
    'a neighbor advertisement': () =>
      poisons(attacker.ips[1], advertisement(attacker.ips[1], attacker.mac, attacker.ips[1])),
    'the question whether an IPv6 address is free': () =>
      arrives(
        neighborMessage(135, '::', 'ff02::1:ff00:2', `00000000${ip(attacker.ips[1])}`),
        'ip6 saddr :: icmpv6 type nd-neighbor-solicit',
      ),
    'the question whether an address is free': () =>
      arrives(
        `08060001080006040001${hex(attacker.mac)}${ip('0.0.0.0')}${'00'.repeat(6)}${ip(attacker.ips[0])}`,
        'arp saddr ip 0.0.0.0',
      ),
  };
  const successful = (of: typeof attacks): readonly string[] => Object.keys(of).filter((name) => of[name]?.() === true);

  test('without rules, every attack succeeds', () => {
    assert.deepEqual(successful({ ...attacks, ...honest }), [...Object.keys(attacks), ...Object.keys(honest)]);
  });

  test('a pod that is bound to its addresses sends nothing in the name of others, and its own packets arrive', async () => {
    const binder = newBinder();
    for (const { namespace, ips } of pods) await binder.bind(namespace, ips);
    assert.deepEqual(successful(attacks), []);
    assert.deepEqual(successful(honest), Object.keys(honest));
  });

  test('a port without a binding has no address that a pod is bound to', async () => {
    const created = pod('e', 8, 8);
    pods.push(created);
    await createPod(created);
    const from = { from: created };
    const binder = newBinder();
    const stop = new AbortController();
    const running = binder.run(stop.signal);
    await until('the port in the table', () => run('ip', LIST_TABLE).includes(`${created.port}" : goto unbound`));
    stop.abort(new Error('the port is in the table'));
    await running;
    assert.ok(arrives(packet(created.ips[0], other.ips[0]), `ip saddr ${created.ips[0]}`, from));
    assert.ok(!arrives(packet(victim.ips[0], other.ips[0]), `ip saddr ${victim.ips[0]}`, from));
    assert.ok(!arrives(packet(victim.ips[1], other.ips[1]), packetOf(victim.ips[1]), from));
    assert.ok(
      !poisons(victim.ips[0], arpReply(victim.ips[0], created.mac, { ip: NODE_IPS[0], mac: nodeMac }), created),
    );
  });

  test('a pod that ran before it was bound gets no address of another one by adding it to its link', async () => {
    const created = pod('i', 20, 20);
    pods.push(created);
    await createPod(created);
    inside(created, 'ip', 'address', 'add', `${victim.ips[0]}/32`, 'dev', 'eth0', 'scope', 'link');
    await newBinder().bind(created.namespace, created.ips);
    const from = { from: created };
    assert.ok(arrives(packet(created.ips[0], other.ips[0]), `ip saddr ${created.ips[0]}`, from));
    assert.ok(arrives(packet(linkLocal(created), other.ips[1]), packetOf(linkLocal(created)), from));
    assert.ok(!arrives(packet(victim.ips[0], other.ips[0]), `ip saddr ${victim.ips[0]}`, from));
  });

  test('a restarted agent keeps the bindings, whatever a pod has made of its interface, and restores a lost table', async () => {
    inside(attacker, 'ip', 'address', 'add', `${victim.ips[0]}/32`, 'dev', 'eth0');
    run('ip', [...PREFIX.slice(1), 'nft', 'flush', 'ruleset']);
    const stop = new AbortController();
    const binder = newBinder();
    const running = binder.run(stop.signal);
    await binder.bind(attacker.namespace, [...attacker.ips, victim.ips[0]]);
    await until('the table', () => nft.hasTable(TABLE, 'bridge'));
    stop.abort(new Error('the test ends'));
    await running;
    assert.deepEqual(successful(attacks), []);
    assert.deepEqual(successful(honest), Object.keys(honest));
  });

  test('agents of one network namespace drop nothing of pods with the same addresses at the bridges of others', async () => {
    run('ip', ['-n', NODE, 'link', 'add', 'pods2', 'type', 'bridge']);
    run('ip', ['-n', NODE, 'link', 'set', 'pods2', 'up']);
    const [twin, peer] = [pod('f', 12, 2, 'pods2'), pod('g', 14, 4, 'pods2')];
    pods.push(twin, peer);
    await createPod(twin);
    await createPod(peer);
    const second = { from: twin, at: peer };
    const twinArrives = (): readonly boolean[] => [
      arrives(packet(twin.ips[0], peer.ips[0]), `ip saddr ${twin.ips[0]}`, second),
      arrives(packet(twin.ips[1], peer.ips[1]), packetOf(twin.ips[1]), second),
    ];
    assert.deepEqual(twinArrives(), [true, true]);
    const binder = newBinder('second', 'pods2');
    for (const { namespace, ips } of [twin, peer]) await binder.bind(namespace, ips);
    assert.deepEqual(twinArrives(), [true, true]);
    assert.ok(!arrives(packet(FREE[0], peer.ips[0]), `ip saddr ${FREE[0]}`, second));
    assert.deepEqual(successful(honest), Object.keys(honest));
    assert.deepEqual(successful(attacks), []);
  });

  test('a pod that is gone leaves its address to the next one', async () => {
    victim.holder?.kill();
    run('ip', ['netns', 'delete', victim.namespace]);
    await until('the end of its port', () => !run('ip', ['-n', NODE, 'link']).includes(`${victim.port}@`));
    const next = pod('d', 9, 3);
    pods.push(next);
    await createPod(next);
    await newBinder().bind(next.namespace, next.ips);
    assert.ok(arrives(packet(next.ips[0], other.ips[0]), `ip saddr ${next.ips[0]}`, { from: next }));
    assert.ok(arrives(packet(next.ips[1], other.ips[1]), packetOf(next.ips[1]), { from: next }));
  });

  test('the table of a killed agent drops nothing of a later pod that has the addresses and the port name of an earlier one', async () => {
    const [gone] = pods.splice(pods.indexOf(attacker), 1);
    gone?.holder?.kill();
    run('ip', ['netns', 'delete', attacker.namespace]);
    await until('the end of its port', () => !run('ip', ['-n', NODE, 'link']).includes(`${attacker.port}@`));
    const next = pod('h', 2);
    pods.push(next);
    await createPod(next);
    assert.ok(arrives(packet(next.ips[0], other.ips[0]), `ip saddr ${next.ips[0]}`, { from: next }));
    await newBinder('later').bind(next.namespace, next.ips);
    assert.ok(arrives(packet(next.ips[0], other.ips[0]), `ip saddr ${next.ips[0]}`, { from: next }));
    assert.ok(arrives(packet(next.ips[1], other.ips[1]), packetOf(next.ips[1]), { from: next }));
  });
});
