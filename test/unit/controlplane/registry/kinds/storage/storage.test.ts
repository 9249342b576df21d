import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { storageKinds } from '../../../../../../controlplane/registry/kinds/storage/storage.ts';
import { specDiff } from '../../../../../../api/schema/spec-diff.ts';
import { rulesOf, type Draft } from '../strategy-fixture.ts';
import { openFixture, refusal, type Fixture } from '../../registry-fixture.ts';

const CLAIMS = 'v1/persistentvolumeclaims';
const VOLUMES = 'v1/persistentvolumes';

describe('storage kinds', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  const claim = (name: string, spec: object = {}) => ({
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name },
    spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } }, ...spec },
  });
  const volume = (name: string, spec: object = {}) => ({
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name },
    spec: { capacity: { storage: '1Gi' }, accessModes: ['ReadWriteOnce'], hostPath: { path: '/x' }, ...spec },
  });
  const merge = (path: string, name: string, body: object) =>
    fixture.patch(path, name, { type: 'merge', body, duplicates: [] } as never);

  it('let a bound claim grow, but never below what it has', async () => {
    await fixture.create(CLAIMS, claim('grows'));
    const asking = (storage: string) => ({ spec: { resources: { requests: { storage } } } });
    assert.match((await refusal(merge(CLAIMS, 'grows', asking('2Gi')))).message, /spec is immutable after creation/);
    await merge(`${CLAIMS}:status`, 'grows', { status: { phase: 'Bound', capacity: { storage: '1Gi' } } });
    await merge(CLAIMS, 'grows', asking('3Gi'));
    await merge(CLAIMS, 'grows', asking('2Gi'));
    const error = await refusal(merge(CLAIMS, 'grows', asking('512Mi')));
    assert.match(error.message, /field can not be less than status.capacity/);
  });

  it('let the volume of a claim be named once', async () => {
    await fixture.create(CLAIMS, claim('named'));
    await merge(CLAIMS, 'named', { spec: { volumeName: 'v' } });
    assert.equal((await refusal(merge(CLAIMS, 'named', { spec: { volumeName: 'w' } }))).code, 422);
  });

  it('give a claim without a class one later, once', async () => {
    await fixture.create(CLAIMS, claim('classless'));
    await merge(CLAIMS, 'classless', { spec: { storageClassName: 'fast' } });
    assert.equal((await refusal(merge(CLAIMS, 'classless', { spec: { storageClassName: 'slow' } }))).code, 422);
  });

  it('let the node affinity of a volume be set once, and its old labels be renamed', async () => {
    const affinity = (key: string) => ({
      spec: {
        nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [{ key, operator: 'Exists' }] }] } },
      },
    });
    await fixture.create(VOLUMES, volume('placed'));
    await merge(VOLUMES, 'placed', affinity('failure-domain.beta.kubernetes.io/zone'));
    await merge(VOLUMES, 'placed', affinity('topology.kubernetes.io/zone'));
    assert.equal((await refusal(merge(VOLUMES, 'placed', affinity('other')))).code, 422);
  });

  it('contain the time at which a volume changed its phase', async () => {
    const made = (await fixture.create(VOLUMES, volume('phases'))) as unknown as { status: Record<string, string> };
    assert.match(made.status['lastPhaseTransitionTime'] ?? '', /^\d{4}-.*Z$/);
    const other = { status: { phase: 'Available', lastPhaseTransitionTime: '2020-01-01T00:00:00Z' } };
    const changed = (await merge(`${VOLUMES}:status`, 'phases', other)) as unknown as typeof made;
    assert.equal(changed.status['lastPhaseTransitionTime'], '2020-01-01T00:00:00Z', 'what the caller says counts');
  });

  it('take a driver off a node and put it back otherwise', async () => {
    const node = (drivers: object[]) => ({ spec: { drivers } });
    const path = 'storage.k8s.io/v1/csinodes';
    await fixture.create(path, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'CSINode',
      metadata: { name: 'n' },
      ...node([{ name: 'd', nodeID: 'a' }]),
    });
    assert.equal((await refusal(merge(path, 'n', node([{ name: 'd', nodeID: 'b' }])))).code, 422);
    await merge(path, 'n', node([]));
    await merge(path, 'n', node([{ name: 'd', nodeID: 'b', allocatable: { count: 3 } }]));
    await merge(path, 'n', node([{ name: 'd', nodeID: 'b', allocatable: { count: 5 } }]));
  });
});

describe('the difference of two specs', () => {
  it('shows the changed lines with three around', () => {
    const old = { a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7 };
    assert.equal(
      specDiff(old, { ...old, g: 8 }),
      '\n@@ -5,5 +5,5 @@\n  "d": 4,\n  "e": 5,\n  "f": 6,\n- "g": 7\n+ "g": 8\n }\n',
    );
  });
  it('is empty for equal specs', () => assert.equal(specDiff({ a: 1, b: 2 }, { a: 1, b: 2 }), ''));
  it('matches the longest common run first, and not the most lines', () => {
    const old = { a: { x: 1 }, b: null, c: null };
    assert.match(
      specDiff(old, { a: null, b: { x: 1 }, c: null }),
      /- "a": \{\n\+ "a": null,\n\+ "b": \{\n {3}"x": 1\n {2}\},/,
    );
  });
  it('shows characters escaped as in JSON of Go', () => {
    assert.match(specDiff({ a: '<' }, { a: '>' }), /- "a": "\\u003c"\n\+ "a": "\\u003e"/);
  });
  it('shows distant changes apart', () => {
    const old = Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`k${String(at).padStart(2, '0')}`, at]));
    const diff = specDiff(old, { ...old, k00: -1, k19: -1 });
    assert.equal(diff.match(/^@@/gm)?.length, 2);
  });
});

describe('columns', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  const cells = (group: string, version: string, resource: string, object: object) => {
    const { info } = fixture.rest(group, version, resource);
    return fixture.registry.strategyOf(info)?.columns?.cells({ metadata: { name: 'x' }, ...object } as never);
  };

  it('of a claim show its size once it is bound', () => {
    const status = { phase: 'Bound', capacity: { storage: '3Gi' }, accessModes: ['ReadWriteMany', 'ReadWriteOnce'] };
    const bound = { spec: { volumeName: 'v', storageClassName: 'fast', volumeMode: 'Block' }, status };
    assert.deepEqual(
      cells('', 'v1', 'persistentvolumeclaims', bound)?.filter((_, at) => at !== 7),
      ['x', 'Bound', 'v', '3Gi', 'RWO,RWX', 'fast', '<unset>', 'Block'],
    );
    const waiting = cells('', 'v1', 'persistentvolumeclaims', { ...bound, spec: {} });
    assert.deepEqual(waiting?.slice(2, 5), ['', '', '']);
  });

  it('of a quota keep requests and limits apart', () => {
    const status = { hard: { pods: '5', 'limits.cpu': '2' }, used: { pods: '1', 'limits.cpu': '500m' } };
    assert.deepEqual(cells('', 'v1', 'resourcequotas', { status })?.slice(1, 3), ['pods: 1/5', 'limits.cpu: 500m/2']);
  });
});

describe('rules of storage', () => {
  const update = (resource: string, before: Draft, after: Draft = before) =>
    rulesOf(storageKinds, 'storage.k8s.io', resource).update(before, after).errors;

  it('check classes and capacities whole on each update', () => {
    const bad = { provisioner: 'a.b', reclaimPolicy: 'Later', volumeBindingMode: 'Immediate' };
    assert.deepEqual(update('storageclasses', bad), [
      'reclaimPolicy: Unsupported value: "Later": supported values: "Delete", "Retain"',
    ]);
    assert.deepEqual(update('volumeattributesclasses', { driverName: 'a.b' }), [
      'parameters: Required value: must contain at least one key/value pair',
    ]);
    assert.deepEqual(update('csistoragecapacities', { storageClassName: 'a', capacity: '-1' }), [
      'capacity: Invalid value: "-1": must be greater than or equal to 0',
    ]);
  });

  it('limit texts by their bytes in UTF-8', () => {
    const nodeID = 'é'.repeat(129);
    assert.deepEqual(update('csinodes', { spec: { drivers: [{ name: 'a.b', nodeID }] } }), [
      `spec.drivers[0].nodeID: Invalid value: "${nodeID}": must be 256 characters or less`,
    ]);
    const spec = { attacher: 'a.b', nodeName: 'n', source: { persistentVolumeName: 'v' } };
    const status = (detail: object) => ({ spec, status: { attached: false, ...detail } });
    const { errors } = rulesOf(storageKinds, 'storage.k8s.io', 'volumeattachments', 'status').update(
      status({}),
      status({ attachError: { message: 'é'.repeat(513) }, attachmentMetadata: { a: 'é'.repeat(128 * 1024) } }),
    );
    assert.deepEqual(errors, [
      'status.attachmentMetadata: Too long: may not be more than 262144 bytes',
      'status.attachError.message: Too long: may not be more than 262144 bytes',
    ]);
  });
});
