/** The variables, result types and costs of expressions in policies and webhooks. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  expressionErrors,
  type ExpressionPlace,
} from '../../../../../../controlplane/registry/kinds/admissionregistration/expression-checks.ts';
import { checkExpression } from '../../../../../../controlplane/registry/kinds/admissionregistration/expression-environment.ts';

const errorsOf = (place: ExpressionPlace, expression: string): string[] =>
  expressionErrors(checkExpression, 'f', { place, expression }).map(String);

describe('a selector of devices', () => {
  const right = [
    "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'a'",
    "device.attributes.all(d, device.attributes[d].all(k, k.startsWith('x')))",
    "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1Gi'))",
    "device.attributes['gpu.example.com'].model.matches('^a.*')",
  ];
  for (const expression of right) {
    test(`may be ${expression}`, () => assert.deepEqual(errorsOf('deviceSelector', expression), []));
  }
  test('may not cost more than a million', () => {
    const nested =
      'device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a != b && c != d))))';
    assert.deepEqual(errorsOf('deviceSelector', nested), ['f: Forbidden: too complex, exceeds cost limit']);
  });
});

test('policies may name what a namespace has, and nothing else of it', () => {
  assert.deepEqual(errorsOf('validation', "namespaceObject.metadata.labels['a'] == 'b'"), []);
  const [fault] = errorsOf('validation', "namespaceObject.metadata.nothing == 'b'");
  assert.match(fault ?? '', /undefined field 'nothing'/);
});

test('an expression must have exactly the type of its place', () => {
  assert.deepEqual(errorsOf('validation', 'object.spec.ok'), [
    'f: Invalid value: "object.spec.ok": must evaluate to bool but got dyn',
  ]);
  assert.deepEqual(errorsOf('validation', 'object.spec.ok == true'), []);
  assert.deepEqual(errorsOf('jsonPatch', '[]'), [
    'f: Invalid value: "[]": must evaluate to list(JSONPatch) but got list(dyn)',
  ]);
  assert.deepEqual(errorsOf('jsonPatch', '[JSONPatch{op: "remove", path: "/spec/a"}]'), []);
  assert.deepEqual(errorsOf('applyConfiguration', 'Object{spec: Object.spec{a: 1}}'), []);
});
