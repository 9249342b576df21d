/** Tests admission policies whose binding selects thousands of parameters. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  configMaps,
  type ResourceOf,
  secrets,
  mutatingAdmissionPolicies,
  mutatingAdmissionPolicyBindings,
  validatingAdmissionPolicies,
  validatingAdmissionPolicyBindings,
} from '../../../../../../api/client/resources.ts';
import { systemClock } from '../../../../../../api/machinery/clock.ts';
import type { KubeObject } from '../../../../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../../../../api/schema/schema.ts';
import type { AdmissionAttributes } from '../../../../../../controlplane/security/admission/admission.ts';
import { mutatingAdmissionPolicy } from '../../../../../../controlplane/security/admission/policy/mutating-policy.ts';
import { validatingAdmissionPolicy } from '../../../../../../controlplane/security/admission/policy/validating-policy.ts';
import type { Authorizer } from '../../../../../../controlplane/security/authorization/authorization.ts';
import type { Lister } from '../../../../../../controlplane/model/listers.ts';
import { fixedListers } from '../../../../../fakes/fixed-listers.ts';
import { turnsOf } from '../../../../../fakes/ticking-clock.ts';

const MOST = 2000;
const RULES = [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['secrets'] }];
const authorizer: Authorizer = { authorize: () => ({ decision: 'no-opinion', reason: '' }) };
const conversion = {
  isNamespaced: () => true,
  equivalents: () => [],
  kindOf: () => undefined,
  convert: (object: KubeObject) => object,
};

function attributesOf() {
  const annotations = new Map<string, string>();
  const warnings: string[] = [];
  const attributes = {
    operation: 'CREATE' as const,
    resource: secrets,
    subresource: '',
    kind: secrets,
    namespace: 'shop',
    name: 'x',
    object: { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'x' } } as KubeObject,
    oldObject: undefined,
    options: {},
    dryRun: false,
    user: { name: 'bob', groups: [] },
    setObject: (next: KubeObject) => void (attributes.object = next),
    warn: (text: string) => void warnings.push(text),
    annotate: (key: string, value: string) => void annotations.set(key, value),
  };
  return { attributes: attributes as unknown as AdmissionAttributes, annotations, warnings };
}

/** Returns the options of a plugin whose one policy gets all parameters. */
function optionsOf(
  policies: ResourceOf<KubeObject>,
  bindings: ResourceOf<KubeObject>,
  spec: object,
  parameterNotFoundAction: 'Allow' | 'Deny' = 'Deny',
) {
  const selector = { matchLabels: { for: 'policy' } };
  const paramRef = { namespace: 'shop', selector, parameterNotFoundAction };
  const policy = {
    metadata: { name: 'p' },
    spec: { paramKind: { apiVersion: 'v1', kind: 'ConfigMap' }, matchConstraints: { resourceRules: RULES }, ...spec },
  };
  const binding = {
    metadata: { name: 'b' },
    spec: { policyName: 'p', paramRef, validationActions: ['Deny', 'Audit', 'Warn'] },
  };
  const params = Array.from({ length: MOST }, (_, at) => ({
    metadata: { name: `n${at}`, namespace: 'shop', labels: { for: 'policy' } },
  }));
  const listers = fixedListers([
    { resource: policies, object: policy },
    { resource: bindings, object: binding },
    ...params.map((object) => ({ resource: configMaps, object })),
  ]);
  const info = { ...configMaps, kind: 'ConfigMap' } as unknown as ResourceInfo;
  return { listers, clock: systemClock, authorizer, conversion, resources: () => [info] };
}

const validating = (spec: object, more: object = {}) =>
  validatingAdmissionPolicy({
    ...optionsOf(
      validatingAdmissionPolicies as ResourceOf<KubeObject>,
      validatingAdmissionPolicyBindings as ResourceOf<KubeObject>,
      spec,
    ),
    ...more,
  });

const mutating = (more: object = {}) =>
  mutatingAdmissionPolicy({
    ...optionsOf(
      mutatingAdmissionPolicies as ResourceOf<KubeObject>,
      mutatingAdmissionPolicyBindings as ResourceOf<KubeObject>,
      { mutations: [{ patchType: 'JSONPatch', jsonPatch: { expression: '[]' } }] },
    ),
    structOf: () => undefined,
    reinvoke: () => Promise.resolve(),
    ...more,
  });

const signal = new AbortController().signal;

describe('a binding with thousands of parameters', () => {
  test('lets others have the event loop, however little each evaluation costs', async () => {
    const { attributes } = attributesOf();
    const plugin = validating({ validations: [{ expression: 'true' }] });
    const { turns } = await turnsOf(() => plugin.validate?.(attributes, signal));
    assert.ok(turns >= 5, `${turns} turns`);
    const { turns: mutatingTurns } = await turnsOf(() => mutating().admit?.(attributes, signal));
    assert.ok(mutatingTurns >= 5, `${mutatingTurns} turns`);
  });

  test('lets others have the event loop where each evaluation copies an object that takes long to copy', async () => {
    let nowMs = 0;
    const serialized = (object: KubeObject): KubeObject => {
      nowMs += 6;
      return object;
    };
    const slow = { clock: { monotonic: () => nowMs }, conversion: { ...conversion, serialized } };
    const { attributes } = attributesOf();
    const plugin = validating({ validations: [{ expression: 'true' }] }, slow);
    const { turns } = await turnsOf(() => plugin.validate?.(attributes, signal));
    assert.ok(turns >= MOST / 2, `${turns} turns`);
    const { turns: mutatingTurns } = await turnsOf(() => mutating(slow).admit?.(attributes, signal));
    assert.ok(mutatingTurns >= MOST / 2, `${mutatingTurns} turns`);
  });

  test('is evaluated no further once the request has ended', async () => {
    const ended = new AbortController();
    let copies = 0;
    const serialized = (object: KubeObject): KubeObject => {
      copies += 1;
      if (copies === 10) ended.abort(new Error('the request has ended'));
      return object;
    };
    const counting = { conversion: { ...conversion, serialized } };
    const { attributes } = attributesOf();
    const plugin = validating({ validations: [{ expression: 'true' }] }, counting);
    await assert.rejects(async () => plugin.validate?.(attributes, ended.signal), /the request has ended/);
    assert.equal(copies, 10);
    await assert.rejects(async () => mutating(counting).admit?.(attributes, ended.signal), /the request has ended/);
    assert.equal(copies, 10);
  });

  test('makes audit annotations that are bounded together', async () => {
    const long = `'${'a'.repeat(4000)}'.replace('a', 'bbb')`;
    const auditAnnotations = ['k1', 'k2', 'k3'].map((key) => ({
      key,
      valueExpression: `${long} + params.metadata.name`,
    }));
    const { attributes, annotations } = attributesOf();
    await validating({ auditAnnotations }).validate?.(attributes, signal);
    assert.deepEqual([...annotations.keys()], ['p/k1', 'p/k2', 'p/k3']);
    const characters = [...annotations.values()].reduce((sum, text) => sum + text.length, 0);
    assert.ok(characters <= 300_000, `${characters} characters`);
  });

  test('waits until they are listed, and lets nothing pass before', async () => {
    const options = optionsOf(
      validatingAdmissionPolicies as ResourceOf<KubeObject>,
      validatingAdmissionPolicyBindings as ResourceOf<KubeObject>,
      { validations: [{ expression: 'false' }] },
      'Allow',
    );
    let isListed = false;
    const of = <T extends KubeObject>(resource: ResourceOf<T>): Lister<T> => {
      const lister = options.listers.of(resource);
      if (resource.resource !== 'configmaps') return lister;
      return {
        ...lister,
        list: (namespace) => (isListed ? lister.list(namespace) : []),
        synced: async () => {
          await new Promise((resolve) => setImmediate(resolve));
          isListed = true;
        },
      };
    };
    const plugin = validatingAdmissionPolicy({ ...options, listers: { ...options.listers, of } });
    await assert.rejects(async () => plugin.validate?.(attributesOf().attributes, signal), /denied request: /);
  });

  test('refuses with the first violation, and warns of each', async () => {
    const { attributes, annotations, warnings } = attributesOf();
    const message = "'a message of parameter ' + params.metadata.name";
    const plugin = validating({ validations: [{ expression: 'false', messageExpression: message }] });
    await assert.rejects(
      async () => plugin.validate?.(attributes, signal),
      /denied request: a message of parameter n0$/,
    );
    assert.match(annotations.get('validation.policy.admission.k8s.io/validation_failure') ?? '', /parameter n0"/);
    assert.equal(warnings.length, MOST);
  });
});
