import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cloneJson, jsonEqual, semanticEqual } from '../../../../api/meta/json-equality.ts';

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

test('a copy has members named __proto__ as its own, shares nothing and keeps the order of members', () => {
  const text = '{"b":{"__proto__":{"c":[{"d":1}]}},"a":null,"__proto__":[1,{"e":2}]}';
  const source = deepFreeze(JSON.parse(text) as object);
  const copy = cloneJson(source) as Record<string, { own?: number }>;
  assert.equal(JSON.stringify(copy), text);
  assert.equal(Object.getPrototypeOf(copy), Object.prototype);
  (copy['b'] ?? {}).own = 1;
  assert.equal(JSON.stringify(source), text);
});

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}
