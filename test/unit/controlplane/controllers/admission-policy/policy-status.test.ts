import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ResourceOf, validatingAdmissionPolicies } from '../../../../../api/client/resources.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import type { Policy } from '../../../../../controlplane/security/admission/policy/policy-types.ts';
import { policyStatuses } from '../../../../../controlplane/controllers/admission-policy/policy-status.ts';
import { warningsOf } from '../../../../../controlplane/controllers/admission-policy/type-checking.ts';
import { controllerTest } from '../../../../fakes/fake-controllers.ts';

/** Returns the type errors of a policy for deployments, and how often their computation yielded. */
function typeErrors(spec: Pick<NonNullable<Policy['spec']>, 'validations' | 'variables'>) {
  const schema = loadSchema();
  const struct = schema.kind('apps', 'v1', 'Deployment');
  assert.ok(struct !== undefined);
  const work = warningsOf(
    {
      metadata: { name: 'p' },
      spec: {
        matchConstraints: {
          resourceRules: [
            { apiGroups: ['apps'], apiVersions: ['v1'], operations: ['CREATE'], resources: ['deployments'] },
          ],
        },
        ...spec,
      },
    },
    {
      resources: () => [
        {
          group: 'apps',
          version: 'v1',
          resource: 'deployments',
          kind: 'Deployment',
          singular: 'deployment',
          shortNames: [],
          categories: [],
          namespaced: true,
          verbs: [],
          subresources: [],
        },
      ],
      structOf: () => struct,
      definedTypeOf: () => undefined,
    },
  );
  let pauses = 0;
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return { warnings: value, pauses };
    pauses += 1;
  }
}

test('expressions that cannot fit the kind are reported', () => {
  const { warnings } = typeErrors({
    validations: [{ expression: 'object.spec.replicas > 1' }, { expression: 'object.spec.replicaz > 1' }],
  });
  assert.deepEqual(
    warnings.map(({ fieldRef }) => fieldRef),
    ['spec.validations[1].expression'],
  );
  assert.match(
    warnings[0]?.warning ?? '',
    /apps\/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replicaz'/,
  );
});

test('a variable that does not compile is reported for each expression of the policy', () => {
  const { warnings } = typeErrors({
    variables: [{ name: 'v', expression: 'object.spec.replicaz' }],
    validations: [{ expression: 'variables.v > 1' }, { expression: 'true', messageExpression: "'m'" }],
  });
  const paths = ['[0].expression', '[1].expression', '[1].messageExpression'];
  assert.deepEqual(
    warnings.map(({ fieldRef }) => fieldRef),
    paths.map((path) => `spec.validations${path}`),
  );
});

test('type errors of a thousand expressions are found one after the other, with each variable compiled once', () => {
  const variables = Array.from({ length: 1000 }, (_variable, at) => ({
    name: `v${at}`,
    expression: at === 0 ? 'object.spec.replicas' : `variables.v${at - 1}`,
  }));
  const validations = Array.from({ length: 1000 }, () => ({ expression: 'variables.v999 > 1' }));
  const { warnings, pauses } = typeErrors({ variables, validations });
  assert.deepEqual(warnings, []);
  assert.ok(pauses >= 2000 && pauses < 2100, `${pauses} pauses`);
});

test('each generation of a policy is checked once, and its status is applied', async () => {
  const policies = validatingAdmissionPolicies as ResourceOf<Policy>;
  const validations = [{ expression: '1 + true' }];
  const policy = (name: string, observedGeneration?: number) =>
    [
      policies,
      { metadata: { name, generation: 2 }, spec: { validations }, status: { observedGeneration } } as Policy,
    ] as const;
  const t = controllerTest({ objects: [policy('new'), policy('older', 1), policy('checked', 2)] });
  await t.start(policyStatuses({ resources: () => [], structOf: () => undefined, definedTypeOf: () => undefined }));
  await t.advance(100);
  const writes = t.client.writes();
  assert.deepEqual(
    writes.map(({ verb, patchType, subresource, name }) => [verb, patchType, subresource, name]),
    ['new', 'older'].map((name) => ['patch', 'apply', 'status', name]),
  );
  assert.deepEqual(t.client.peek(validatingAdmissionPolicies, '', 'new')?.['status'], {
    observedGeneration: 2,
    typeChecking: {},
  });
  await t.stop();
});
