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

test('an eviction with options that no deletion accepts leaves the pod as it is', async () => {
  const fixture = await openFixture();
  try {
    const spec = { containers: [{ name: 'c', image: 'i' }] };
    const { metadata } = await fixture.create('v1/pods', { metadata: { name: 'a' }, spec });
    const option = 'ignoreStoreReadErrorWithClusterBreakingPotential';
    for (const [deleteOptions, message] of [
      [{ dryRun: ['x'] }, /dryRun: Unsupported value: \["x"\]: supported values: "All"$/],
      [{ propagationPolicy: 'X' }, /propagationPolicy: Unsupported value: "X"/],
      [{ propagationPolicy: 'Orphan', orphanDependents: true }, /cannot be both set$/],
      [{ [option]: true }, /Eviction.policy "a" is invalid: deleteOptions.* can not be set for pod eviction/],
    ] as const)
      await assert.rejects(fixture.create('v1/pods:eviction', { metadata: { name: 'a' }, deleteOptions }), message);
    assert.equal((await fixture.get('v1/pods', 'a')).metadata.resourceVersion, metadata.resourceVersion);
  } finally {
    await fixture.close();
  }
});

test('a binding that names another revision of the pod is a conflict, whether the pod has a node or not', async () => {
  const fixture = await openFixture();
  try {
    const spec = { containers: [{ name: 'c', image: 'i' }] };
    await fixture.create('v1/pods', { metadata: { name: 'a' }, spec });
    const target = { kind: 'Node', name: 'n' };
    const refused = () =>
      assert.rejects(
        fixture.create('v1/pods:binding', { metadata: { name: 'a', resourceVersion: '1' }, target }),
        /on pods "a": StorageError: invalid object.* ResourceVersion in precondition: 1, ResourceVersion in object meta: /,
      );
    await refused();
    await fixture.create('v1/pods:binding', { metadata: { name: 'a' }, target });
    await refused();
  } finally {
    await fixture.close();
  }
});

test('an object that an update creates keeps the time of its deletion, as in kube-apiserver', async () => {
  const fixture = await openFixture();
  try {
    const metadata = { name: 'a', deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 5 };
    const lease = await fixture.update('coordination.k8s.io/v1/leases', { metadata, spec: {} });
    assert.equal(lease.metadata.deletionTimestamp, metadata.deletionTimestamp);
    assert.equal(lease.metadata.deletionGracePeriodSeconds, 5);
  } finally {
    await fixture.close();
  }
});
