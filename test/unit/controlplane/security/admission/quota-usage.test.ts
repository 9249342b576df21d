/** Tests the usage of objects for quotas, and which quotas match them: one row for each rule. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ResourceQuota } from '../../../../../api/kinds/kinds.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { formatQuantity } from '../../../../../api/meta/quantity.ts';
import { uncovered } from '../../../../../controlplane/security/admission/limited-resources.ts';
import { missingAmounts, quotaMatches, usageOf } from '../../../../../controlplane/security/admission/quota-usage.ts';

const container = (requests: object = {}, limits: object = {}, name = 'c'): object => ({
  name,
  resources: { requests, limits },
});
const pod = (spec: object, phase = 'Pending'): KubeObject =>
  ({ metadata: { name: 'p' }, spec: { containers: [container()], ...spec }, status: { phase } }) as KubeObject;
const usage = (group: string, resource: string, object: KubeObject): Record<string, string> =>
  Object.fromEntries([...usageOf(group, resource, object)].map(([name, amount]) => [name, formatQuantity(amount)]));

const device = (exactly: object): object => ({ name: 'r', exactly });
const usages: readonly (readonly [string, string, string, KubeObject, Record<string, string>])[] = [
  ['anything', 'apps', 'deployments', { metadata: {} }, { 'count/deployments.apps': '1' }],
  ['a Secret', '', 'secrets', { metadata: {} }, { 'count/secrets': '1', secrets: '1' }],
  [
    'a pod',
    '',
    'pods',
    pod({ containers: [container({ cpu: '1', memory: '1Gi', 'example.com/gpu': '2' }, { cpu: '2' })] }),
    {
      'count/pods': '1',
      pods: '1',
      cpu: '1',
      'requests.cpu': '1',
      memory: '1Gi',
      'requests.memory': '1Gi',
      'requests.example.com/gpu': '2',
      'limits.cpu': '2',
    },
  ],
  ['a pod that has ended', '', 'pods', pod({ containers: [container({ cpu: '1' })] }, 'Failed'), { 'count/pods': '1' }],
  [
    'a service with node ports',
    '',
    'services',
    { metadata: {}, spec: { type: 'NodePort', ports: [{ port: 1 }, { port: 2 }] } } as KubeObject,
    { 'count/services': '1', services: '1', 'services.nodeports': '2' },
  ],
  [
    'a load balancer without node ports',
    '',
    'services',
    {
      metadata: {},
      spec: {
        type: 'LoadBalancer',
        allocateLoadBalancerNodePorts: false,
        ports: [{ port: 1 }, { port: 2, nodePort: 30001 }],
      },
    } as KubeObject,
    { 'count/services': '1', services: '1', 'services.loadbalancers': '1', 'services.nodeports': '1' },
  ],
  [
    'a claim of a class',
    '',
    'persistentvolumeclaims',
    { metadata: {}, spec: { storageClassName: 'fast', resources: { requests: { storage: '1Gi' } } } } as KubeObject,
    {
      'count/persistentvolumeclaims': '1',
      persistentvolumeclaims: '1',
      'requests.storage': '1Gi',
      'fast.storageclass.storage.k8s.io/persistentvolumeclaims': '1',
      'fast.storageclass.storage.k8s.io/requests.storage': '1Gi',
    },
  ],
  [
    'a claim of devices, with alternatives',
    'resource.k8s.io',
    'resourceclaims',
    {
      metadata: {},
      spec: {
        devices: {
          requests: [
            device({ deviceClassName: 'gpu', allocationMode: 'ExactCount', count: 2 }),
            device({ deviceClassName: 'nic', allocationMode: 'All' }),
            {
              name: 's',
              firstAvailable: [
                { name: 'a', deviceClassName: 'gpu', count: 1 },
                { name: 'b', deviceClassName: 'gpu', count: 3 },
                { name: 'c', deviceClassName: 'cpu', count: 4 },
              ],
            },
          ],
        },
      },
    } as KubeObject,
    {
      'count/resourceclaims.resource.k8s.io': '1',
      'gpu.deviceclass.resource.k8s.io/devices': '5',
      'nic.deviceclass.resource.k8s.io/devices': '32',
      'cpu.deviceclass.resource.k8s.io/devices': '4',
    },
  ],
];
for (const [name, group, resource, object, expected] of usages) {
  test(`${name} counts for what it takes`, () => assert.deepEqual(usage(group, resource, object), expected));
}

const across = (namespaces: readonly string[]): object => ({
  affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [{ namespaces, topologyKey: 'k' }] } },
});
const scopes: readonly (readonly [string, object, boolean])[] = [
  ['Terminating', { activeDeadlineSeconds: 5 }, true],
  ['Terminating', {}, false],
  ['NotTerminating', {}, true],
  ['NotTerminating', { activeDeadlineSeconds: 5 }, false],
  ['BestEffort', {}, true],
  ['BestEffort', { containers: [container({ cpu: '0' })] }, true],
  ['BestEffort', { containers: [container({ 'example.com/gpu': '1' })] }, true],
  ['BestEffort', { containers: [container({}, { memory: '1' })] }, false],
  ['NotBestEffort', { initContainers: [container({ cpu: '1' })] }, true],
  ['PriorityClass', { priorityClassName: 'high' }, true],
  ['PriorityClass', {}, false],
  ['CrossNamespacePodAffinity', across(['other']), true],
  ['CrossNamespacePodAffinity', across([]), false],
];
for (const [scope, spec, expected] of scopes) {
  test(`scope ${scope} ${expected ? 'covers' : 'does not cover'} a pod with ${JSON.stringify(spec)}`, () =>
    assert.equal(
      quotaMatches({ metadata: {}, spec: { scopes: [scope] } } as ResourceQuota, 'pods', pod(spec)),
      expected,
    ));
}

for (const [operator, values, className, expected] of [
  ['In', ['high'], 'high', true],
  ['In', ['high'], 'low', false],
  ['NotIn', ['high'], 'low', true],
  ['NotIn', ['high'], 'high', false],
  ['NotIn', ['high'], undefined, true],
  ['Exists', undefined, 'low', true],
  ['DoesNotExist', undefined, undefined, true],
  ['DoesNotExist', undefined, 'low', false],
] as const) {
  test(`a selector ${operator} ${values?.join() ?? ''} ${expected ? 'takes' : 'leaves'} class ${className ?? 'none'}`, () => {
    const requirement = {
      scopeName: 'PriorityClass',
      operator,
      ...(values === undefined ? {} : { values: [...values] }),
    };
    const quota = { metadata: {}, spec: { scopeSelector: { matchExpressions: [requirement] } } } as ResourceQuota;
    assert.equal(
      quotaMatches(quota, 'pods', pod(className === undefined ? {} : { priorityClassName: className })),
      expected,
    );
  });
}

test('a quota with scopes is about pods alone', () => {
  const quota = { metadata: {}, spec: { scopes: ['NotTerminating'] } } as ResourceQuota;
  assert.equal(quotaMatches(quota, 'services', { metadata: {} }), false);
});

test('every container must specify the resources that a quota counts, and the error names them in order', () => {
  const spec = {
    containers: [container({}, {}, 'b'), container({ cpu: '1' }, {}, 'c')],
    initContainers: [container({}, {}, 'a')],
  } as unknown as Parameters<typeof missingAmounts>[0];
  assert.equal(
    missingAmounts(spec, ['requests.cpu', 'limits.memory', 'pods', 'requests.example.com/gpu']),
    'must specify limits.memory for: a,b,c; requests.cpu for: a,b',
  );
  assert.equal(missingAmounts(spec, ['pods']), undefined);
});

test('a limited resource needs a quota that covers it', () => {
  const object = pod({ priorityClassName: 'vital', containers: [container({ cpu: '1' })] });
  const asked = { group: '', resource: 'pods', object, usage: usageOf('', 'pods', object) };
  const scope = { scopeName: 'PriorityClass', operator: 'In', values: ['vital', 'other'] };
  const limited = [{ group: '', resource: 'pods', matchContains: ['requests.cpu'], matchScopes: [scope] }];
  const quota = (hard: Record<string, string>, matchExpressions: object[] = []): ResourceQuota =>
    ({ metadata: {}, spec: { scopeSelector: { matchExpressions } }, status: { hard } }) as ResourceQuota;
  assert.equal(uncovered(limited, asked, []), 'insufficient quota to consume: requests.cpu');
  assert.equal(
    uncovered(limited, asked, [quota({ 'requests.cpu': '5' })]),
    'insufficient quota to match these scopes: [{PriorityClass In [vital other]}]',
  );
  assert.equal(uncovered(limited, asked, [quota({ 'requests.cpu': '5' }, [scope])]), undefined);
  assert.equal(uncovered(limited, { ...asked, resource: 'services' }, []), undefined);
  const ordinary = { ...asked, object: pod({}), usage: usageOf('', 'pods', pod({})) };
  assert.equal(uncovered(limited, ordinary, []), undefined);
});
