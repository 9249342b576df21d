import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { AddressBinder } from '../../../../../agent/network/podaddresses/address-binder.ts';
import { addressScript, type PodInterface } from '../../../../../agent/network/podaddresses/address-rules.ts';
import type { BridgePorts } from '../../../../../agent/network/podaddresses/pod-interface.ts';
import { serviceOptions } from '../../../../../agent/options/services.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';
import { until } from '../../../../until.ts';

const one: PodInterface = { port: 'veth1', index: 11, mac: '02:00:00:00:00:11', addresses: ['10.0.0.1', 'fe80::1'] };
const two: PodInterface = { port: 'veth2', index: 12, mac: '02:00:00:00:00:12', addresses: ['10.0.0.2', 'fd00::2'] };

/** Returns a host whose pods are at the ports of `pods`, by their sandboxes. */
function setUp(pods: Record<string, PodInterface>, strangers: readonly number[] = []) {
  const directory = temporaryFolder();
  const clock = new FakeClock();
  const host = { pods, strangers, scripts: [] as string[], hasTable: true, lists: 0, asked: [] as string[] };
  const sandboxes = (): string[] => Object.keys(host.pods);
  const ports: BridgePorts = {
    list() {
      host.lists += 1;
      return Promise.resolve(
        new Map([
          ...Object.values(host.pods).map(({ index, port }) => [index, port] as const),
          ...host.strangers.map((index) => [index, `veth${index}`] as const),
        ]),
      );
    },
    find: (pid) => Promise.resolve(Object.values(host.pods)[pid - 1]),
  };
  const newBinder = (): AddressBinder =>
    new AddressBinder({
      ...{ clock, logger: silentLogger, table: 'bound' },
      nft: {
        run(script) {
          host.scripts.push(script);
          host.hasTable = true;
          return Promise.resolve();
        },
        problem: () => Promise.resolve(''),
        hasTable: () => Promise.resolve(host.hasTable),
      },
      ports,
      file: () => Promise.resolve(join(directory, 'bindings.json')),
      processOf(id) {
        host.asked.push(id);
        return id === 'broken' ? Promise.reject(new Error('no answer')) : Promise.resolve(sandboxes().indexOf(id) + 1);
      },
      onUnbound: (problem) => assert.fail(problem),
    });
  /** Runs an inspection of a new process, and returns what it wrote. */
  async function inspect(): Promise<readonly string[]> {
    host.scripts.length = 0;
    const stop = new AbortController();
    const running = newBinder().run(stop.signal);
    await until('the pause', () => clock.pendingTimers > 0);
    stop.abort(new Error('the test ends'));
    await running;
    return [...host.scripts];
  }
  return { host, newBinder, inspect };
}

/** Returns the lines of a chain. */
function chain(name: string, script: string): readonly string[] {
  const lines = script.split('\n').map((line) => line.trim());
  const start = lines.indexOf(`chain ${name} {`) + 1;
  return lines.slice(start, lines.indexOf('}', start));
}

describe('the rules that bind pods to their addresses', () => {
  it('concern the ports that they name by index alone, so that they drop nothing of the pods of other agents', () => {
    const script = addressScript('bound', [one, two], [40, 41]);
    assert.deepEqual(chain('prerouting', script), [
      'type filter hook prerouting priority -300; policy accept;',
      'iif vmap { 11 : goto port_11, 12 : goto port_12, 40 : goto unbound, 41 : goto unbound }',
    ]);
    assert.equal(script.match(/hook/g)?.length, 1);
  });

  it('forbid other ports the addresses that pods are bound to, except link-local ones, which each link has', () => {
    assert.deepEqual(chain('unbound', addressScript('bound', [one, two], [40])), [
      'ip saddr { 10.0.0.1, 10.0.0.2 } drop',
      'arp saddr ip { 10.0.0.1, 10.0.0.2 } drop',
      'ip6 saddr { fd00::2 } drop',
    ]);
  });

  it('are none without bindings', () => {
    assert.equal(addressScript('bound', [], [40]), 'add table bridge bound\ndelete table bridge bound\n');
  });

  it('take no text for a hardware address', () => {
    assert.throws(
      () => addressScript('bound', [{ ...one, mac: '02:00 accept' }], []),
      /the port veth1 has a malformed MAC address/,
    );
  });
});

describe('the agent that binds pods to their addresses', () => {
  it('does so by default', () => {
    assert.equal(serviceOptions.bindPodAddresses.default, true);
  });

  it('names the ports without a binding, and writes again when others come or go', async () => {
    const { host, newBinder, inspect } = setUp({ a: one, b: two }, [40]);
    const binder = newBinder();
    await binder.bind('a', ['10.0.0.1']);
    await binder.bind('b', ['10.0.0.2']);
    assert.deepEqual(host.scripts, [addressScript('bound', [one], [12, 40]), addressScript('bound', [one, two], [40])]);
    host.strangers = [41];
    assert.deepEqual(await inspect(), [addressScript('bound', [one, two], [41])]);
  });

  it('drops the binding of a port that is gone, and the table with the last one', async () => {
    const { host, newBinder, inspect } = setUp({ a: one, b: two });
    const binder = newBinder();
    await binder.bind('a', ['10.0.0.1']);
    await binder.bind('b', ['10.0.0.2']);
    host.pods = { b: two };
    assert.deepEqual(await inspect(), [addressScript('bound', [two], [])]);
    host.pods = {};
    assert.deepEqual(await inspect(), [addressScript('bound', [], [])]);
    assert.deepEqual(await inspect(), []);
  });

  it('gives an address to the pod that has it last', async () => {
    const later = { ...two, addresses: one.addresses };
    const { host, newBinder } = setUp({ a: one, b: later });
    const binder = newBinder();
    await binder.bind('a', ['10.0.0.1']);
    await binder.bind('b', ['10.0.0.1']);
    assert.equal(host.scripts.at(-1), addressScript('bound', [later], [11]));
  });

  it('refuses a port that another pod is bound to, which a pod could name in its interface', async () => {
    const { host, newBinder } = setUp({ a: one, b: { ...two, index: one.index } });
    const binder = newBinder();
    await binder.bind('a', ['10.0.0.1']);
    host.pods = { a: one, b: { ...two, index: one.index, port: one.port } };
    await assert.rejects(binder.bind('b', ['10.0.0.2']), /bound to another pod/);
    assert.equal(host.scripts.length, 1);
  });

  it('binds the sandboxes that wait at the same time by one write, of which each fails alone', async () => {
    const { host, newBinder } = setUp({ a: one, b: two });
    const binder = newBinder();
    const results = await Promise.allSettled([
      binder.bind('a', ['10.0.0.1']),
      binder.bind('broken', ['10.0.0.9']),
      binder.bind('b', ['10.0.0.2']),
      binder.bind('a', ['10.0.0.1']),
    ]);
    assert.deepEqual(
      results.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled', 'fulfilled'],
    );
    assert.deepEqual(host.scripts, [addressScript('bound', [one, two], [])]);
    assert.equal(host.lists, 1);
  });

  it('does not ask the runtime for its processes where no bridge of the agent has a port', async () => {
    const { host, newBinder } = setUp({});
    await newBinder().bind('elsewhere', ['10.0.0.1']);
    assert.deepEqual([host.asked, host.scripts], [[], []]);
  });
});
