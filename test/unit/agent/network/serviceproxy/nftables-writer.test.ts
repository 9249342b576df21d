/** The writer of nftables rules writes differences, and the whole table when it cannot know what the kernel has. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Nftables } from '../../../../../agent/network/nftables.ts';
import type { PacketFilter } from '../../../../../agent/network/serviceproxy/iptables.ts';
import { hasForeignRules } from '../../../../../agent/network/serviceproxy/iptables-rules.ts';
import { NftablesWriter } from '../../../../../agent/network/serviceproxy/nftables-writer.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { servicePort, SETTINGS } from './service-port.ts';

const ADDED = { before: [], after: [servicePort()] };

function setUp() {
  const scripts: string[] = [];
  const applied: string[] = [];
  const state = { fails: false, hasTable: true, filterTable: [] as string[], problem: '', clients: 0 };
  const nft: Nftables = {
    async run(script) {
      if (state.fails) throw new Error('nft: Device or resource busy');
      scripts.push(script);
    },
    async problem(script) {
      scripts.push(script);
      return state.problem;
    },
    hasTable: async () => state.hasTable,
    async expiringElements() {
      state.clients += 1;
      return new Map();
    },
    async remove(table, type) {
      scripts.push(`remove ${type} ${table}`);
    },
  };
  const filter = {
    filterTable: async () => state.filterTable,
    apply: async (_family: string, rules: string) => void applied.push(rules),
    ensureJumps: async () => void applied.push('jumps'),
  } as unknown as PacketFilter;
  const clock = new FakeClock();
  return { writer: new NftablesWriter({ nft, filter, table: 'services', clock }), scripts, applied, state, clock };
}

describe('a transaction', () => {
  it('begins with the whole table, then has what differs, and is left out if nothing does', async () => {
    const { writer, scripts } = setUp();
    await writer.write(SETTINGS, [ADDED]);
    assert.match(scripts[0] ?? '', /table ip services/);
    assert.match(scripts[0] ?? '', /10\.96\.0\.7 \. tcp \. 80/);
    await writer.write(SETTINGS, []);
    assert.equal(scripts.length, 1);
    const other = servicePort({ id: 'shop/api:http', clusterIp: '10.96.0.8' });
    await writer.write(SETTINGS, [{ before: [], after: [other] }]);
    assert.match(scripts[1] ?? '', /10\.96\.0\.8/);
    assert.doesNotMatch(scripts[1] ?? '', /10\.96\.0\.7/);
  });

  it('has the whole table again after one that failed, and after the table was lost', async () => {
    const { writer, scripts, state } = setUp();
    await writer.write(SETTINGS, [ADDED]);
    state.fails = true;
    const other = servicePort({ id: 'shop/api:http', clusterIp: '10.96.0.8' });
    await assert.rejects(writer.write(SETTINGS, [{ before: [], after: [other] }]), /busy/);
    state.fails = false;
    await writer.write(SETTINGS, []);
    for (const address of [/10\.96\.0\.7/, /10\.96\.0\.8/]) assert.match(scripts.at(-1) ?? '', address);
    state.hasTable = false;
    assert.equal(await writer.intact('IPv4'), false);
    writer.forget('IPv4');
    await writer.write(SETTINGS, []);
    assert.match(scripts.at(-1) ?? '', /10\.96\.0\.7/);
  });

  it('keeps the clients of services with affinity when the whole table is written again', async () => {
    const { writer, state } = setUp();
    const port = servicePort({ affinitySeconds: 60 });
    await writer.write(SETTINGS, [{ before: [], after: [port] }]);
    assert.equal(state.clients, 1);
    await writer.write(SETTINGS, [{ before: [port], after: [{ ...port, port: 81 }] }]);
    assert.equal(state.clients, 1);
    writer.forget('IPv4');
    await writer.write(SETTINGS, []);
    assert.equal(state.clients, 2);
  });
});

describe('rules of other programs', () => {
  const DROPS = [':INPUT ACCEPT [0:0]', ':FORWARD DROP [12:720]'];

  it('are made to accept the connections of services at the first write and at each check, where there are any', async () => {
    const { writer, applied, state } = setUp();
    await writer.write(SETTINGS, [ADDED]);
    assert.deepEqual(applied, []);
    state.filterTable = DROPS;
    assert.equal(await writer.intact('IPv4'), true);
    assert.equal(applied.length, 2);
    assert.match(applied[0] ?? '', /0x4000/);
    assert.equal(applied[1], 'jumps');
  });

  it('stay as they are while they accept the connections, wherever Docker wants the jumps', async () => {
    const { writer, applied, state } = setUp();
    state.filterTable = DROPS;
    await writer.write(SETTINGS, [ADDED]);
    const accepts = (applied[0] ?? '').split('\n').filter((line) => line.startsWith('-A'));
    const jumps = ['-A INPUT -j ORC-ACCEPT', '-A FORWARD -j ORC-ACCEPT'];
    const written = async (table: readonly string[]): Promise<boolean> => {
      applied.length = 0;
      state.filterTable = [...table];
      await writer.intact('IPv4');
      return applied.length > 0;
    };
    assert.equal(await written([...DROPS, ...accepts, ...jumps]), false);
    for (const line of [...accepts, ...jumps])
      assert.equal(await written([...DROPS, ...accepts, ...jumps].filter((each) => each !== line)), true, line);
    const docker = [...DROPS, ':DOCKER-USER - [0:0]', ...accepts];
    assert.equal(await written([...docker, ...jumps]), true);
    assert.equal(await written([...docker, '-A INPUT -j ORC-ACCEPT', '-A DOCKER-USER -j ORC-ACCEPT']), false);
  });
});

for (const { table, isForeign } of [
  { table: [], isForeign: false },
  { table: [':INPUT ACCEPT [1:2]', ':FORWARD ACCEPT [0:0]', '-A INPUT -j ORC-ACCEPT'], isForeign: false },
  { table: [':INPUT ACCEPT [1:2]', ':FORWARD ACCEPT [0:0]', '-A OUTPUT -j ufw-out'], isForeign: false },
  { table: [':INPUT DROP [1:2]', ':FORWARD ACCEPT [0:0]'], isForeign: true },
  { table: [':INPUT ACCEPT [1:2]', ':FORWARD ACCEPT [0:0]', '-A FORWARD -j DOCKER-USER'], isForeign: true },
])
  it(`a table ${JSON.stringify(table)} ${isForeign ? 'has' : 'has no'} rules of others that may drop packets`, () => {
    assert.equal(hasForeignRules(table), isForeign);
  });

it('a host is asked for every expression of the rules before the writer is used', async () => {
  const { writer, scripts, state } = setUp();
  state.problem = 'Error: syntax error, unexpected map';
  assert.equal(await writer.problem(), state.problem);
  for (const part of ['services-probe', 'numgen', 'update @', 'dnat']) assert.ok(scripts[0]?.includes(part), part);
});

it('chains of removed services are deleted later, when the kernel has forgotten their references', async () => {
  const { writer, scripts, clock } = setUp();
  const port = servicePort();
  await writer.write(SETTINGS, [{ before: [], after: [port] }]);
  await writer.write(SETTINGS, [{ before: [port], after: [] }]);
  const before = scripts.length;
  await clock.advance(60_000);
  await writer.intact('IPv4');
  assert.deepEqual(
    scripts.slice(before).map((script) => script.includes('delete chain')),
    [true],
  );
});

it('the removal takes the whole table of the family', async () => {
  const { writer, scripts } = setUp();
  await writer.remove('IPv6');
  assert.deepEqual(scripts, ['remove ip6 services']);
});
