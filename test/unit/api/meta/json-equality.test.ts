import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jsonEqual, semanticEqual } from '../../../../api/meta/json-equality.ts';

test('quantities compare by value where the comparison is semantic, other texts do not', () => {
  const resources = (cpu: string) => ({
    containers: [{ resources: { requests: { cpu }, limits: { memory: '1Gi' } } }],
  });
  assert.equal(semanticEqual(resources('1.500'), resources('1500m')), true);
  assert.equal(semanticEqual(resources('1.5'), resources('1501m')), false);
  assert.equal(semanticEqual(resources('1.5'), resources('much')), false);
  assert.equal(jsonEqual(resources('1.500'), resources('1500m')), false);
  assert.equal(semanticEqual({ emptyDir: { sizeLimit: '1024Mi' } }, { emptyDir: { sizeLimit: '1Gi' } }), true);
  assert.equal(semanticEqual({ env: [{ name: 'A', value: '1' }] }, { env: [{ name: 'A', value: '01' }] }), false);
  assert.equal(semanticEqual({ labels: { version: '1.0' } }, { labels: { version: '1' } }), false);
});
