import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PersistentVolumeClaim, Pod, StatefulSet } from '../../../../api/kinds/kinds.ts';
import type { OwnerReference } from '../../../../api/meta/object.ts';
import { wantedOwners } from '../../../../controlplane/controllers/stateful-set/claim-retention.ts';

const set = (whenDeleted: string, whenScaled: string): StatefulSet => ({
  metadata: { name: 'db', namespace: 'n', uid: 'set' },
  spec: {
    replicas: 2,
    serviceName: 'db',
    selector: {},
    template: {},
    persistentVolumeClaimRetentionPolicy: { whenDeleted, whenScaled },
  },
});
const pod = (ordinal: number): Pod => ({ metadata: { name: `db-${ordinal}`, namespace: 'n', uid: `pod-${ordinal}` } });
const claim = (...ownerReferences: OwnerReference[]): PersistentVolumeClaim => ({
  metadata: { name: 'data-db-0', namespace: 'n', ownerReferences },
});
const owner = (kind: string, name: string, uid: string): OwnerReference => ({
  apiVersion: kind === 'Pod' ? 'v1' : 'apps/v1',
  kind,
  name,
  uid,
  controller: true,
  blockOwnerDeletion: true,
});
const ofSet = owner('StatefulSet', 'db', 'set');
const owners = (one: StatefulSet, ordinal: number, of = claim()): string[] | undefined =>
  wantedOwners(one, { pod: pod(ordinal), ordinal }, of)?.map(({ uid }) => uid);

test('retained claims have no owner', () => {
  assert.equal(owners(set('Retain', 'Retain'), 0), undefined);
  assert.deepEqual(owners(set('Retain', 'Retain'), 0, claim(ofSet)), [], 'also after the policy changed');
});

test('claims that go with the set belong to it', () => {
  assert.deepEqual(owners(set('Delete', 'Retain'), 0), ['set']);
  assert.equal(owners(set('Delete', 'Retain'), 0, claim(ofSet)), undefined);
  assert.deepEqual(owners(set('Delete', 'Retain'), 5), ['set'], 'also those of members that are scaled away');
});

test('claims that go with a member belong to it once it is scaled away', () => {
  assert.equal(owners(set('Retain', 'Delete'), 1), undefined);
  assert.deepEqual(owners(set('Retain', 'Delete'), 2), ['pod-2']);
  assert.deepEqual(owners(set('Delete', 'Delete'), 2, claim(ofSet)), ['pod-2']);
});

test('a claim is no longer owned by its pod when the set is scaled up again', () => {
  const scaledAway = claim(owner('Pod', 'db-1', 'pod-1'));
  assert.deepEqual(owners(set('Retain', 'Delete'), 1, scaledAway), []);
  assert.deepEqual(owners(set('Delete', 'Delete'), 1, scaledAway), ['set']);
});

test('a claim with another controller stays unchanged', () => {
  assert.equal(owners(set('Delete', 'Delete'), 0, claim(owner('Operator', 'x', 'other'))), undefined);
});

test('the set owns nothing beside another controller, and controls what it owns', () => {
  const other = owner('Operator', 'x', 'other');
  assert.deepEqual(owners(set('Delete', 'Delete'), 0, claim(other, { ...ofSet, controller: false })), ['other']);
  assert.deepEqual(owners(set('Delete', 'Retain'), 0, claim({ ...other, controller: false })), ['other', 'set']);
  const uncontrolled = claim({ ...ofSet, controller: false });
  const wanted = wantedOwners(set('Delete', 'Retain'), { pod: pod(0), ordinal: 0 }, uncontrolled);
  assert.deepEqual(wanted, [ofSet]);
});

test('a claim of an earlier set or pod with the same name stays unchanged', () => {
  assert.equal(owners(set('Delete', 'Delete'), 0, claim({ ...ofSet, uid: 'earlier' })), undefined);
  assert.equal(owners(set('Retain', 'Retain'), 0, claim(owner('Pod', 'db-0', 'earlier'))), undefined);
});
