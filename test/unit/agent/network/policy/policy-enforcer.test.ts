import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Nftables } from '../../../../../agent/network/nftables.ts';
import { PolicyEnforcer } from '../../../../../agent/network/policy/policy-enforcer.ts';
import type { PolicyInputs } from '../../../../../agent/network/policy/policy-inputs.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { Informers } from '../../../../../api/client/informer.ts';
import type { NetworkPolicy, Pod } from '../../../../../api/kinds/kinds.ts';
import { namespaces, networkPolicies, pods } from '../../../../../api/client/resources.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { simulator } from './script-simulator.ts';

const DENY = {
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { name: 'deny', namespace: 'shop' },
  spec: { podSelector: {}, policyTypes: ['Ingress'] },
} as NetworkPolicy;

function pod(name: string, { ip = '', source = 'api' } = {}): Pod {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      ...{ name, namespace: 'shop', uid: `uid-${name}`, labels: { app: name } },
      annotations: { 'kubernetes.io/config.source': source },
    },
    spec: { nodeName: 'here', containers: [{ name: 'main', image: 'none' }] },
    status: ip === '' ? {} : { phase: 'Running', podIPs: [{ ip }] },
  } as Pod;
}

function setUp({
  remembered,
  connected = true,
  problem = '',
}: { readonly remembered?: PolicyInputs; readonly connected?: boolean; readonly problem?: string } = {}) {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const informers = new Informers({
    // A server that never responds.
    client: connected ? client : ({ list: () => new Promise(() => {}), watch: () => new Promise(() => {}) } as never),
    clock,
    logger: silentLogger,
  });
  const done = {
    scripts: [] as string[],
    removed: 0,
    informers: 0,
    failures: 0,
    problem,
    hasTable: true,
    unenforced: [] as string[],
    saved: undefined as PolicyInputs | undefined,
  };
  const nft: Nftables = {
    run(script) {
      if (done.failures-- > 0) return Promise.reject(new Error('busy'));
      done.scripts.push(script);
      return Promise.resolve();
    },
    problem: () => Promise.resolve(done.problem),
    hasTable: () => Promise.resolve(done.hasTable),
    expiringElements: () => Promise.resolve(new Map()),
    remove: () => Promise.resolve(void done.removed++),
  };
  const enforcer = new PolicyEnforcer({
    policies: informers.for(networkPolicies),
    startInformers: () => {
      done.informers++;
      return { namespaces: informers.for(namespaces), pods: informers.for(pods) };
    },
    nft,
    table: 't',
    memory: { load: () => Promise.resolve(remembered), save: (inputs) => (done.saved = inputs()) },
    nodeName: 'here',
    clock,
    logger: silentLogger,
    onUnenforced: (message) => done.unenforced.push(message),
  });
  const running = enforcer.run(new AbortController().signal);
  const end = async (remove = false): Promise<void> => {
    await enforcer.close({ remove });
    await running;
    await informers.close();
  };
  return { clock, client, enforcer, done, end };
}

const settle = async (clock: FakeClock, until: () => boolean): Promise<void> => {
  for (let turns = 0; !until(); turns++) {
    assert.ok(turns < 1000, 'the condition is never met');
    await clock.advance(500);
  }
};
/** Whether the newest rules let a stranger connect. */
const isOpen = (scripts: readonly string[], destination: string): boolean =>
  simulator(scripts.at(-1) ?? '')({ family: 4, source: '10.9.9.9', destination, protocol: 'TCP', port: 80 });

describe('the enforcer of network policies', () => {
  it('writes rules when policies or addresses change, and nothing when other things do', async () => {
    const { clock, client, done, end } = setUp();
    await settle(clock, () => done.scripts.length === 1);
    assert.match(
      done.scripts[0] ?? '',
      /^add table inet t\ndelete table inet t\n$/,
      'it removes what a former run left',
    );
    await client.create(pods, 'shop', pod('a', { ip: '10.0.0.5' }));
    await clock.advance(5_000);
    assert.equal(done.scripts.length, 1);
    assert.equal(done.informers, 0, 'the pods of a cluster without policies are not read');
    await client.create(networkPolicies, 'shop', DENY);
    await settle(clock, () => done.scripts.length === 2);
    assert.equal(isOpen(done.scripts, '10.0.0.5'), false);
    const before = (await client.get(pods, 'shop', 'a')) as unknown as Pod;
    await client.update(pods, { ...before, status: { ...before.status, message: 'still runs' } } as never);
    await clock.advance(5_000);
    assert.equal(done.scripts.length, 2);
    await client.delete(networkPolicies, 'shop', 'deny');
    await settle(clock, () => done.scripts.length === 3);
    assert.equal(isOpen(done.scripts, '10.0.0.5'), true);
    await end(true);
    assert.equal(done.removed, 1);
  });

  it('admits a pod when the rules for its addresses are in effect, before its status has them', async () => {
    const { clock, client, enforcer, done, end } = setUp();
    await client.create(networkPolicies, 'shop', DENY);
    await client.create(pods, 'shop', pod('a'));
    await settle(clock, () => done.scripts.length === 1);
    let admitted = false;
    const admission = enforcer.admit(pod('a'), ['10.0.0.7']).then(() => (admitted = true));
    await settle(clock, () => admitted);
    await admission;
    assert.equal(isOpen(done.scripts, '10.0.0.7'), false);
    const written = done.scripts.length;
    await enforcer.admit(pod('a'), ['10.0.0.7']);
    assert.equal(done.scripts.length, written, 'a later sync of the pod writes nothing');
    enforcer.forget(pod('a'));
    await settle(clock, () => done.scripts.length > written);
    assert.doesNotMatch(done.scripts.at(-1) ?? '', /10\.0\.0\.7/);
    await end();
  });

  it('gives an address to the pod that got it last', async () => {
    const { clock, client, enforcer, done, end } = setUp();
    await client.create(networkPolicies, 'shop', {
      ...DENY,
      spec: { ...DENY.spec, podSelector: { matchLabels: { app: 'b' } } },
    });
    await client.create(pods, 'shop', pod('a', { ip: '10.0.0.7' }));
    await settle(clock, () => done.scripts.length === 1);
    assert.equal(isOpen(done.scripts, '10.0.0.7'), true);
    let admitted = false;
    void enforcer.admit(pod('b'), ['10.0.0.7']).then(() => (admitted = true));
    await settle(clock, () => admitted);
    assert.equal(isOpen(done.scripts, '10.0.0.7'), false);
    await end();
  });

  it('keeps a pod waiting while rules cannot be written', async () => {
    const { clock, client, enforcer, done, end } = setUp();
    await settle(clock, () => done.scripts.length === 1);
    await client.create(networkPolicies, 'shop', DENY);
    done.failures = 1;
    let failure: unknown;
    void enforcer.admit(pod('a'), ['10.0.0.7']).catch((error: unknown) => (failure = error));
    await settle(clock, () => failure !== undefined);
    assert.match(String(failure), /cannot apply network policies/);
    await settle(clock, () => done.scripts.length === 2);
    assert.equal(isOpen(done.scripts, '10.0.0.7'), false, 'the retry has written them');
    await end();
  });

  it('writes the rules again if another process has removed them', async () => {
    const { clock, client, done, end } = setUp();
    await client.create(networkPolicies, 'shop', DENY);
    await client.create(pods, 'shop', pod('a', { ip: '10.0.0.5' }));
    await settle(clock, () => /10\.0\.0\.5/.test(done.scripts.at(-1) ?? ''));
    const written = done.scripts.length;
    done.hasTable = false;
    await settle(clock, () => done.scripts.length > written);
    assert.equal(isOpen(done.scripts, '10.0.0.5'), false);
    await end();
  });

  it('lets pods start on a host without nftables, and reports it once when policies exist', async () => {
    const { clock, client, enforcer, done, end } = setUp({ problem: 'nft is not installed' });
    await enforcer.admit(pod('a'), ['10.0.0.7']);
    assert.deepEqual(done.unenforced, []);
    await client.create(networkPolicies, 'shop', DENY);
    await clock.advance(120_001);
    await clock.advance(120_001);
    assert.deepEqual(done.unenforced, ['Network policies are not enforced on this node: nft is not installed']);
    assert.deepEqual(done.scripts, []);
    await end();
  });

  it('leaves the rules of an earlier run alone until it has read the cluster', async () => {
    const { clock, enforcer, done, end } = setUp({ connected: false });
    await clock.advance(200_000);
    assert.deepEqual(done.scripts, []);
    let failure: unknown;
    void enforcer.admit(pod('a'), ['10.0.0.7']).catch((error: unknown) => (failure = error));
    await settle(clock, () => failure !== undefined);
    assert.match(String(failure), /not known yet/);
    let admitted = false;
    void enforcer.admit(pod('s', { source: 'file' }), ['10.0.0.8']).then(() => (admitted = true));
    await settle(clock, () => admitted);
    assert.deepEqual(done.scripts, []);
    await end();
  });

  it('judges pods by the last known state while the API server is not available', async () => {
    const remembered: PolicyInputs = {
      policies: [{ namespace: 'shop', name: 'deny', spec: { podSelector: {}, policyTypes: ['Ingress'] } }],
      namespaces: [],
      pods: [],
    };
    const { clock, enforcer, done, end } = setUp({ connected: false, remembered });
    let admitted = false;
    void enforcer.admit(pod('a'), ['10.0.0.7']).then(() => (admitted = true));
    await settle(clock, () => admitted);
    assert.equal(isOpen(done.scripts, '10.0.0.7'), false);
    await end();
  });
});
