import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import type { Node, PersistentVolume, PersistentVolumeClaim, StorageClass } from '../../../../api/kinds/kinds.ts';
import { nodes, persistentVolumeClaims, persistentVolumes, storageClasses } from '../../../../api/client/resources.ts';
import { LOCAL_PROVISIONER, localVolumes } from '../../../../controlplane/controllers/storage/local-volumes.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

const SELECTED = 'volume.kubernetes.io/selected-node';
const node = (name: string): Node => ({ metadata: { name, labels: { 'kubernetes.io/hostname': `host-${name}` } } });
const storageClass = (more: Partial<StorageClass> = {}): StorageClass => ({
  metadata: { name: 'local' },
  provisioner: LOCAL_PROVISIONER,
  reclaimPolicy: 'Delete',
  volumeBindingMode: 'WaitForFirstConsumer',
  ...more,
});
const claim = (
  spec: Partial<NonNullable<PersistentVolumeClaim['spec']>> = {},
  annotations: Record<string, string> = { [SELECTED]: 'a' },
): PersistentVolumeClaim => ({
  metadata: { name: 'c', namespace: 'n', uid: 'u', annotations },
  spec: {
    accessModes: ['ReadWriteOnce'],
    storageClassName: 'local',
    resources: { requests: { storage: '1Gi' } },
    ...spec,
  },
});

interface Calls {
  readonly made: string[];
  fails: boolean;
  /** Why agents do not limit volumes. */
  unlimited: string;
}

async function start(
  objects: Parameters<typeof controllerTest>[0] & object,
  unlimited = '',
): Promise<ControllerTest & { readonly calls: Calls }> {
  const calls: Calls = { made: [], fails: false, unlimited };
  const t = controllerTest(objects);
  const called = (what: string): void => {
    if (calls.fails) throw new Error('the agent did not answer');
    calls.made.push(what);
  };
  await t.start(
    localVolumes({
      async create({ metadata }, name, capacity) {
        called(`create ${metadata.name} ${name} ${capacity}`);
        return { path: `/root/${name}`, unlimited: calls.unlimited };
      },
      async remove({ metadata }, name) {
        called(`remove ${metadata.name} ${name}`);
      },
    }),
  );
  await t.advance(100);
  return Object.assign(t, { calls });
}
const withClaim = (one: PersistentVolumeClaim, more: Partial<StorageClass> = {}) =>
  start({
    objects: [
      [nodes, node('a')],
      [storageClasses, storageClass(more)],
      [persistentVolumeClaims, one],
    ],
  });
const volumeOf = (t: ControllerTest): PersistentVolume | undefined => t.client.peek(persistentVolumes, '', 'pvc-u');

describe('the class of local volumes', () => {
  const DEFAULT = 'storageclass.kubernetes.io/is-default-class';
  const makes: Node = { metadata: { name: 'b', annotations: { 'orchlet.local/local-volumes': 'true' } } };
  const classes = async (objects: Parameters<typeof start>[0]['objects']): Promise<StorageClass[]> => {
    const t = await start({ objects: objects ?? [] });
    const found = (await t.client.list(storageClasses)).items;
    await t.stop();
    return found as StorageClass[];
  };

  it('is made as the default one when a node comes that makes such volumes, and not before', async () => {
    assert.deepEqual(await classes([[nodes, node('a')]]), []);
    const [made, ...more] = await classes([[nodes, makes]]);
    assert.deepEqual(more, []);
    assert.equal(made?.metadata.name, 'local');
    assert.equal(made?.metadata.annotations?.[DEFAULT], 'true');
  });

  it('does not become the default one beside another, and stays as an administrator changed it', async () => {
    const other: StorageClass = { metadata: { name: 'x', annotations: { [DEFAULT]: 'true' } }, provisioner: 'p' };
    const beside = await classes([
      [nodes, makes],
      [storageClasses, other],
    ]);
    assert.equal(beside.find(({ metadata }) => metadata.name === 'local')?.metadata.annotations, undefined);
    const kept = await classes([
      [nodes, makes],
      [storageClasses, storageClass({ reclaimPolicy: 'Retain' })],
    ]);
    assert.deepEqual(
      kept.map(({ reclaimPolicy }) => reclaimPolicy),
      ['Retain'],
    );
  });
});

test('a claim gets a folder on the node that the scheduler chose', async () => {
  const t = await withClaim(claim());
  assert.deepEqual(t.calls.made, ['create a pvc-u 1073741824']);
  const { spec } = volumeOf(t) ?? assert.fail();
  assert.equal(spec?.local?.path, '/root/pvc-u');
  assert.equal(spec?.claimRef?.uid, 'u');
  assert.equal(spec?.persistentVolumeReclaimPolicy, 'Delete');
  // The node chooses its label of the host name itself, but not its name.
  assert.deepEqual(spec?.nodeAffinity?.required?.nodeSelectorTerms, [
    {
      matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: ['host-a'] }],
      matchFields: [{ key: 'metadata.name', operator: 'In', values: ['a'] }],
    },
  ]);
  await t.stop();
});

test('a claim of another class, and one whose node is not chosen yet, get nothing', async () => {
  for (const t of [await withClaim(claim({}, {})), await withClaim(claim(), { provisioner: 'example.com/p' })]) {
    assert.deepEqual(t.calls.made, []);
    assert.equal(volumeOf(t), undefined);
    await t.stop();
  }
});

for (const [what, spec, more, message] of [
  ['several nodes', { accessModes: ['ReadWriteMany'] }, {}, /access mode ReadWriteMany is not possible/],
  ['a device', { volumeMode: 'Block' }, {}, /volumeMode Block/],
  ['a selector', { selector: { matchLabels: { a: 'b' } } }, {}, /Selector is not supported/],
  ['a copy', { dataSource: { kind: 'PersistentVolumeClaim', name: 'x' } }, {}, /data source/],
  ['an immediate volume', {}, { volumeBindingMode: 'Immediate' }, /WaitForFirstConsumer/],
] as const) {
  test(`a claim for ${what} gets an event that says why it gets none`, async () => {
    const t = await withClaim(claim(spec as Partial<NonNullable<PersistentVolumeClaim['spec']>>), more);
    assert.deepEqual(t.calls.made, []);
    assert.match(t.events().join('\n'), message);
    await t.stop();
  });
}

test('a claim does not wait for a deleted node: the scheduler selects another one', async () => {
  const t = await withClaim(claim({}, { [SELECTED]: 'gone' }));
  assert.equal(t.client.peek(persistentVolumeClaims, 'n', 'c')?.metadata.annotations?.[SELECTED], undefined);
  await t.stop();
});

test('a request to an agent that does not respond is retried', async () => {
  const t = controllerTest({
    objects: [
      [nodes, node('a')],
      [storageClasses, storageClass()],
      [persistentVolumeClaims, claim()],
    ],
  });
  let asked = 0;
  await t.start(
    localVolumes({
      async create(_node, name) {
        asked += 1;
        if (asked < 3) throw new Error('the agent did not answer');
        return { path: `/root/${name}`, unlimited: '' };
      },
      remove: async () => undefined,
    }),
  );
  await t.advance(100);
  assert.equal(volumeOf(t), undefined);
  assert.match(t.events().join('\n'), /ProvisioningFailed.*the agent did not answer/);
  await t.advance(10_000);
  assert.ok(volumeOf(t));
  await t.stop();
});

const bound = (spec: Partial<NonNullable<PersistentVolume['spec']>>, phase: string): PersistentVolume => ({
  metadata: {
    name: 'pvc-u',
    annotations: { 'pv.kubernetes.io/provisioned-by': LOCAL_PROVISIONER, 'orchlet.local/node': 'a' },
    finalizers: ['orchlet.local/local-volume'],
  },
  spec: {
    capacity: { storage: '1Gi' },
    accessModes: ['ReadWriteOnce'],
    persistentVolumeReclaimPolicy: 'Delete',
    local: { path: '/root/pvc-u' },
    claimRef: { namespace: 'n', name: 'c', uid: 'u' },
    nodeAffinity: {
      required: {
        nodeSelectorTerms: [
          { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: ['host-a'] }] },
        ],
      },
    },
    ...spec,
  },
  status: { phase },
});
const withVolume = (volume: PersistentVolume, ...hosts: readonly string[]) =>
  start({
    objects: [...hosts.map((name) => [nodes, node(name)] as const), [persistentVolumes, volume]],
  });

test('a released volume is removed from its node and from the API', async () => {
  const t = await withVolume(bound({}, 'Released'), 'b', 'a');
  await t.advance(5_000);
  assert.equal(t.calls.made[0], 'remove a pvc-u');
  assert.equal(volumeOf(t), undefined);
  await t.stop();
});

for (const [what, volume] of [
  ['is bound', bound({}, 'Bound')],
  ['is to be retained', bound({ persistentVolumeReclaimPolicy: 'Retain' }, 'Released')],
] as const) {
  test(`a volume that ${what} stays`, async () => {
    const t = await withVolume(volume, 'a');
    assert.deepEqual(t.calls.made, []);
    assert.ok(volumeOf(t));
    await t.stop();
  });
}

test('a volume of another owner stays unchanged', async () => {
  const other = bound({}, 'Released');
  const t = await withVolume({ ...other, metadata: { name: 'pvc-u' } }, 'a');
  assert.deepEqual(t.calls.made, []);
  await t.stop();
});

test('the path that a volume names is never asked for: a written volume with /etc removes a folder of its own name', async () => {
  const t = await withVolume(bound({ local: { path: '/etc' } }, 'Released'), 'a');
  await t.advance(5_000);
  assert.deepEqual([...new Set(t.calls.made)], ['remove a pvc-u']);
  await t.stop();
});

test('the volume of a node that is gone is removed from the API, with an event', async () => {
  const t = await withVolume(bound({}, 'Released'), 'b');
  await t.advance(5_000);
  assert.deepEqual(t.calls.made, []);
  assert.equal(volumeOf(t), undefined);
  assert.match(t.events().join('\n'), /VolumeLeftBehind.*the node a /);
  await t.stop();
});

test('the agent raises the limit of a volume before the API shows its new size', async () => {
  const grown: PersistentVolumeClaim = {
    ...claim({ volumeName: 'pvc-u', resources: { requests: { storage: '3Gi' } } }),
    status: { phase: 'Bound', capacity: { storage: '1Gi' } },
  };
  const volume = bound({}, 'Bound');
  const annotations = { ...volume.metadata.annotations, 'orchlet.local/node': 'a' };
  const t = await start({
    objects: [
      [nodes, node('a')],
      [storageClasses, storageClass()],
      [persistentVolumes, { ...volume, metadata: { ...volume.metadata, annotations } }],
    ],
  });
  t.calls.fails = true;
  await t.client.create(persistentVolumeClaims, 'n', grown);
  await t.advance(1_000);
  assert.equal(volumeOf(t)?.spec?.capacity?.['storage'], '1Gi');
  assert.match(t.events().join('\n'), /VolumeResizeFailed.*the agent did not answer/);
  t.calls.fails = false;
  await t.advance(10_000);
  assert.deepEqual(t.calls.made, [`create a pvc-u ${3n << 30n}`]);
  assert.equal(volumeOf(t)?.spec?.capacity?.['storage'], '3Gi');
  await t.stop();
});

test('an event says why the size of a volume is no limit', async () => {
  const objects = [
    [nodes, node('a')],
    [storageClasses, storageClass()],
    [persistentVolumeClaims, claim()],
  ] as const;
  const t = await start({ objects } as never, '/ (ext4) is mounted without project quotas');
  assert.match(t.events().join('\n'), /CapacityNotLimited.* 1Gi on node a: \/ \(ext4\) is mounted without/);
  await t.stop();
  const limited = await start({ objects } as never);
  assert.doesNotMatch(limited.events().join('\n'), /CapacityNotLimited/);
  await limited.stop();
});

test('a claim that requests more storage is expanded', async () => {
  const grown: PersistentVolumeClaim = {
    ...claim({ volumeName: 'pvc-u', resources: { requests: { storage: '3Gi' } } }),
    status: { phase: 'Bound', capacity: { storage: '1Gi' } },
  };
  const t = await start({
    objects: [
      [storageClasses, storageClass()],
      [persistentVolumes, bound({}, 'Bound')],
      [persistentVolumeClaims, grown],
    ],
  });
  await t.advance(1_000);
  assert.deepEqual(t.calls.made, [], 'the volume names no node');
  assert.equal(volumeOf(t)?.spec?.capacity?.['storage'], '3Gi');
  assert.equal(t.client.peek(persistentVolumeClaims, 'n', 'c')?.status?.capacity?.['storage'], '3Gi');
  await t.stop();
});
