/** Tests admission policies in CEL over fixed objects. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  mutatingAdmissionPolicies,
  mutatingAdmissionPolicyBindings,
  validatingAdmissionPolicies,
  validatingAdmissionPolicyBindings,
} from '../../../../../../api/client/resources.ts';
import { systemClock } from '../../../../../../api/machinery/clock.ts';
import type { KubeObject } from '../../../../../../api/meta/object.ts';
import { isStatusError } from '../../../../../../api/meta/status-error.ts';
import { loadSchema } from '../../../../../../api/schema/table.ts';
import type { AdmissionAttributes } from '../../../../../../controlplane/security/admission/admission.ts';
import { webhookConditions } from '../../../../../../controlplane/security/admission/policy/match-conditions.ts';
import { checkPatchedObject } from '../../../../../../controlplane/security/admission/policy/patched-object.ts';
import type { VersionConversion } from '../../../../../../controlplane/security/admission/policy/request-view.ts';
import { catalogConversion } from '../../../../../../controlplane/security/admission/webhook/catalog-conversion.ts';
import { createCatalog } from '../../../../../../controlplane/registry/resource-catalog.ts';
import { CelError } from '../../../../../../api/cel/values.ts';
import { mutatingAdmissionPolicy } from '../../../../../../controlplane/security/admission/policy/mutating-policy.ts';
import { validatingAdmissionPolicy } from '../../../../../../controlplane/security/admission/policy/validating-policy.ts';
import { fixedListers } from '../../../../../fakes/fixed-listers.ts';
import type { Authorizer } from '../../../../../../controlplane/security/authorization/authorization.ts';

const RULES = [{ apiGroups: [''], apiVersions: ['*'], operations: ['CREATE', 'UPDATE'], resources: ['configmaps'] }];
const authorizer: Authorizer = {
  authorize: ({ user, verb }) =>
    Promise.resolve({ decision: user.name === 'ann' && verb === 'get' ? 'allow' : 'no-opinion', reason: '' }),
};
const conversion = {
  isNamespaced: () => true,
  equivalents: () => [],
  kindOf: () => undefined,
  convert: (object: KubeObject) => object,
};

function attributesOf(
  object: KubeObject,
  user = 'bob',
): { attributes: AdmissionAttributes; warnings: string[]; annotations: Map<string, string> } {
  const warnings: string[] = [];
  const annotations = new Map<string, string>();
  const attributes = {
    operation: 'CREATE' as const,
    resource: { group: '', version: 'v1', resource: 'configmaps' },
    subresource: '',
    kind: { group: '', version: 'v1', kind: 'ConfigMap' },
    namespace: '',
    name: object.metadata.name ?? '',
    object: object as KubeObject | undefined,
    oldObject: undefined,
    options: {},
    dryRun: false,
    user: { name: user, groups: [] },
    setObject(next: KubeObject) {
      attributes.object = next;
    },
    warn: (text: string) => warnings.push(text),
    annotate: (key: string, value: string) => annotations.set(key, value),
  };
  return { attributes: attributes as AdmissionAttributes, warnings, annotations };
}

const configMap = (name: string, data?: Record<string, string>): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name },
  ...(data === undefined ? {} : { data }),
});

function validating(spec: object, binding: object = { validationActions: ['Deny'] }) {
  const listers = fixedListers([
    {
      resource: validatingAdmissionPolicies,
      object: { metadata: { name: 'p' }, spec: { matchConstraints: { resourceRules: RULES }, ...spec } },
    },
    {
      resource: validatingAdmissionPolicyBindings,
      object: { metadata: { name: 'b' }, spec: { policyName: 'p', ...binding } },
    },
  ]);
  return validatingAdmissionPolicy({ listers, clock: systemClock, authorizer, conversion, resources: () => [] });
}

const signal = new AbortController().signal;
const deny = (message: string) =>
  `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ${message}`;

async function refusal(
  spec: object,
  object: KubeObject,
  user?: string,
): Promise<{ code: number; message: string } | undefined> {
  try {
    await validating(spec).validate?.(attributesOf(object, user).attributes, signal);
    return undefined;
  } catch (error) {
    assert.ok(isStatusError(error));
    return { code: error.status.code ?? 0, message: error.message };
  }
}

describe('a validating policy', () => {
  test('refuses with its message and the code of its reason', async () => {
    const spec = { validations: [{ expression: "object.metadata.name != 'x'", message: 'no x', reason: 'Forbidden' }] };
    assert.deepEqual(await refusal(spec, configMap('x')), { code: 403, message: deny('no x') });
    assert.equal(await refusal(spec, configMap('y')), undefined);
  });
  test('sees a Namespace in the namespace of its own name, which has no namespace object', async () => {
    const resource = { group: '', version: 'v1', resource: 'namespaces' };
    const rule = { apiGroups: [''], apiVersions: ['v1'], operations: ['*'], resources: ['namespaces'] };
    const message = "request.namespace + ' ' + string(namespaceObject == null)";
    const spec = {
      matchConstraints: { resourceRules: [rule] },
      validations: [{ expression: 'false', messageExpression: message }],
    };
    const { attributes } = attributesOf({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'prod' } });
    for (const name of ['prod', '']) {
      const asked = { ...attributes, resource, name } as AdmissionAttributes;
      await assert.rejects(async () => validating(spec).validate?.(asked, signal), /denied request: prod true/);
    }
  });
  const judgesAll = async (group: string, resource: string): Promise<void> => {
    const rule = { apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'] };
    const spec = {
      matchConstraints: { resourceRules: [rule] },
      validations: [{ expression: 'false', message: 'nothing' }],
    };
    const { attributes } = attributesOf(configMap('x'));
    const asked = { ...attributes, resource: { group, version: 'v1', resource } } as AdmissionAttributes;
    await validating(spec).validate?.(asked, signal);
  };
  test('judges custom resources that are named like reviews, but no reviews', async () => {
    await judgesAll('authentication.k8s.io', 'tokenreviews');
    await assert.rejects(judgesAll('example.com', 'tokenreviews'), /denied request: nothing/);
  });
  test('judges the configurations of webhooks, but no policies', async () => {
    const group = 'admissionregistration.k8s.io';
    for (const kind of ['validating', 'mutating']) {
      await judgesAll(group, `${kind}admissionpolicies`);
      await judgesAll(group, `${kind}admissionpolicybindings`);
      await assert.rejects(judgesAll(group, `${kind}webhookconfigurations`), /denied request: nothing/);
    }
  });
  test('refuses a request that it cannot evaluate unless its failurePolicy is Ignore', async () => {
    const validations = [{ expression: "object.data['a'] == 'b'" }];
    const message = deny("expression 'object.data['a'] == 'b'' resulted in error: no such key: data");
    assert.deepEqual(await refusal({ validations }, configMap('x')), { code: 422, message });
    assert.equal(await refusal({ validations, failurePolicy: 'Ignore' }, configMap('x')), undefined);
  });
  test('evaluates variables when they are read', async () => {
    const spec = {
      variables: [
        { name: 'never', expression: '1 / 0' },
        { name: 'keys', expression: 'object.data.size()' },
        { name: 'limit', expression: 'variables.keys + 1' },
      ],
      validations: [{ expression: 'variables.keys < 1', messageExpression: "'limit ' + string(variables.limit)" }],
    };
    assert.equal((await refusal(spec, configMap('x', { a: '1' })))?.message, deny('limit 2'));
  });
  test('does not run where a condition does not hold, even if another one fails', async () => {
    const spec = {
      matchConditions: [
        { name: 'a', expression: 'object.none == 1' },
        { name: 'b', expression: 'false' },
      ],
      validations: [{ expression: 'false' }],
    };
    assert.equal(await refusal(spec, configMap('x')), undefined);
  });
  test('waits for the authorizer', async () => {
    const spec = {
      validations: [{ expression: "authorizer.group('').resource('secrets').check('get').allowed()", message: 'm' }],
    };
    assert.equal(await refusal(spec, configMap('x'), 'ann'), undefined);
    assert.equal((await refusal(spec, configMap('x'), 'bob'))?.message, deny('m'));
  });
  test('warns and writes to the audit log as its binding requires', async () => {
    const plugin = validating({ validations: [{ expression: 'false' }] }, { validationActions: ['Warn', 'Audit'] });
    const { attributes, warnings, annotations } = attributesOf(configMap('x'));
    await plugin.validate?.(attributes, signal);
    assert.deepEqual(warnings, [
      "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: false",
    ]);
    const failure = { message: 'failed expression: false', policy: 'p', binding: 'b', expressionIndex: 0 };
    assert.deepEqual(JSON.parse(annotations.get('validation.policy.admission.k8s.io/validation_failure') ?? ''), [
      { ...failure, validationActions: ['Warn', 'Audit'] },
    ]);
  });
  test('that cannot have its parameters denies, whatever its binding wants done, unless failures are ignored', async () => {
    const spec = { paramKind: { apiVersion: 'g.io/v1', kind: 'Limit' }, validations: [{ expression: 'true' }] };
    const binding = { validationActions: ['Warn'], paramRef: { name: 'l', parameterNotFoundAction: 'Deny' } };
    const { attributes } = attributesOf(configMap('x'));
    await assert.rejects(
      async () => validating(spec, binding).validate?.(attributes, signal),
      /ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'g.io\/v1, Kind=Limit'$/,
    );
    await validating({ ...spec, failurePolicy: 'Ignore' }, binding).validate?.(attributes, signal);
    await validating(spec, { validationActions: ['Warn'] }).validate?.(attributes, signal);
  });
  test('denies by an audit annotation that fails, and keeps those that do not', async () => {
    const auditAnnotations = [
      { key: 'good', valueExpression: "' ' + object.metadata.name" },
      { key: 'none', valueExpression: 'null' },
      { key: 'bad', valueExpression: "object.data['a']" },
    ];
    const { attributes, warnings, annotations } = attributesOf(configMap('x'));
    const actions = { validationActions: ['Warn'] };
    await assert.rejects(
      async () =>
        validating({ validations: [{ expression: 'false' }], auditAnnotations }, actions).validate?.(
          attributes,
          signal,
        ),
      /denied request: expression 'object.data\['a'\]' resulted in error: no such key: data/,
    );
    assert.deepEqual([...annotations], [['p/good', 'x']]);
    assert.equal(warnings.length, 1, 'what else it found is reported as the binding demands');
    const numbers = [{ key: 'number', valueExpression: 'dyn(1)' }];
    await assert.rejects(
      async () => validating({ auditAnnotations: numbers }, actions).validate?.(attributes, signal),
      /valueExpression 'dyn\(1\)' resulted in unsupported return type: int. Return type must be either string or null/,
    );
  });
  test('without a binding judges nothing', async () => {
    const plugin = validating({ validations: [{ expression: 'false' }] }, { policyName: 'another' });
    await plugin.validate?.(attributesOf(configMap('x')).attributes, signal);
  });
});

describe('a mutating policy', () => {
  const schema = loadSchema();
  const changed = async (
    mutation: object,
    object: KubeObject,
    {
      converted = conversion,
      failurePolicy = 'Fail',
      preserveUnknown = false,
    }: { converted?: VersionConversion; failurePolicy?: string; preserveUnknown?: boolean } = {},
  ): Promise<KubeObject | undefined> => {
    const listers = fixedListers([
      {
        resource: mutatingAdmissionPolicies,
        object: {
          metadata: { name: 'p' },
          spec: { failurePolicy, matchConstraints: { resourceRules: RULES }, mutations: [mutation] },
        },
      },
      { resource: mutatingAdmissionPolicyBindings, object: { metadata: { name: 'b' }, spec: { policyName: 'p' } } },
    ]);
    const plugin = mutatingAdmissionPolicy({
      listers,
      clock: systemClock,
      authorizer,
      conversion: converted,
      resources: () => [],
      structOf: ({ group, version, kind }) => {
        const struct = schema.kind(group, version, kind);
        return struct && preserveUnknown ? { name: struct.name, fields: struct.fields, preserveUnknown } : struct;
      },
      reinvoke: () => Promise.resolve(),
    });
    const { attributes } = attributesOf(object);
    await plugin.admit?.(attributes, signal);
    return attributes.object;
  };

  test('applies a configuration', async () => {
    const expression = "Object{metadata: Object.metadata{labels: {'a': object.metadata.name}}}";
    const object = await changed(
      { patchType: 'ApplyConfiguration', applyConfiguration: { expression } },
      configMap('x', { k: 'v' }),
    );
    assert.deepEqual(object?.metadata.labels, { a: 'x' });
    assert.deepEqual(object['data'], { k: 'v' });
  });
  test('removes nothing from what all objects inherit', async (t) => {
    Object.defineProperty(Object.prototype, 'inherited', { value: 1, configurable: true });
    t.after(() => Reflect.deleteProperty(Object.prototype, 'inherited'));
    const expression = "Object{extra: {'k': {'a': null}, '__proto__': {'inherited': null}}}";
    const object = await changed(
      { patchType: 'ApplyConfiguration', applyConfiguration: { expression } },
      configMap('x'),
      { preserveUnknown: true },
    );
    assert.deepEqual((object?.['extra'] as Record<string, unknown> | undefined)?.['k'], {});
    assert.equal(Object.hasOwn(Object.prototype, 'inherited'), true);
  });
  test('refuses an invalid configuration, and one with unknown or atomic fields', async () => {
    const deployment: KubeObject = {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'x' },
      spec: { replicas: 1 },
    };
    const cases: readonly (readonly [string, string])[] = [
      ["'I am none'", 'unsupported return type from ApplyConfiguration expression: string'],
      [
        'Object{spec: Object.specx{replicas: 1}}',
        'type mismatch: unexpected type name "Object.specx", expected "Object.spec", which matches field name path from root Object type',
      ],
      [
        'Object{spec: Object.spec{replicasx: 1}}',
        'error applying patch: failed to convert patch object to typed object: .spec.replicasx: field not declared in schema',
      ],
      [
        "Object{spec: Object.spec{replicas: 'x'}}",
        'error applying patch: failed to convert patch object to typed object: .spec.replicas: expected numeric (int or float), got string',
      ],
      [
        "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'l': 'v'}}}}",
        'error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector',
      ],
    ];
    for (const [expression, why] of cases) {
      await assert.rejects(
        changed({ patchType: 'ApplyConfiguration', applyConfiguration: { expression } }, deployment),
        (error) => isStatusError(error) && error.message === `policy 'p' with binding 'b' denied request: ${why}`,
      );
    }
    const expression =
      "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'c', image: 'i'}]}}}}";
    const next = await changed({ patchType: 'ApplyConfiguration', applyConfiguration: { expression } }, deployment);
    assert.deepEqual(next?.['spec'], {
      replicas: 1,
      template: { spec: { containers: [{ name: 'c', image: 'i' }] } },
    });
  });
  for (const [value, data] of [
    ["{'t': timestamp('2024-01-01T00:00:00.5Z')}", { t: '2024-01-01T00:00:00.5Z' }],
    ["{'d': duration('1h')}", { d: '3600s' }],
    ["{'b': b'abc'}", { b: 'YWJj' }],
    ["{'o': optional.of('x')}", { o: 'x' }],
    ["dyn({'n': 9223372036854775807})", { n: '9223372036854775807' }],
  ] as const)
    test(`a JSON patch with ${value} has its JSON`, async () => {
      const expression = `[JSONPatch{op: 'add', path: '/data', value: ${value}}]`;
      const object = await changed({ patchType: 'JSONPatch', jsonPatch: { expression } }, configMap('x'));
      assert.deepEqual(object?.['data'], data);
    });
  for (const [value, why] of [
    ['optional.none()', 'optional.none() dereference'],
    ["{1: 'x'}", "unsupported type conversion from 'int' to string"],
    ["{true: 'x'}", "type conversion error from bool to 'string'"],
    ['string', "type conversion not supported for 'type'"],
    ["quantity('1')", "type conversion error from 'Quantity' to '*structpb.Value'"],
    ['-1.0 / 0.0', 'invalid -Inf value'],
  ] as const)
    test(`a JSON patch with ${value} is no JSON`, async () => {
      const expression = `[JSONPatch{op: 'add', path: '/data', value: ${value}}]`;
      await assert.rejects(
        async () => changed({ patchType: 'JSONPatch', jsonPatch: { expression } }, configMap('x')),
        (error: Error) =>
          error.message.includes('valueExpression evaluated to a type that could not marshal to JSON: ') &&
          error.message.endsWith(why),
      );
    });
  test('applies a patch', async () => {
    const expression = "[JSONPatch{op: 'add', path: '/data', value: {'n': string(1)}}]";
    const object = await changed({ patchType: 'JSONPatch', jsonPatch: { expression } }, configMap('x'));
    assert.deepEqual(object?.['data'], { n: '1' });
  });
  test('is not applied if a test of it fails, which is no failure of the policy', async () => {
    const expression =
      "[JSONPatch{op: 'add', path: '/data', value: {'n': '1'}}, JSONPatch{op: 'test', path: '/metadata/name', value: 'y'}]";
    const object = await changed({ patchType: 'JSONPatch', jsonPatch: { expression } }, configMap('x'));
    assert.equal(object?.['data'], undefined);
  });
  test('refuses a patch whose result is not of the kind, whatever the failure policy is', async () => {
    const converted = catalogConversion(createCatalog(), schema);
    const patched = (op: string, path: string, value: string, failurePolicy = 'Ignore') =>
      changed(
        {
          patchType: 'JSONPatch',
          jsonPatch: { expression: `[JSONPatch{op: '${op}', path: '${path}', value: ${value}}]` },
        },
        configMap('x'),
        { converted, failurePolicy },
      );
    const scheme = 'in scheme "pkg/runtime/scheme.go:111"';
    const cases: readonly (readonly [op: string, path: string, value: string, why: string])[] = [
      ['add', '/foo', "'x'", 'strict decoding error: unknown field "foo"'],
      ['add', '/metadata/foo', "'x'", 'strict decoding error: unknown field "metadata.foo"'],
      [
        'add',
        '/data',
        "'x'",
        'json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string',
      ],
      ['replace', '/kind', "'Foo'", `no kind "Foo" is registered for version "v1" ${scheme}`],
      ['replace', '/apiVersion', "'apps/v1'", `no kind "ConfigMap" is registered for version "apps/v1" ${scheme}`],
      ['replace', '/apiVersion', "'a/b/c'", 'unexpected GroupVersion string: a/b/c'],
      [
        'replace',
        '/kind',
        '1',
        "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
      ],
      [
        'replace',
        '/kind',
        "'Secret'",
        'failed to convert object: converting (v1.Secret) to (core.ConfigMap): unknown conversion',
      ],
    ];
    for (const [op, path, value, why] of cases) {
      await assert.rejects(
        patched(op, path, value),
        (error) => isStatusError(error, 'InternalError') && error.message === `Internal error occurred: ${why}`,
      );
    }
    assert.equal((await patched('replace', '/kind', "''"))?.kind, 'ConfigMap');
    assert.deepEqual((await patched('add', '/data', "{'n': '1'}"))?.['data'], { n: '1' });
  });
  test('fails by a patch that names another version of the kind', async () => {
    const autoscaler = { group: 'autoscaling', version: 'v2', kind: 'HorizontalPodAutoscaler' };
    const object = { apiVersion: 'autoscaling/v1', kind: 'HorizontalPodAutoscaler', metadata: { name: 'x' } };
    assert.throws(
      () => checkPatchedObject(schema, object, autoscaler),
      (error) =>
        error instanceof CelError &&
        error.message === 'converting (v1.HorizontalPodAutoscaler) to (v2.HorizontalPodAutoscaler): unknown conversion',
    );
  });
  test('refuses the request where it fails', async () => {
    const expression = "[JSONPatch{op: 'add', path: '/data', value: {'n': object.none}}]";
    await assert.rejects(
      changed({ patchType: 'JSONPatch', jsonPatch: { expression } }, configMap('x')),
      /policy 'p' with binding 'b' denied request: expression .* resulted in error: no such key: none/,
    );
  });
});

test('match conditions of webhooks: false decides before a failure', async () => {
  const evaluate = webhookConditions(() => authorizer);
  const { attributes } = attributesOf(configMap('x'));
  const view = {
    kind: attributes.kind,
    resource: attributes.resource,
    object: attributes.object,
    oldObject: undefined,
  };
  const conditions = (...all: string[]) => all.map((expression, index) => ({ name: String(index), expression }));
  assert.deepEqual(await evaluate(conditions("request.userInfo.username == 'bob'"), attributes, view), {
    matches: true,
  });
  assert.deepEqual(await evaluate(conditions('object.none', 'false'), attributes, view), { matches: false });
  assert.equal(
    (await evaluate(conditions('object.none == 1'), attributes, view)).error,
    "expression 'object.none == 1' resulted in error: no such key: none",
  );
});

/** Returns the number of turns of the event loop until the work is done. */
async function turnsOf(work: Promise<unknown>): Promise<number> {
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    turns += 1;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  await work;
  isDone = true;
  return turns;
}

describe('expressions that cost much', () => {
  const expensive = 'object.data.all(a, object.data.all(b, a != b || a == b))';
  const object = configMap('x', Object.fromEntries(Array.from({ length: 200 }, (_member, at) => [`k${at}`, 'v'])));

  test('of a policy give the event loop to others between them', async () => {
    const { attributes } = attributesOf(object);
    const plugin = validating({ validations: Array.from({ length: 20 }, () => ({ expression: expensive })) });
    const turns = await turnsOf(Promise.resolve(plugin.validate?.(attributes, signal)));
    assert.ok(turns >= 10, `${turns} turns`);
  });

  test('of match conditions give the event loop to others between them', async () => {
    const { attributes } = attributesOf(object);
    const view = { kind: attributes.kind, resource: attributes.resource, object, oldObject: undefined };
    const conditions = Array.from({ length: 20 }, (_condition, at) => ({ name: String(at), expression: expensive }));
    const turns = await turnsOf(webhookConditions(() => authorizer)(conditions, attributes, view));
    assert.ok(turns >= 10, `${turns} turns`);
  });
});
