import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { PacketFilter } from '../../../../../agent/network/serviceproxy/iptables.ts';
import { IptablesWriter } from '../../../../../agent/network/serviceproxy/iptables-writer.ts';
import { proxyMetrics } from '../../../../../agent/network/serviceproxy/proxy-metrics.ts';
import { ServiceProxy } from '../../../../../agent/network/serviceproxy/service-proxy.ts';
import type { Family } from '../../../../../agent/network/serviceproxy/addresses.ts';
import type { NamespaceLock } from '../../../../../agent/network/namespace-lock.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { Informers } from '../../../../../api/client/informer.ts';
import type { EndpointSlice, Service } from '../../../../../api/kinds/kinds.ts';
import { endpointSlices, services } from '../../../../../api/client/resources.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

function service(name: string, address: string): Service {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'shop' },
    spec: { clusterIPs: [address], ports: [{ port: 80, protocol: 'TCP' }] },
  } as unknown as Service;
}

const held = new Set<string>();

function takeLock(name: string): NamespaceLock | undefined {
  if (held.has(name)) return undefined;
  held.add(name);
  return { close: () => void held.delete(name) };
}

function setUp(lockName: string) {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const metrics = new MetricsRegistry();
  const informers = new Informers({ client, clock, logger: silentLogger });
  const done = {
    applied: [] as string[],
    removed: [] as Family[],
    failures: 0,
    isIntact: true,
    unreadable: 0,
    problems: 0,
    unusable: 0,
    timeouts: 0,
  };
  const filter: PacketFilter = {
    apply(_family, rules) {
      if (done.failures > 0) {
        done.failures--;
        return Promise.reject(new Error('the tables are locked'));
      }
      done.applied.push(rules);
      return Promise.resolve();
    },
    ensureJumps: () => Promise.resolve(),
    filterTable: () => Promise.resolve([]),
    hasRules: () => Promise.resolve(true),
    intact: () =>
      done.unreadable-- > 0 ? Promise.reject(new Error('the tables are locked')) : Promise.resolve(done.isIntact),
    chains: () => Promise.resolve(new Set(['ORC-SVC-OF-A-KILLED-AGENT'])),
    remove: (family) => Promise.resolve(void done.removed.push(family)),
    problem: () => {
      done.problems++;
      return done.unusable-- > 0 ? Promise.reject(new Error('iptables was killed')) : Promise.resolve('');
    },
  };
  const proxy = new ServiceProxy({
    services: informers.for(services),
    slices: informers.for(endpointSlices),
    writers: [new IptablesWriter(filter, clock)],
    otherWriters: [],
    async *conntrack() {},
    observer: proxyMetrics(metrics, clock),
    clock,
    logger: silentLogger,
    masqueradeBit: 14,
    place: () => ({ nodeName: 'here', zone: '' }),
    podCidrs: () => [],
    setTimeouts: () => Promise.resolve(void done.timeouts++),
    takeLock: () => Promise.resolve(takeLock(lockName)),
  });
  return { clock, client, informers, proxy, done, metrics };
}

const settle = async (clock: FakeClock, until: () => boolean): Promise<void> => {
  const limitMs = performance.now() + 60_000;
  while (!until()) {
    assert.ok(performance.now() < limitMs, 'the condition is never met');
    await clock.advance(500);
  }
};

describe('the service proxy', () => {
  it('sends nothing to the endpoints of a slice while it has the label of headless services', async () => {
    const { clock, client, informers, proxy, done } = setUp(`test-proxy-headless-${process.pid}`);
    const running = proxy.run(new AbortController().signal);
    await client.create(services, 'shop', service('web', '10.96.0.7'));
    const labels = { 'kubernetes.io/service-name': 'web' };
    const slice = {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: 'web-1', namespace: 'shop', labels },
      addressType: 'IPv4',
      ports: [{ port: 8080, protocol: 'TCP' }],
      endpoints: [{ addresses: ['10.0.0.9'], conditions: { ready: true } }],
    } as unknown as EndpointSlice;
    const created = await client.create(endpointSlices, 'shop', slice);
    await settle(clock, () => done.applied.at(-1)?.includes('10.0.0.9:8080') === true);
    const applied = done.applied.length;
    const metadata = { ...created.metadata, labels: { ...labels, 'service.kubernetes.io/headless': '' } };
    await client.update(endpointSlices, { ...created, metadata });
    await settle(clock, () => done.applied.length > applied);
    assert.match(done.applied.at(-1) ?? '', /-d 10\.96\.0\.7 .*-j REJECT/);
    await proxy.close({ remove: true });
    await running;
    await informers.close();
  });

  it('applies a change once, and deletes the chains of a killed agent with the first rules', async () => {
    const { clock, client, informers, proxy, done } = setUp(`test-proxy-a-${process.pid}`);
    const running = proxy.run(new AbortController().signal);
    await settle(clock, () => done.applied.length === 1);
    assert.match(done.applied[0] ?? '', /-X ORC-SVC-OF-A-KILLED-AGENT/);
    await client.create(services, 'shop', service('web', '10.96.0.7'));
    await settle(clock, () => done.applied.length === 2);
    assert.match(done.applied[1] ?? '', /-d 10\.96\.0\.7 /);
    proxy.changed();
    await clock.advance(5_000);
    assert.equal(done.applied.length, 2, 'nothing has changed');
    assert.equal(done.timeouts, 1, 'once, after the first rules');
    await proxy.close({ remove: true });
    await running;
    await informers.close();
    assert.deepEqual(done.removed, ['IPv4', 'IPv6'], 'an earlier agent may have had services with IPv6');
  });

  it('sets the times of connections with the first rules that are written, also after a failure', async () => {
    const { clock, informers, proxy, done } = setUp(`test-proxy-times-${process.pid}`);
    done.failures = 1;
    const running = proxy.run(new AbortController().signal);
    await settle(clock, () => done.applied.length === 1);
    await clock.advance(500);
    assert.equal(done.timeouts, 1);
    await proxy.close({ remove: true });
    await running;
    await informers.close();
  });

  it('retries after a failure, and restores removed jumps', async () => {
    const { clock, informers, proxy, done, metrics } = setUp(`test-proxy-b-${process.pid}`);
    done.failures = 1;
    const running = proxy.run(new AbortController().signal);
    await settle(clock, () => done.applied.length === 1);
    assert.match(metrics.text(), /iptables_restore_failures_total\{ip_family="IPv4"\} 1\n/);
    assert.match(metrics.text(), /sync_proxy_rules_duration_seconds_count\{ip_family="IPv4"\} 1\n/);
    done.isIntact = false;
    await settle(clock, () => done.applied.length === 2);
    await proxy.close({ remove: false });
    await running;
    await informers.close();
    assert.deepEqual(done.removed, []);
  });

  it('inspects and applies on after an inspection that failed', async () => {
    const { clock, client, informers, proxy, done } = setUp(`test-proxy-d-${process.pid}`);
    const running = proxy.run(new AbortController().signal);
    await settle(clock, () => done.applied.length === 1);
    done.unreadable = 1;
    await clock.advance(60_001);
    assert.equal(done.unreadable, 0);
    await client.create(services, 'shop', service('web', '10.96.0.7'));
    await settle(clock, () => done.applied.length === 2);
    done.isIntact = false;
    await settle(clock, () => done.applied.length > 2);
    await proxy.close({ remove: false });
    await running;
    await informers.close();
  });

  it('does not change the rules of another proxy of the host, and takes over when that one stops, even if the first attempt fails', async () => {
    const name = `test-proxy-c-${process.pid}`;
    const first = setUp(name);
    const running = first.proxy.run(new AbortController().signal);
    await settle(first.clock, () => first.done.applied.length === 1);
    const second = setUp(name);
    const waiting = second.proxy.run(new AbortController().signal);
    await settle(second.clock, () => second.done.problems > 0);
    assert.equal(second.done.applied.length, 0);
    second.done.unusable = 1;
    await first.proxy.close({ remove: true });
    await settle(second.clock, () => second.done.applied.length === 1);
    await second.proxy.close({ remove: true });
    await Promise.all([running, waiting]);
    await Promise.all([first.informers.close(), second.informers.close()]);
  });
});
