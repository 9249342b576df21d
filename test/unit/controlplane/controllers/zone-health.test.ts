/** Tests the state of zones, and that the loss of many nodes costs the same time for each of them. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { nodes } from '../../../../api/client/resources.ts';
import type { Node } from '../../../../api/kinds/kinds.ts';
import { runNodeLifecycle } from '../../../../controlplane/controllers/node/node-lifecycle.ts';
import { ZoneHealth, zoneOf } from '../../../../controlplane/controllers/node/node-health.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

const node = (name: string, zone: string, ready: 'True' | 'False' | 'Unknown' = 'True'): Node => ({
  metadata: { name, labels: { 'topology.kubernetes.io/zone': zone } },
  status: { conditions: [{ type: 'Ready', status: ready }] },
});
const Z = zoneOf(node('n', 'z'));

function zones(...members: readonly Node[]): ZoneHealth {
  const health = new ZoneHealth(0.55);
  for (const member of members) health.observe(member);
  return health;
}

describe('the health of zones', () => {
  it('is full disruption where no node is ready', () => {
    const health = zones(node('a', 'z', 'Unknown'), node('b', 'other'));
    assert.deepEqual([health.state(Z), health.isDark], ['FullDisruption', false]);
  });

  it('is partial disruption where more than two nodes and 55 % are not ready', () => {
    const lost = ['a', 'b', 'c'].map((name) => node(name, 'z', 'Unknown'));
    assert.equal(zones(...lost, node('d', 'z'), node('e', 'z')).state(Z), 'PartialDisruption');
    assert.equal(zones(...lost.slice(1), node('d', 'z')).state(Z), 'Normal');
    assert.equal(zones(...lost, ...['d', 'e', 'f'].map((name) => node(name, 'z'))).state(Z), 'Normal');
  });

  it('follows nodes that change, move and go', () => {
    const health = zones(node('a', 'z'), node('b', 'z', 'False'));
    assert.deepEqual(health.notReady(), ['b']);
    health.observe(node('a', 'z', 'False'));
    assert.deepEqual([health.state(Z), health.isDark, health.size(Z)], ['FullDisruption', true, 2]);
    health.observe(node('a', 'other'));
    health.forget('b');
    assert.deepEqual([health.state(Z), health.isDark, health.size(Z)], ['Normal', false, 0]);
  });

  it('reports a change of the zone that a node leaves, and of the zone that it joins', () => {
    const health = zones(node('a', 'z'), node('b', 'z', 'False'), node('c', 'other'));
    assert.equal(health.observe(node('a', 'z')), false);
    assert.equal(health.observe(node('a', 'other')), true, 'no node of the old zone is ready');
    assert.equal(health.observe(node('a', 'z')), true, 'a node of the new zone is ready');
    assert.equal(health.forget('c'), false);
    assert.equal(health.forget('a'), true);
  });
});

describe('the loss of many nodes', () => {
  it('costs each node the same, whatever number of nodes there is', async () => {
    const lose = (size: number): void => {
      const all = Array.from({ length: size }, (_, at) => node(`n${at}`, 'z', at % 3 === 0 ? 'True' : 'Unknown'));
      const health = zones(...all);
      for (const one of all) {
        assert.equal(health.isDark, false);
        assert.equal(health.state(zoneOf(one)), 'PartialDisruption');
        assert.equal(health.size(zoneOf(one)), size);
      }
    };
    await assertLinearTime(lose, { minBytes: 1000, maxBytes: 16_000, noticeableMs: 200 });
  });

  it('of 1,500 nodes of a zone is handled in time that grows with their number', async () => {
    const lose = async (size: number): Promise<void> => {
      const all = Array.from({ length: size }, (_, at) => node(`n${at}`, 'z', at * 3 < size ? 'True' : 'Unknown'));
      const t = controllerTest({ objects: all.map((one) => [nodes, one] as const) });
      await t.start(runNodeLifecycle);
      await t.advance(2000);
      const tainted = t.client.peekAll(nodes).filter((one) => (one.spec?.taints ?? []).length > 0);
      await t.stop();
      assert.equal(tainted.length, Math.floor((size * 2) / 3));
    };
    await assertLinearTime(lose, { maxBytes: 1500, noticeableMs: 100 });
  });
});
