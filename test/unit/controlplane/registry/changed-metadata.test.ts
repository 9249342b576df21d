/** The metadata of an update is validated in several ways, with the causes of each, at the cost of one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { changedMetadataErrors } from '../../../../controlplane/registry/changed-metadata.ts';
import type { Endpoint, Store } from '../../../../controlplane/registry/store.ts';

const store = { builtIn: true, info: { namespaced: false }, strategy: {} } as unknown as Store;
const endpoint = { info: { group: '' }, subresource: '', strategy: {} } as unknown as Endpoint;

test('labels are read once for all validations of an update, each of which reports their errors', () => {
  let reads = 0;
  const labels = new Proxy<Record<string, string>>(
    { 'b!': 'v', a: 'v', 'a!': 'v' },
    {
      ownKeys(target) {
        reads += 1;
        return Reflect.ownKeys(target);
      },
    },
  );
  const object = { metadata: { name: 'n', uid: 'u', resourceVersion: '1', labels } } as unknown as KubeObject;
  const errors = changedMetadataErrors(store, endpoint, object, object);
  assert.equal(reads, 1);
  assert.deepEqual(
    errors.map(({ value }) => value),
    ['a!', 'b!', 'a!', 'b!', 'a!', 'b!', 'a!', 'b!'],
  );
});
