/** Tests the eviction of pods that a budget guards. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../../../../../api/machinery/clock.ts';
import { createFieldManagement } from '../../../../../../controlplane/registry/managed-fields.ts';
import { openFixture } from '../../registry-fixture.ts';

test('kube-apiserver owns what an eviction writes to the status of the budget', async () => {
  const fixture = await openFixture(undefined, undefined, (expected) => createFieldManagement(systemClock, expected));
  try {
    const spec = { containers: [{ name: 'c', image: 'i' }] };
    const pod = await fixture.create('v1/pods', { metadata: { name: 'a', labels: { app: 'a' } }, spec });
    const conditions = [{ type: 'Ready', status: 'True' }];
    await fixture.update('v1/pods:status', { ...pod, status: { phase: 'Running', conditions } });
    const budget = await fixture.create('policy/v1/poddisruptionbudgets', {
      metadata: { name: 'b' },
      spec: { selector: { matchLabels: { app: 'a' } }, maxUnavailable: 1 },
    });
    const counts = { disruptionsAllowed: 1, currentHealthy: 1, desiredHealthy: 0, expectedPods: 1 };
    const status = { ...counts, observedGeneration: 1 };
    await fixture.update('policy/v1/poddisruptionbudgets:status', { ...budget, status });
    await fixture.create('v1/pods:eviction', { metadata: { name: 'a' } });
    const { metadata } = await fixture.get('policy/v1/poddisruptionbudgets', 'b');
    const entries = (metadata.managedFields ?? []).filter(({ subresource }) => subresource === 'status');
    const owned = entries.map(({ manager, apiVersion, operation, fieldsV1 }) => {
      const fields = Object.keys((fieldsV1 as { 'f:status': object })['f:status']);
      return [
        manager,
        apiVersion,
        operation,
        fields.includes('f:disruptedPods'),
        fields.includes('f:disruptionsAllowed'),
      ];
    });
    assert.deepEqual(
      new Set(owned),
      new Set([
        ['test', 'policy/v1', 'Update', false, false],
        ['kube-apiserver', 'policy/v1', 'Update', true, true],
      ]),
    );
  } finally {
    await fixture.close();
  }
});
