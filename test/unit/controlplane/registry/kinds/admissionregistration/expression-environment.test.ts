/** Tests the variables, result types and costs of expressions in policies and webhooks. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  expressionErrors,
  type ExpressionPlace,
} from '../../../../../../controlplane/registry/kinds/admissionregistration/expression-checks.ts';
import { validatingPolicyErrors } from '../../../../../../controlplane/registry/kinds/admissionregistration/admission-policy-validation.ts';
import { assertLinearTime } from '../../../../../fuzz/growth.ts';
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

/** Returns a policy whose variables use each other in a row, and as many validations that use the last one. */
const chain = (size: number) => ({
  failurePolicy: 'Fail',
  matchConstraints: {
    matchPolicy: 'Equivalent',
    namespaceSelector: {},
    objectSelector: {},
    resourceRules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }],
  },
  variables: Array.from({ length: size }, (_variable, at) => ({
    name: `v${at}`,
    expression: at === 0 ? 'object.spec' : `variables.v${at - 1}`,
  })),
  validations: Array.from({ length: size }, (_validation, at) => ({
    expression: `variables.v${size - 1} != ${at}`,
  })),
});

test('policies whose variables use each other are checked in time that grows with their number', async () => {
  const errorsOfChain = (size: number): unknown => validatingPolicyErrors(checkExpression, 'p', chain(size));
  assert.deepEqual(errorsOfChain(30), []);
  await assertLinearTime(errorsOfChain, { minBytes: 4096, maxBytes: 4096, noticeableMs: 100 });
});

test('a variable may use those before it alone, and the messages of a policy may use those that ask the authorizer', () => {
  const [first, second] = chain(2).variables;
  const errors = validatingPolicyErrors(checkExpression, 'p', {
    ...chain(0),
    variables: [
      { name: 'a', expression: 'variables.b' },
      { name: 'b', expression: "authorizer.path('/x').check('get').reason()" },
      ...[first, second].filter((one) => one !== undefined),
    ],
    validations: [{ expression: 'true', messageExpression: 'variables.b' }],
  });
  assert.deepEqual(
    errors.map(({ field }) => field),
    ['spec.variables[0].expression'],
  );
});
