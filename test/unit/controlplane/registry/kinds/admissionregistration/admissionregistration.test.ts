import assert from 'node:assert/strict';
import { test } from 'node:test';
import { admissionRegistrationKinds } from '../../../../../../controlplane/registry/kinds/admissionregistration/admissionregistration.ts';
import { checkExpression } from '../../../../../../controlplane/registry/kinds/admissionregistration/expression-environment.ts';
import { rulesOf } from '../strategy-fixture.ts';

const GROUP = 'admissionregistration.k8s.io';
const rows = admissionRegistrationKinds(checkExpression);
const webhooks = rulesOf(rows, GROUP, 'validatingwebhookconfigurations');
const policies = rulesOf(rows, GROUP, 'validatingadmissionpolicies');
const mutations = rulesOf(rows, GROUP, 'mutatingadmissionpolicies');
const bindings = rulesOf(rows, GROUP, 'validatingadmissionpolicybindings');

const rule = { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] };
const hook = (more: object = {}) => ({
  name: 'a.example.com',
  clientConfig: { url: 'https://hook.example/x' },
  sideEffects: 'None',
  admissionReviewVersions: ['v1'],
  rules: [rule],
  ...more,
});
const policy = (more: object = {}) => ({
  spec: { matchConstraints: { resourceRules: [rule] }, validations: [{ expression: 'true' }], ...more },
});

test('a webhook gets its defaults', () => {
  const { object, errors } = webhooks.create({
    webhooks: [hook({ clientConfig: { service: { namespace: 'n', name: 's' } } })],
  });
  assert.deepEqual(errors, []);
  const [made] = object['webhooks'] as Record<string, unknown>[];
  assert.equal(made?.['failurePolicy'], 'Fail');
  assert.equal(made?.['matchPolicy'], 'Equivalent');
  assert.equal(made?.['timeoutSeconds'], 10);
  assert.equal(made?.['reinvocationPolicy'], undefined);
  assert.deepEqual(made?.['clientConfig'], { service: { namespace: 'n', name: 's', port: 443 } });
});

const WEBHOOKS: readonly (readonly [string, object, readonly string[]])[] = [
  [
    'it has one way to be called',
    { clientConfig: {} },
    ['clientConfig: Required value: exactly one of url or service is required'],
  ],
  [
    'its address is encrypted, without user, query and fragment',
    { clientConfig: { url: 'http://u:p@h.example/x?q=1#f' } },
    [
      `clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]`,
      'clientConfig.url: Invalid value: "u:p": user information is not permitted in the URL',
      'clientConfig.url: Invalid value: "f": fragments are not permitted in the URL',
      'clientConfig.url: Invalid value: "q=1": query parameters are not permitted in the URL',
    ],
  ],
  [
    'it does no harm to dry runs',
    { sideEffects: 'Some' },
    ['sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'],
  ],
  [
    'it answers within half a minute',
    { timeoutSeconds: 31 },
    ['timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds'],
  ],
  [
    'a condition is true or false',
    { matchConditions: [{ name: 'c', expression: '"text"' }] },
    ['matchConditions[0].expression: Invalid value: "\\"text\\"": must evaluate to bool but got string'],
  ],
];

for (const [what, more, errors] of WEBHOOKS) {
  test(`webhook: ${what}`, () => {
    assert.deepEqual(
      webhooks.create({ webhooks: [hook(more)] }).errors,
      errors.map((error) => `webhooks[0].${error}`),
    );
  });
}

test('a wildcard for resources stands alone', () => {
  const { errors } = webhooks.create({
    webhooks: [hook({ rules: [{ ...rule, resources: ['pods/*', 'pods/log', '*', 'pods'] }] })],
  });
  assert.deepEqual(errors, [
    `webhooks[0].rules[0].resources[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log`,
    `webhooks[0].rules[0].resources: Invalid value: ["pods/*","pods/log","*","pods"]: if '*' is present, must not specify other resources without subresources`,
  ]);
});

test('an old configuration keeps side effects that new ones must not have', () => {
  const old = { webhooks: [hook({ sideEffects: 'Unknown' })] };
  assert.deepEqual(webhooks.update(old, { webhooks: [hook({ sideEffects: 'Some' })] }).errors, []);
  assert.equal(webhooks.update({ webhooks: [hook()] }, { webhooks: [hook({ sideEffects: 'Some' })] }).errors.length, 1);
});

test('a policy says what it is about and what it demands', () => {
  assert.deepEqual(policies.create({ spec: {} }).errors, [
    'spec.matchConstraints: Required value',
    'spec.validations: Required value: validations or auditAnnotations must contain at least one item',
    'spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item',
  ]);
});

test('an expression names parameters only where there are some', () => {
  const validations = [{ expression: 'params.x == 1' }];
  assert.equal(policies.create(policy({ validations })).errors.length, 1);
  const paramKind = { apiVersion: 'v1', kind: 'ConfigMap' };
  assert.deepEqual(policies.create(policy({ validations, paramKind })).errors, []);
});

test('an expression names the variables before it', () => {
  const variables = [
    { name: 'a', expression: '1' },
    { name: 'b', expression: 'variables.a + 1' },
  ];
  assert.deepEqual(
    policies.create(policy({ variables, validations: [{ expression: 'variables.b == 2' }] })).errors,
    [],
  );
  assert.equal(
    policies.create(policy({ variables, validations: [{ expression: 'variables.c == 2' }] })).errors.length,
    1,
  );
});

test('a mutation has the patch of its type and no other', () => {
  const of = (mutation: object) =>
    mutations.create({
      spec: { matchConstraints: { resourceRules: [rule] }, reinvocationPolicy: 'Never', mutations: [mutation] },
    }).errors;
  assert.deepEqual(of({ patchType: 'ApplyConfiguration', applyConfiguration: { expression: 'Object{}' } }), []);
  assert.deepEqual(of({ patchType: 'ApplyConfiguration', jsonPatch: { expression: '[]' } }), [
    'spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration',
    'spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration',
  ]);
});

test('a mutating policy does not match deletions', () => {
  const { errors } = mutations.create({
    spec: {
      matchConstraints: { resourceRules: [{ ...rule, operations: ['CREATE', 'DELETE'] }] },
      reinvocationPolicy: 'Never',
      mutations: [{ patchType: 'ApplyConfiguration', applyConfiguration: { expression: 'Object{}' } }],
    },
  });
  assert.deepEqual(errors, [
    'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"',
  ]);
});

test('the resources of a binding are named by their field', () => {
  const spec = { policyName: 'p', validationActions: ['Deny'], matchResources: { matchPolicy: 'Some' } };
  assert.deepEqual(bindings.create({ spec }).errors, [
    'spec.matchResources.matchPolicy: Unsupported value: "Some": supported values: "Equivalent", "Exact"',
  ]);
});

test('a binding does not both deny and warn', () => {
  const { errors } = bindings.create({ spec: { policyName: 'p', validationActions: ['Deny', 'Warn'] } });
  assert.equal(errors.length, 1);
  assert.match(errors[0] ?? '', /must not contain both Deny and Warn/);
});

test('the conditions of a policy are checked with its status', () => {
  const status = rulesOf(rows, GROUP, 'validatingadmissionpolicies', 'status');
  const conditions = [
    { type: 'Ready', status: 'Maybe', reason: 'Because', lastTransitionTime: '2024-01-01T00:00:00Z' },
  ];
  assert.deepEqual(status.update(policy(), { ...policy(), status: { conditions } }).errors, [
    'status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"',
  ]);
});
