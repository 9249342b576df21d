import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../../../../../../api/meta/object.ts';
import { podKinds } from '../../../../../../controlplane/registry/kinds/core/pods.ts';
import { strategyOf } from '../strategy-fixture.ts';

test('pods are selected by the node under its former name as well', () => {
  const { selectableFields = {} } = strategyOf(podKinds, 'pods');
  const pod = { metadata: { name: 'p' }, spec: { nodeName: 'n' } } as unknown as KubeObject;
  assert.equal(selectableFields['spec.host']?.(pod), 'n');
  assert.equal(selectableFields['spec.nodeName']?.(pod), 'n');
});
