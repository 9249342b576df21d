import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initAndMainContainers } from '../../../../api/kinds/pod-containers.ts';

test('init containers come first, as their resources are allocated first', () => {
  assert.deepEqual(initAndMainContainers({ containers: ['web', 'log'], initContainers: ['init'] }), [
    'init',
    'web',
    'log',
  ]);
});

test('a specification without lists has no containers', () => {
  assert.deepEqual(initAndMainContainers({}), []);
  assert.deepEqual(initAndMainContainers(undefined), []);
});
