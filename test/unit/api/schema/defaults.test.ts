import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JsonObject } from '../../../../api/meta/object.ts';
import { applyTableDefaults } from '../../../../api/schema/defaults.ts';
import { loadSchema } from '../../../../api/schema/table.ts';

function defaulted(group: string, version: string, kind: string, value: JsonObject): JsonObject {
  const struct = loadSchema().kind(group, version, kind);
  assert.ok(struct !== undefined);
  applyTableDefaults(struct, value);
  return value;
}

test('quantities of core resource lists are rounded up to thousandths', () => {
  const claim = { spec: { resources: { requests: { storage: '1n' }, limits: { storage: '1500u' } } } };
  assert.deepEqual(defaulted('', 'v1', 'PersistentVolumeClaim', claim)['spec'], {
    resources: { requests: { storage: '1m' }, limits: { storage: '2m' } },
  });
  const node = { status: { capacity: { cpu: '1n', memory: '1Gi' } } };
  assert.deepEqual(defaulted('', 'v1', 'Node', node)['status'], { capacity: { cpu: '1m', memory: '1Gi' } });
});

test('the overhead of a runtime class and what agents report of containers are not rounded', () => {
  const overhead = { podFixed: { cpu: '1n' } };
  assert.deepEqual(defaulted('node.k8s.io', 'v1', 'RuntimeClass', { overhead })['overhead'], {
    podFixed: { cpu: '1n' },
  });
  const containerStatuses = [{ name: 'c', allocatedResources: { cpu: '1n' } }];
  const { status } = defaulted('', 'v1', 'Pod', { status: { containerStatuses } });
  assert.equal(
    (status as { containerStatuses: typeof containerStatuses }).containerStatuses[0]?.allocatedResources.cpu,
    '1n',
  );
});
