/** Tests how the oldest updaters are merged. The rules are those of `capmanagers.go` of Kubernetes 1.36. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeFieldsV1 } from '../../../../api/codec/structured-merge/fields-v1.ts';
import { setOfPaths } from '../../../../api/codec/structured-merge/field-set.ts';
import { capUpdaters, ownerKey, type Owner } from '../../../../controlplane/registry/managed-fields-entries.ts';

const updater = (manager: string, time: string | undefined, subresource = ''): Owner => ({
  manager,
  operation: 'Update',
  apiVersion: 'apps/v1',
  subresource,
  time,
  fields: setOfPaths([[`f:${manager}`]]),
});

/** Returns the fields of each owner after the oldest of eleven updaters were merged. The last ones are `m1`, `m2` and so on. */
function capped(...first: Owner[]): Record<string, string[]> {
  const later = Array.from({ length: 11 - first.length }, (_, index) =>
    updater(`m${index + 1}`, `2026-01-01T00:00:${10 + index}Z`),
  );
  const owners = new Map([...first, ...later].map((owner) => [ownerKey(owner), owner]));
  capUpdaters(owners);
  assert.equal(owners.size, 10);
  return Object.fromEntries(
    [...owners.values()].map(({ manager, fields }) => [manager, Object.keys(encodeFieldsV1(fields))]),
  );
}

const merged = (second: number): Owner => updater('ancient-changes', `2026-01-01T00:00:0${second}Z`);

test('the two oldest updaters of a version become one', () => {
  const fields = capped(updater('one', undefined, 'scale'), updater('two', '2026-01-01T00:00:02Z'));
  assert.deepEqual(fields['ancient-changes'], ['f:one', 'f:two']);
});

test('merged updaters take in the next one', () => {
  const fields = capped(merged(1), updater('one', '2026-01-01T00:00:02Z'));
  assert.deepEqual(fields['ancient-changes'], ['f:ancient-changes', 'f:one']);
});

test('an updater that is older than the merged ones stays, as the writes through a Scale, which have no time', () => {
  const fields = capped(updater('one', undefined, 'scale'), updater('two', undefined, 'scale'), merged(9));
  assert.deepEqual(fields['one'], ['f:one']);
  assert.deepEqual(fields['ancient-changes'], ['f:ancient-changes', 'f:two']);
});

test('merged updaters that are the second oldest are lost, as in kube-apiserver', () => {
  const fields = capped(updater('one', undefined, 'scale'), merged(9));
  assert.deepEqual(fields['one'], ['f:one']);
  assert.equal(fields['ancient-changes'], undefined);
});
