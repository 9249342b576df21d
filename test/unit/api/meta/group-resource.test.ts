/** Tests resources by group and plural. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deployments, pods } from '../../../../api/client/resources.ts';
import { groupResourceName, isResource } from '../../../../api/meta/group-resource.ts';

test('a resource of the core group has its plural as name, and another one its group behind that', () => {
  assert.equal(groupResourceName(pods), 'pods');
  assert.equal(groupResourceName(deployments), 'deployments.apps');
});

test('a resource is the same in all versions, and another one in another group', () => {
  assert.equal(isResource({ group: 'apps', resource: 'deployments' }, deployments), true);
  assert.equal(isResource({ group: 'apps', resource: 'replicasets' }, deployments), false);
  assert.equal(isResource({ group: 'example.com', resource: 'pods' }, pods), false);
});
