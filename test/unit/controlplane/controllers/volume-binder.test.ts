import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PersistentVolume, PersistentVolumeClaim, Pod, StorageClass } from '../../../../api/kinds/kinds.ts';
import type { Resource } from '../../../../api/client/client.ts';
import { persistentVolumeClaims, persistentVolumes, pods, storageClasses } from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { runEphemeralVolumes } from '../../../../controlplane/controllers/storage/ephemeral-volumes.ts';
import { runVolumeBinder } from '../../../../controlplane/controllers/storage/volume-binder.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

function volume(
  name: string,
  size: string,
  spec: Partial<NonNullable<PersistentVolume['spec']>> = {},
): PersistentVolume {
  return {
    metadata: { name },
    spec: {
      capacity: { storage: size },
      accessModes: ['ReadWriteOnce'],
      storageClassName: '',
      persistentVolumeReclaimPolicy: 'Retain',
      hostPath: { path: '/x' },
      ...spec,
    },
  };
}

function claim(
  name: string,
  size: string,
  spec: Partial<NonNullable<PersistentVolumeClaim['spec']>> = {},
): PersistentVolumeClaim {
  return {
    metadata: { name, namespace: 'n' },
    spec: { accessModes: ['ReadWriteOnce'], storageClassName: '', resources: { requests: { storage: size } }, ...spec },
  };
}

const storageClass = (
  name: string,
  volumeBindingMode = 'Immediate',
  annotations: Record<string, string> = {},
): StorageClass => ({
  metadata: { name, annotations },
  provisioner: 'example.com/p',
  volumeBindingMode,
});

async function start(...objects: (readonly [Resource, KubeObject])[]): Promise<ControllerTest> {
  const t = controllerTest({ objects });
  await t.start(runVolumeBinder);
  await t.advance(5000);
  return t;
}

const claimOf = (t: ControllerTest, name: string) => t.client.peek(persistentVolumeClaims, 'n', name);
const volumeOf = (t: ControllerTest, name: string) => t.client.peek(persistentVolumes, '', name);

test('a claim gets the smallest volume that is large enough', async () => {
  const t = await start(
    [persistentVolumes, volume('small', '1Gi')],
    [persistentVolumes, volume('large', '10Gi')],
    [persistentVolumes, volume('fits', '3Gi')],
    [persistentVolumeClaims, claim('c', '2Gi')],
  );
  assert.equal(claimOf(t, 'c')?.spec?.volumeName, 'fits');
  assert.deepEqual(claimOf(t, 'c')?.status, {
    phase: 'Bound',
    accessModes: ['ReadWriteOnce'],
    capacity: { storage: '3Gi' },
  });
  assert.equal(volumeOf(t, 'fits')?.status?.phase, 'Bound');
  assert.equal(volumeOf(t, 'fits')?.spec?.claimRef?.uid, claimOf(t, 'c')?.metadata.uid);
  assert.equal(volumeOf(t, 'large')?.status?.phase, 'Available');
  await t.stop();
});

test('two claims never get one volume', async () => {
  const t = await start(
    [persistentVolumes, volume('v', '1Gi')],
    [persistentVolumeClaims, claim('a', '1Gi')],
    [persistentVolumeClaims, claim('b', '1Gi')],
  );
  const phases = ['a', 'b'].map((name) => claimOf(t, name)?.status?.phase).toSorted();
  assert.deepEqual(phases, ['Bound', 'Pending']);
  await t.stop();
});

test('a volume is kept for the claim that it names', async () => {
  const kept = volume('v', '5Gi', { claimRef: { kind: 'PersistentVolumeClaim', namespace: 'n', name: 'mine' } });
  const t = await start([persistentVolumes, kept], [persistentVolumeClaims, claim('other', '1Gi')]);
  assert.equal(claimOf(t, 'other')?.status?.phase, 'Pending');
  t.client.seed(persistentVolumeClaims, claim('mine', '1Gi'));
  await t.advance(5000);
  assert.equal(claimOf(t, 'mine')?.spec?.volumeName, 'v');
  await t.stop();
});

test('a claim that names a volume that does not do stays pending, with an event', async () => {
  const t = await start(
    [persistentVolumes, volume('v', '1Gi')],
    [persistentVolumeClaims, claim('c', '2Gi', { volumeName: 'v' })],
  );
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Pending');
  const [event = ''] = t.events();
  assert.match(event, /^Warning VolumeMismatch Cannot bind to requested volume "v": requested PV is too small/);
  await t.stop();
});

test('a claim of a class that waits is bound only to what the scheduler chose', async () => {
  const t = await start(
    [storageClasses, storageClass('late', 'WaitForFirstConsumer')],
    [persistentVolumes, volume('v', '1Gi', { storageClassName: 'late' })],
    [persistentVolumeClaims, claim('c', '1Gi', { storageClassName: 'late' })],
  );
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Pending');
  const uid = claimOf(t, 'c')?.metadata.uid ?? '';
  await t.client.patch(persistentVolumes, '', 'v', {
    type: 'merge',
    body: {
      spec: { claimRef: { kind: 'PersistentVolumeClaim', namespace: 'n', name: 'c', uid } },
    },
  });
  await t.advance(5000);
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Bound');
  await t.stop();
});

test('a claim without a matching volume calls the provisioner of its class, and is bound to the provisioned volume', async () => {
  const t = await start(
    [storageClasses, storageClass('fast')],
    [persistentVolumeClaims, claim('c', '1Gi', { storageClassName: 'fast' })],
  );
  const annotations = claimOf(t, 'c')?.metadata.annotations;
  assert.equal(annotations?.['volume.kubernetes.io/storage-provisioner'], 'example.com/p');
  const uid = claimOf(t, 'c')?.metadata.uid ?? '';
  t.client.seed(
    persistentVolumes,
    volume('made', '1Gi', {
      storageClassName: 'fast',
      claimRef: { kind: 'PersistentVolumeClaim', namespace: 'n', name: 'c', uid },
    }),
  );
  await t.advance(5000);
  assert.equal(claimOf(t, 'c')?.spec?.volumeName, 'made');
  await t.stop();
});

test('a claim without a class gets the default one, also if that is created later', async () => {
  const { storageClassName: _, ...spec } = claim('c', '1Gi').spec ?? {};
  const t = await start([persistentVolumeClaims, { ...claim('c', '1Gi'), spec }]);
  assert.equal(claimOf(t, 'c')?.spec?.storageClassName, undefined);
  t.client.seed(
    storageClasses,
    storageClass('usual', 'Immediate', { 'storageclass.kubernetes.io/is-default-class': 'true' }),
  );
  await t.advance(5000);
  assert.equal(claimOf(t, 'c')?.spec?.storageClassName, 'usual');
  await t.stop();
});

test('the volume of a claim that is gone is released and kept', async () => {
  const t = await start([persistentVolumes, volume('v', '1Gi')], [persistentVolumeClaims, claim('c', '1Gi')]);
  await t.client.delete(persistentVolumeClaims, 'n', 'c');
  await t.advance(5000);
  assert.equal(volumeOf(t, 'v')?.status?.phase, 'Released');
  t.client.seed(persistentVolumeClaims, claim('c', '1Gi'));
  await t.advance(5000);
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Pending', 'what another claim wrote is not given away');
  await t.stop();
});

test('a released volume that is recycled is scrubbed by a pod and free again', async () => {
  const t = await start(
    [persistentVolumes, volume('v', '1Gi', { persistentVolumeReclaimPolicy: 'Recycle' })],
    [persistentVolumeClaims, claim('c', '1Gi')],
  );
  await t.client.delete(persistentVolumeClaims, 'n', 'c');
  await t.advance(5000);
  const scrubber = t.client.peek(pods, 'default', 'recycler-for-v');
  assert.ok(scrubber);
  await t.client.update(pods, { ...scrubber, status: { phase: 'Succeeded' } }, { subresource: 'status' });
  await t.advance(10_000);
  assert.equal(volumeOf(t, 'v')?.spec?.claimRef, undefined);
  assert.equal(volumeOf(t, 'v')?.status?.phase, 'Available');
  await t.stop();
});

test('a bound claim whose volume was deleted is Lost', async () => {
  const t = await start([persistentVolumes, volume('v', '1Gi')], [persistentVolumeClaims, claim('c', '1Gi')]);
  await t.client.delete(persistentVolumes, '', 'v');
  await t.advance(5000);
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Lost');
  await t.stop();
});

test('a pod with an ephemeral volume gets a claim that is deleted with it', async () => {
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'n', uid: 'pod-uid' },
    spec: {
      containers: [],
      volumes: [
        {
          name: 'scratch',
          ephemeral: {
            volumeClaimTemplate: { metadata: { labels: { a: 'b' } }, spec: claim('x', '1Gi').spec as never },
          },
        },
      ],
    },
  };
  const t = controllerTest({ objects: [[pods, pod]] });
  await t.start(runEphemeralVolumes);
  await t.advance(100);
  const made = claimOf(t, 'p-scratch');
  assert.deepEqual(made?.metadata.labels, { a: 'b' });
  assert.deepEqual(made?.metadata.ownerReferences?.[0]?.uid, 'pod-uid');
  await t.stop();
});

test('a claim of the same name with another owner is not used', async () => {
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'n' },
    spec: { containers: [], volumes: [{ name: 'v', ephemeral: { volumeClaimTemplate: { spec: {} } } }] },
  };
  const t = controllerTest({
    objects: [
      [pods, pod],
      [persistentVolumeClaims, claim('p-v', '1Gi')],
    ],
  });
  await t.start(runEphemeralVolumes);
  await t.advance(100);
  assert.equal(claimOf(t, 'p-v')?.metadata.ownerReferences, undefined);
  const [event = ''] = t.events();
  assert.match(
    event,
    /^Warning FailedBinding ephemeral volume v: PVC n\/p-v was not created for pod n\/p \(pod is not owner\)/,
  );
  await t.stop();
});

test('a claim that waits for a consumer reports whether a pod is missing or a node for its pods', async () => {
  const t = await start(
    [storageClasses, storageClass('late', 'WaitForFirstConsumer')],
    [persistentVolumeClaims, claim('c', '1Gi', { storageClassName: 'late' })],
  );
  const first = 'Normal WaitForFirstConsumer waiting for first consumer to be created before binding';
  assert.ok(
    t.events().some((event) => event.startsWith(first)),
    t.events().join('\n'),
  );
  const pod = (name: string): Pod => ({
    metadata: { name, namespace: 'n' },
    spec: { containers: [], volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'c' } }] },
  });
  t.client.seed(pods, pod('b'));
  await t.advance(1000);
  assert.ok(t.events().includes('Normal WaitForPodScheduled waiting for pod b to be scheduled'), t.events().join('\n'));
  t.client.seed(pods, pod('a'));
  await t.advance(1000);
  assert.ok(t.events().includes('Normal WaitForPodScheduled waiting for pods a,b to be scheduled'));
  await t.stop();
});

test('a claim and a volume that both name no class are bound, whichever of them appears first', async () => {
  const { storageClassName: _class, ...spec } = claim('c', '1Gi').spec ?? {};
  const t = await start([persistentVolumeClaims, { ...claim('c', '1Gi'), spec }]);
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Pending');
  const { storageClassName: _ofVolume, ...volumeSpec } = volume('v', '1Gi').spec ?? {};
  t.client.seed(persistentVolumes, { ...volume('v', '1Gi'), spec: volumeSpec });
  await t.advance(5000);
  assert.equal(claimOf(t, 'c')?.spec?.volumeName, 'v');
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Bound');
  await t.stop();
});

test('a claim that names a volume is bound when that volume appears', async () => {
  const t = await start([persistentVolumeClaims, claim('c', '1Gi', { volumeName: 'v' })]);
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Pending');
  t.client.seed(persistentVolumes, volume('v', '1Gi'));
  await t.advance(5000);
  assert.equal(claimOf(t, 'c')?.status?.phase, 'Bound');
  await t.stop();
});
