import assert from 'node:assert/strict';
import { test } from 'node:test';
import { namespacedName } from '../../../../api/meta/namespaced-name.ts';

test('an object of the cluster never has the key of an object with a namespace', () => {
  assert.equal(namespacedName({ metadata: { name: 'web', namespace: 'shop' } }), 'shop/web');
  assert.equal(namespacedName({ metadata: { name: 'web' } }), '/web');
});
