import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { CsiNode } from '../../../../../agent/volumes/csi/csi-node.ts';
import { CsiDrivers } from '../../../../../agent/volumes/csi/drivers.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { CSINode, Node } from '../../../../../api/kinds/kinds.ts';
import { csiNodes, nodes } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { newConflict } from '../../../../../api/meta/status-error.ts';
import { startCsiDriver } from '../../../../fakes/csi-driver.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const never = new AbortController().signal;

function setUp() {
  const client = new FakeClient(new FakeClock());
  client.seed(nodes, { metadata: { name: 'n1', uid: 'node-uid', labels: { zone: 'a' } } } as KubeObject);
  return {
    client,
    node: new CsiNode({ client, nodeName: 'n1' }),
    nodeObject: async () => (await client.get(nodes, '', 'n1')) as Node,
    csiNode: async () => (await client.get(csiNodes, '', 'n1')) as CSINode,
  };
}

async function driverIn(t: TestContext, options: object = {}) {
  const directory = temporaryFolder();
  const driver = await startCsiDriver({ directory, ...options });
  t.after(() => driver.stop());
  return driver;
}

describe('the CSINode of this node', () => {
  it('is its id of the node, its topology and how many volumes fit', async () => {
    const { node, nodeObject, csiNode } = setUp();
    const topology = { 'topology.d/zone': 'a', 'topology.d/rack': '1' };
    await node.install({ driver: 'd', nodeId: 'id-1', maxVolumes: 25, topology });
    const found = await csiNode();
    assert.deepEqual(found.spec?.drivers, [
      { name: 'd', nodeID: 'id-1', topologyKeys: ['topology.d/rack', 'topology.d/zone'], allocatable: { count: 25 } },
    ]);
    assert.deepEqual(found.metadata.ownerReferences, [{ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'node-uid' }]);
    const { metadata } = await nodeObject();
    assert.deepEqual(metadata.annotations, { 'csi.volume.kubernetes.io/nodeid': '{"d":"id-1"}' });
    assert.deepEqual(metadata.labels, { zone: 'a', ...topology });
  });

  it('follows the number of volumes that a driver allows, without a change of the node', async (t) => {
    const { node, nodeObject, csiNode } = setUp();
    const driver = await driverIn(t, { maxVolumes: 25 });
    const drivers = new CsiDrivers({ node, logger: silentLogger });
    t.after(() => drivers.close());
    await drivers.register({ name: 'd', endpoint: driver.endpoint, supportedVersions: ['1.0.0'] }, never);
    const before = await nodeObject();
    await node.update({ driver: 'd', nodeId: 'id', maxVolumes: 3, topology: {} });
    assert.deepEqual((await csiNode()).spec?.drivers?.[0]?.allocatable, { count: 3 });
    await drivers.updateLimit('d', never);
    assert.deepEqual((await csiNode()).spec?.drivers?.[0]?.allocatable, { count: 25 });
    assert.deepEqual(await nodeObject(), before);
    await drivers.updateLimit('gone', never);
  });

  it('is an empty list as soon as there is a node, before any driver', async () => {
    const clock = new FakeClock();
    const client = new FakeClient(clock);
    const node = new CsiNode({ client, nodeName: 'n1' });
    const kept = node.keep(clock, silentLogger, never);
    await clock.advance(2_000);
    client.seed(nodes, { metadata: { name: 'n1', uid: 'node-uid' } } as KubeObject);
    await clock.advance(10_000);
    await kept;
    assert.deepEqual(((await client.get(csiNodes, '', 'n1')) as CSINode).spec, { drivers: [] });
  });

  it('has an entry for each driver, which is removed with the driver', async () => {
    const { node, nodeObject, csiNode } = setUp();
    const rest = { maxVolumes: 0, topology: {} };
    await Promise.all([
      node.install({ driver: 'd', nodeId: '1', ...rest }),
      node.install({ driver: 'e', nodeId: '2', ...rest }),
    ]);
    assert.deepEqual((await csiNode()).spec?.drivers, [
      { name: 'd', nodeID: '1' },
      { name: 'e', nodeID: '2' },
    ]);
    await node.uninstall('d');
    assert.deepEqual((await csiNode()).spec?.drivers, [{ name: 'e', nodeID: '2' }]);
    assert.deepEqual((await nodeObject()).metadata.annotations, { 'csi.volume.kubernetes.io/nodeid': '{"e":"2"}' });
  });

  it('survives concurrent writes of others', async () => {
    const { node, client, csiNode } = setUp();
    let refused = 0;
    client.intercept((call) => {
      if (call.verb !== 'update' || refused > 0) return undefined;
      refused += 1;
      throw newConflict({ group: 'storage.k8s.io', resource: 'csinodes' }, 'n1', 'changed');
    });
    await node.install({ driver: 'd', nodeId: '1', maxVolumes: 0, topology: {} });
    assert.equal(refused, 1);
    assert.equal((await csiNode()).spec?.drivers?.length, 1);
  });

  it('is refused where its topology contradicts the labels of the node', async () => {
    const { node } = setUp();
    await assert.rejects(node.install({ driver: 'd', nodeId: '1', maxVolumes: 0, topology: { zone: 'b' } }), {
      message: 'detected topology value collision: driver reported "zone":"b" but existing label is "zone":"a"',
    });
  });
});

describe('a CSI driver', () => {
  it('is found by name from its report about the node until its removal', async (t) => {
    const { node, csiNode } = setUp();
    const drivers = new CsiDrivers({ node, logger: silentLogger });
    t.after(() => drivers.close());
    const { endpoint } = await driverIn(t, { nodeId: 'id-7', maxVolumes: 3 });
    await drivers.register({ name: 'd', endpoint, supportedVersions: ['1.0.0'] }, never);
    assert.equal(drivers.get('d').name, 'd');
    assert.deepEqual((await csiNode()).spec?.drivers, [{ name: 'd', nodeID: 'id-7', allocatable: { count: 3 } }]);
    await drivers.deregister('d', endpoint);
    assert.throws(() => drivers.get('d'), /not found in the list of registered CSI drivers/);
    assert.deepEqual((await csiNode()).spec?.drivers, []);
  });

  it('that has a successor can lose its own socket', async (t) => {
    const { node } = setUp();
    const drivers = new CsiDrivers({ node, logger: silentLogger });
    t.after(() => drivers.close());
    const [first, second] = [await driverIn(t), await driverIn(t)];
    await drivers.register({ name: 'd', endpoint: first.endpoint, supportedVersions: ['1.0.0'] }, never);
    await drivers.register({ name: 'd', endpoint: second.endpoint, supportedVersions: ['1.0.0'] }, never);
    await drivers.deregister('d', first.endpoint);
    assert.equal(await drivers.get('d').can('stageUnstage'), false);
  });

  it('that takes the name of another one and goes again leaves it in its place', async (t) => {
    const { node, csiNode } = setUp();
    const drivers = new CsiDrivers({ node, logger: silentLogger });
    t.after(() => drivers.close());
    const first = await driverIn(t, { nodeId: 'right', capabilities: ['stageUnstage'] });
    const second = await driverIn(t, { nodeId: 'wrong' });
    for (const { endpoint } of [first, second])
      await drivers.register({ name: 'd', endpoint, supportedVersions: ['1.0.0'] }, never);
    assert.equal(await drivers.get('d').can('stageUnstage'), false);
    await drivers.deregister('d', second.endpoint);
    assert.equal(await drivers.get('d').can('stageUnstage'), true);
    assert.deepEqual((await csiNode()).spec?.drivers, [{ name: 'd', nodeID: 'right' }]);
    await drivers.deregister('d', first.endpoint);
    assert.throws(() => drivers.get('d'), /not found in the list of registered CSI drivers/);
  });

  for (const [what, answer] of [
    ['an id of the node', { nodeId: 'x'.repeat(257) }],
    ['a topology', { topology: Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`t/${at}`, 'x'])) }],
  ] as const)
    it(`with ${what} that would fill the Node object is refused before anything is written`, async (t) => {
      const { node, nodeObject } = setUp();
      const drivers = new CsiDrivers({ node, logger: silentLogger });
      t.after(() => drivers.close());
      const { endpoint } = await driverIn(t, answer);
      await assert.rejects(
        drivers.register({ name: 'd', endpoint, supportedVersions: ['1.0.0'] }, never),
        /of this node has more than (256 bytes|64 segments)/,
      );
      const { metadata } = await nodeObject();
      assert.deepEqual([metadata.annotations, metadata.labels], [undefined, { zone: 'a' }]);
    });

  it('must have a name that volumes can name', () => {
    const drivers = new CsiDrivers({ node: undefined, logger: silentLogger });
    for (const name of ['..', 'a/../../b', 'x'.repeat(1 << 20)])
      assert.throws(
        () => drivers.validate({ name, endpoint: '', supportedVersions: ['1.0.0'] }),
        /is not a domain name of at most 63 characters/,
      );
  });

  it('must speak CSI 1', () => {
    const drivers = new CsiDrivers({ node: undefined, logger: silentLogger });
    const validate = (supportedVersions: string[]) => () =>
      drivers.validate({ name: 'd', endpoint: '', supportedVersions });
    assert.throws(validate([]), { message: 'CSI driver reporting empty array for supported versions' });
    assert.throws(
      validate(['0.3.0', '2.0']),
      /could not find a highest supported version from versions \(0\.3\.0 2\.0\)/,
    );
    validate(['0.3.0', 'v1.2'])();
  });
});
