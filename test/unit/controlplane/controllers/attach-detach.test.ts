import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { Resource } from '../../../../api/client/client.ts';
import type { Node, VolumeAttachment } from '../../../../api/kinds/kinds.ts';
import {
  csiDrivers,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  volumeAttachments,
} from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { runAttachDetach } from '../../../../controlplane/controllers/storage/attach-detach.ts';
import { attachmentName } from '../../../../api/kinds/attached-volumes.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

const DRIVER = 'd.example.com';
const UNIQUE = `kubernetes.io/csi/${DRIVER}^handle`;
const NAME = attachmentName('handle', DRIVER, 'n1');

const nodeOf = (name: string, more: object = {}): KubeObject =>
  ({
    metadata: { name, annotations: { 'volumes.kubernetes.io/controller-managed-attach-detach': 'true' } },
    status: { conditions: [{ type: 'Ready', status: 'True' }] },
    ...more,
  }) as unknown as KubeObject;
const podOn = (node: string, name = 'p', volume: object = { persistentVolumeClaim: { claimName: 'c' } }): KubeObject =>
  ({
    metadata: { name, namespace: 'ns', uid: `uid-${name}` },
    spec: { nodeName: node, containers: [], volumes: [{ name: 'data', ...volume }] },
    status: { phase: 'Pending' },
  }) as unknown as KubeObject;
const claim = (name = 'c', owner?: string): KubeObject =>
  ({
    metadata: {
      name,
      namespace: 'ns',
      uid: 'claim',
      ...(owner === undefined
        ? {}
        : { ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: 'p', uid: owner, controller: true }] }),
    },
    spec: { volumeName: 'v' },
    status: { phase: 'Bound' },
  }) as unknown as KubeObject;
const volume = (accessModes = ['ReadWriteOnce']): KubeObject =>
  ({
    metadata: { name: 'v' },
    spec: { csi: { driver: DRIVER, volumeHandle: 'handle' }, claimRef: { uid: 'claim' }, accessModes },
  }) as unknown as KubeObject;

const BASE: readonly (readonly [Resource, KubeObject])[] = [
  [nodes, nodeOf('n1')],
  [nodes, nodeOf('n2')],
  [persistentVolumeClaims, claim()],
  [persistentVolumes, volume()],
];

async function running(t: TestContext, ...more: (readonly [Resource, KubeObject])[]): Promise<ControllerTest> {
  const test = controllerTest({ objects: [...BASE, ...more] });
  t.after(() => test.stop());
  await test.start(runAttachDetach);
  await test.advance(1000);
  return test;
}

const attachments = async ({ client }: ControllerTest): Promise<VolumeAttachment[]> =>
  (await client.list(volumeAttachments)).items as unknown as VolumeAttachment[];
const nodeIn = async ({ client }: ControllerTest, name = 'n1'): Promise<Node> =>
  (await client.get(nodes, '', name)) as unknown as Node;

async function setStatus(test: ControllerTest, resource: Resource, name: string, status: object): Promise<void> {
  await test.client.patch(resource, '', name, { type: 'merge', body: { status }, subresource: 'status' });
  await test.advance(1000);
}

describe('the attach/detach controller', () => {
  it('attaches a volume to the node of its pod, and then updates the node and records an event of the pod', async (t) => {
    const test = await running(t, [pods, podOn('n1')]);
    const [attachment] = await attachments(test);
    assert.equal(attachment?.metadata.name, NAME);
    assert.deepEqual(attachment?.spec, {
      attacher: DRIVER,
      nodeName: 'n1',
      source: { persistentVolumeName: 'v' },
    });
    assert.equal((await nodeIn(test)).status?.volumesAttached, undefined);
    await setStatus(test, volumeAttachments, NAME, { attached: true });
    assert.deepEqual((await nodeIn(test)).status?.volumesAttached, [{ name: UNIQUE, devicePath: '' }]);
    assert.deepEqual(test.events(), ['Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "v"']);
  });

  it('records in an event of the pod why a volume could not be attached', async (t) => {
    const test = await running(t, [pods, podOn('n1')]);
    await setStatus(test, volumeAttachments, NAME, { attached: false, attachError: { message: 'no disk' } });
    assert.deepEqual(test.events(), ['Warning FailedAttachVolume AttachVolume.Attach failed for volume "v" : no disk']);
  });

  it('leaves volumes alone whose driver does not attach', async (t) => {
    const driver = { metadata: { name: DRIVER }, spec: { attachRequired: false } } as unknown as KubeObject;
    const test = await running(t, [csiDrivers, driver], [pods, podOn('n1')]);
    assert.deepEqual(await attachments(test), []);
  });

  it('leaves nodes alone that attach for themselves', async (t) => {
    const test = await running(t, [nodes, { metadata: { name: 'own' } } as KubeObject], [pods, podOn('own')]);
    assert.deepEqual(await attachments(test), []);
  });

  it("attaches the volume of an ephemeral claim that is the pod's own, and no other", async (t) => {
    const own = podOn('n1', 'p', { ephemeral: {} });
    const test = await running(t, [persistentVolumeClaims, claim('p-data', 'uid-p')], [pods, own]);
    assert.equal((await attachments(test)).length, 1);
    const other = await running(t, [persistentVolumeClaims, claim('p-data', 'somebody')], [pods, own]);
    assert.equal((await attachments(other)).length, 0);
  });

  it('detaches when the pod is gone and the node no longer uses the volume, not before', async (t) => {
    const test = await running(t, [pods, podOn('n1')]);
    await setStatus(test, volumeAttachments, NAME, { attached: true });
    await setStatus(test, nodes, 'n1', { volumesInUse: [UNIQUE] });
    await test.client.delete(pods, 'ns', 'p', { gracePeriodSeconds: 0 });
    await test.advance(20 * 60_000);
    assert.equal((await attachments(test)).length, 1);
    await setStatus(test, nodes, 'n1', { volumesInUse: [] });
    assert.deepEqual(await attachments(test), []);
    assert.deepEqual((await nodeIn(test)).status?.volumesAttached, []);
  });

  it('gives up waiting for a node that is not well after six minutes', async (t) => {
    const test = await running(t, [pods, podOn('n1')]);
    await setStatus(test, volumeAttachments, NAME, { attached: true });
    const conditions = [{ type: 'Ready', status: 'Unknown' }];
    await setStatus(test, nodes, 'n1', { volumesInUse: [UNIQUE], conditions });
    await test.client.delete(pods, 'ns', 'p', { gracePeriodSeconds: 0 });
    await test.advance(5 * 60_000);
    assert.equal((await attachments(test)).length, 1);
    await test.advance(2 * 60_000);
    assert.equal((await attachments(test)).length, 0);
  });

  it('does not wait for a node that is out of service or deleted', async (t) => {
    const taint = { key: 'node.kubernetes.io/out-of-service', effect: 'NoExecute' };
    for (const end of ['taint', 'delete']) {
      const test = await running(t, [pods, podOn('n1')]);
      await setStatus(test, volumeAttachments, NAME, { attached: true });
      await setStatus(test, nodes, 'n1', { volumesInUse: [UNIQUE] });
      await test.client.delete(pods, 'ns', 'p', { gracePeriodSeconds: 0 });
      if (end === 'delete') await test.client.delete(nodes, '', 'n1');
      else await test.client.patch(nodes, '', 'n1', { type: 'merge', body: { spec: { taints: [taint] } } });
      await test.advance(1000);
      assert.deepEqual(await attachments(test), []);
    }
  });

  it('does not attach a volume of a single writer to a second node before the first has let it go', async (t) => {
    const test = await running(t, [pods, podOn('n1')]);
    await setStatus(test, volumeAttachments, NAME, { attached: true });
    await test.client.create(pods, 'ns', podOn('n2', 'q'));
    await test.advance(1000);
    assert.deepEqual(
      (await attachments(test)).map(({ spec }) => spec.nodeName),
      ['n1'],
    );
    assert.match(test.events().at(-1) ?? '', /^Warning FailedAttachVolume Multi-Attach error for volume "v" /);
    await test.client.delete(pods, 'ns', 'p', { gracePeriodSeconds: 0 });
    await test.advance(1000);
    assert.deepEqual(
      (await attachments(test)).map(({ spec }) => spec.nodeName),
      ['n2'],
    );
  });

  it('attaches a volume of many writers to many nodes', async (t) => {
    const test = await running(
      t,
      [persistentVolumes, volume(['ReadWriteMany'])],
      [pods, podOn('n1')],
      [pods, podOn('n2', 'q')],
    );
    assert.equal((await attachments(test)).length, 2);
  });

  it('keeps volumes of running pods attached over a restart, and detaches unused ones', async (t) => {
    const existing = (node: string): KubeObject =>
      ({
        metadata: { name: attachmentName('handle', DRIVER, node) },
        spec: { attacher: DRIVER, nodeName: node, source: { persistentVolumeName: 'v' } },
        status: { attached: true },
      }) as unknown as KubeObject;
    const foreign = { ...existing('n1'), metadata: { name: 'of-somebody-else' } } as KubeObject;
    const test = await running(
      t,
      [volumeAttachments, existing('n1')],
      [volumeAttachments, existing('n2')],
      [volumeAttachments, foreign],
      [pods, podOn('n1')],
    );
    assert.deepEqual(
      (await attachments(test)).map(({ metadata }) => metadata.name).toSorted(),
      [NAME, 'of-somebody-else'].toSorted(),
    );
  });

  it('waits for a claim to be bound', async (t) => {
    const unbound = {
      metadata: { name: 'late', namespace: 'ns', uid: 'claim' },
      spec: {},
      status: { phase: 'Pending' },
    };
    const pod = podOn('n1', 'p', { persistentVolumeClaim: { claimName: 'late' } });
    const test = await running(t, [persistentVolumeClaims, unbound as KubeObject], [pods, pod]);
    assert.deepEqual(await attachments(test), []);
    await test.client.patch(persistentVolumeClaims, 'ns', 'late', {
      type: 'merge',
      body: { spec: { volumeName: 'v' } },
    });
    await test.client.patch(persistentVolumeClaims, 'ns', 'late', {
      type: 'merge',
      body: { status: { phase: 'Bound' } },
      subresource: 'status',
    });
    await test.advance(1000);
    assert.equal((await attachments(test)).length, 1);
  });
});
