/** Tests which flow schema matches a request. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseRequestPath } from '../../../../../api/http/request-path.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import {
  SUGGESTED_LEVELS,
  SUGGESTED_SCHEMAS,
} from '../../../../../controlplane/registry/kinds/flowcontrol/flowcontrol-defaults.ts';
import type { FlowSchema } from '../../../../../controlplane/registry/kinds/flowcontrol/flowcontrol-types.ts';
import { FlowControl } from '../../../../../controlplane/server/flowcontrol/flow-control.ts';
import { parseRequestInfo } from '../../../../../controlplane/server/request-info.ts';

const named = <Spec>(specs: Readonly<Record<string, Spec>>) =>
  Object.entries(specs).map(([name, spec]) => ({ metadata: { name, uid: `uid-${name}` }, spec }));

function controlOf(schemas: readonly FlowSchema[] = []): FlowControl {
  const control = new FlowControl({ clock: new FakeClock(), totalSeats: 600 });
  control.configure([...named(SUGGESTED_SCHEMAS), ...schemas], named(SUGGESTED_LEVELS));
  return control;
}

const node = { name: 'system:node:n1', groups: ['system:nodes', 'system:authenticated'] };
const account = (namespace: string, name: string) => ({
  name: `system:serviceaccount:${namespace}:${name}`,
  groups: ['system:serviceaccounts', `system:serviceaccounts:${namespace}`, 'system:authenticated'],
});
const alice = { name: 'alice', groups: ['system:authenticated'] };
const manager = { name: 'system:kube-controller-manager', groups: ['system:authenticated'] };
const PODS = '/api/v1/namespaces/ns1/pods';
const LEASE = '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1';

const CASES = [
  {
    user: { name: 'root', groups: ['system:masters', 'system:authenticated'] },
    request: `GET ${PODS}`,
    flow: 'exempt/',
  },
  { user: node, request: `PUT ${LEASE}`, flow: 'system-node-high/system:node:n1' },
  { user: node, request: 'PATCH /api/v1/nodes/n1/status', flow: 'system-node-high/system:node:n1' },
  { user: node, request: `GET ${PODS}`, flow: 'system-nodes/system:node:n1' },
  {
    user: manager,
    request: 'PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kcm',
    flow: 'system-leader-election/system:kube-controller-manager',
  },
  { user: manager, request: `GET ${PODS}/a`, flow: 'kube-controller-manager/ns1' },
  { user: account('kube-system', 'robot'), request: `GET ${PODS}`, flow: 'kube-system-service-accounts/ns1' },
  { user: account('ns1', 'robot'), request: `GET ${PODS}`, flow: 'service-accounts/system:serviceaccount:ns1:robot' },
  { user: alice, request: `GET ${PODS}`, flow: 'global-default/alice' },
  { user: alice, request: 'GET /readyz', flow: 'probes/' },
  { user: alice, request: 'GET /readyz/ping', flow: 'global-default/alice' },
  { user: { name: 'nobody', groups: [] }, request: `GET ${PODS}`, flow: 'catch-all/nobody' },
];

for (const { user, request, flow } of CASES) {
  test(`${user.name}: ${request} belongs to ${flow}`, () => {
    const [method = '', path = ''] = request.split(' ');
    const info = parseRequestInfo(method, parseRequestPath(path), () => new URLSearchParams());
    const { schema, distinguisher } = controlOf().classify({ user, info });
    assert.equal(`${schema.name}/${distinguisher}`, flow);
  });
}

function schemaOf(name: string, precedence: number, rule: object, level = 'workload-low'): FlowSchema {
  const subjects = [{ kind: 'User', user: { name: 'alice' } }];
  return {
    metadata: { name },
    spec: {
      matchingPrecedence: precedence,
      priorityLevelConfiguration: { name: level },
      rules: [{ subjects, ...rule }],
    },
  };
}

const names = (control: FlowControl, method: string, path: string): string =>
  control.classify({ user: alice, info: parseRequestInfo(method, parseRequestPath(path), () => new URLSearchParams()) })
    .schema.name;
const anyResource = { resourceRules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'] }] };

test('the lower precedence number wins, then the name; schemas without their level are passed over', () => {
  const control = controlOf([
    schemaOf('b', 50, anyResource),
    schemaOf('a', 50, anyResource),
    schemaOf('0', 1, anyResource, 'missing'),
    schemaOf('later', 60, anyResource),
  ]);
  assert.equal(names(control, 'GET', PODS), 'a');
});

test('rules look at verbs, groups, resources with subresources, namespaces, cluster scope and paths', () => {
  const control = controlOf([
    schemaOf('s', 50, {
      resourceRules: [{ verbs: ['get'], apiGroups: [''], resources: ['pods', 'pods/status'], namespaces: ['ns1'] }],
      nonResourceRules: [{ verbs: ['get'], nonResourceURLs: ['/metrics', '/openapi/*'] }],
    }),
  ]);
  const mine = (method: string, path: string): boolean => names(control, method, path) === 's';
  assert.deepEqual(
    [
      mine('GET', `${PODS}/a`),
      mine('GET', `${PODS}/a/status`),
      mine('GET', `${PODS}/a/log`),
      mine('PUT', `${PODS}/a`),
      mine('GET', '/api/v1/namespaces/ns2/pods/a'),
      mine('GET', '/api/v1/pods/a'),
      mine('GET', '/apis/apps/v1/namespaces/ns1/pods/a'),
      mine('GET', '/metrics'),
      mine('GET', '/metrics/x'),
      mine('GET', '/openapi/v3'),
    ],
    [true, true, false, false, false, false, false, true, false, true],
  );
});

test('a user whose groups changed is classified again, and a changed configuration applies at once', () => {
  const control = controlOf();
  const info = parseRequestInfo('GET', parseRequestPath(PODS), () => new URLSearchParams());
  assert.equal(control.classify({ user: alice, info }).schema.name, 'global-default');
  assert.equal(control.classify({ user: { ...alice, groups: ['system:masters'] }, info }).schema.name, 'exempt');
  control.configure([...named(SUGGESTED_SCHEMAS), schemaOf('mine', 5, anyResource)], named(SUGGESTED_LEVELS));
  assert.equal(control.classify({ user: alice, info }).schema.name, 'mine');
});

test('the flow of a user is one object, whichever request asks', () => {
  const control = controlOf();
  const flow = (path: string) =>
    control.classify({
      user: alice,
      info: parseRequestInfo('GET', parseRequestPath(path), () => new URLSearchParams()),
    });
  assert.equal(flow(PODS), flow(`${PODS}/a`));
});
