/** Only a user who can read the parameters of an admission policy can bind the policy to them. */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const directory = temporaryFolder();
const GROUP = '/apis/admissionregistration.k8s.io/v1';
const RBAC = '/apis/rbac.authorization.k8s.io/v1';
let plane: ControlPlane;
let count = 0;

before(async () => {
  const tokenAuthFile = join(directory, 'tokens.csv');
  writeFileSync(tokenAuthFile, 'admin-token,admin,1,"system:masters"\nann-token,ann,2\nreader-token,reader,3\n');
  plane = await startControlPlane({ memory: true, flags: { tokenAuthFile, controllers: [], scheduler: false } });
  const author = { apiGroups: ['admissionregistration.k8s.io'], resources: ['*'], verbs: ['*'] };
  await grant('ann', [author, { apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'list'] }]);
  await grant('reader', [author, { apiGroups: [''], resources: ['secrets'], verbs: ['get', 'list'] }]);
});
after(async () => {
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

async function grant(user: string, rules: readonly object[]): Promise<void> {
  const metadata = { name: user };
  const apiVersion = 'rbac.authorization.k8s.io/v1';
  const role = { apiVersion, kind: 'ClusterRole', metadata, rules };
  const roleRef = { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: user };
  const subjects = [{ kind: 'User', name: user, apiGroup: 'rbac.authorization.k8s.io' }];
  const binding = { apiVersion, kind: 'ClusterRoleBinding', metadata, roleRef, subjects };
  assert.equal((await call('admin', 'POST', `${RBAC}/clusterroles`, role)).status, 201);
  assert.equal((await call('admin', 'POST', `${RBAC}/clusterrolebindings`, binding)).status, 201);
}

interface Answer {
  readonly status: number;
  readonly message: string;
}

function call(who: string, method: string, path: string, body: object): Promise<Answer> {
  const { hostname, port } = new URL(plane.url);
  const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
  const headers = { authorization: `Bearer ${who}-token`, 'content-type': type };
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, method, ca: plane.ca, agent: false, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('end', () => {
        const { message = '' } = JSON.parse(text) as { message?: string };
        resolve({ status: response.statusCode ?? 0, message });
      });
    });
    sent.on('error', reject);
    sent.end(JSON.stringify(body));
  });
}

const policy = (kind: string, paramKind: object | undefined): object => ({
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind,
  metadata: { name: `policy-${(count += 1)}` },
  spec: {
    ...(paramKind === undefined ? {} : { paramKind }),
    matchConstraints: {
      resourceRules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }],
    },
    ...(kind === 'ValidatingAdmissionPolicy'
      ? { validations: [{ expression: 'false', messageExpression: "'x'" }] }
      : {
          reinvocationPolicy: 'Never',
          mutations: [
            {
              patchType: 'JSONPatch',
              jsonPatch: { expression: '[JSONPatch{op: "test", path: "/kind", value: "Pod"}]' },
            },
          ],
        }),
  },
});

const binding = (kind: string, policyName: string, paramRef: object): object => ({
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: `${kind}Binding`,
  metadata: { name: `binding-${(count += 1)}` },
  spec: {
    policyName,
    paramRef: { parameterNotFoundAction: 'Allow', ...paramRef },
    ...(kind === 'ValidatingAdmissionPolicy' ? { validationActions: ['Deny'] } : {}),
  },
});

const SECRETS = { apiVersion: 'v1', kind: 'Secret' };
const CONFIG_MAPS = { apiVersion: 'v1', kind: 'ConfigMap' };
const nameOf = (object: object): string => (object as { metadata: { name: string } }).metadata.name;

for (const [kind, resource] of [
  ['ValidatingAdmissionPolicy', 'validatingadmissionpolicies'],
  ['MutatingAdmissionPolicy', 'mutatingadmissionpolicies'],
] as const) {
  describe(`a ${kind}`, () => {
    const path = `${GROUP}/${resource}`;
    const bindings = `${GROUP}/${kind.toLowerCase()}bindings`;
    test(`has no parameters that its author may not read (${kind})`, async () => {
      const refused = await call('ann', 'POST', path, policy(kind, SECRETS));
      assert.equal(refused.status, 422);
      assert.match(
        refused.message,
        /must have "get" permission on all objects of the referenced paramKind \(kind=Secret, apiVersion=v1\)/,
      );
      assert.equal((await call('ann', 'POST', path, policy(kind, { apiVersion: 'a.b/v1', kind: 'C' }))).status, 422);
      assert.equal((await call('ann', 'POST', path, policy(kind, CONFIG_MAPS))).status, 201);
      assert.equal((await call('ann', 'POST', path, policy(kind, undefined))).status, 201);
      assert.equal((await call('reader', 'POST', path, policy(kind, SECRETS))).status, 201);
    });
    test('gets no such parameters by an update', async () => {
      const own = policy(kind, undefined);
      assert.equal((await call('ann', 'POST', path, own)).status, 201);
      const change = (paramKind: object) => call('ann', 'PATCH', `${path}/${nameOf(own)}`, { spec: { paramKind } });
      assert.equal((await change(SECRETS)).status, 422);
      assert.equal((await change(CONFIG_MAPS)).status, 200);
    });
    test('of others gets no parameters by a binding whose author may not read them', async () => {
      const others = policy(kind, SECRETS);
      assert.equal((await call('admin', 'POST', path, others)).status, 201);
      for (const [ref, verb] of [
        [{ name: 'token', namespace: 'kube-system' }, 'get'],
        [{ selector: {}, namespace: 'kube-system' }, 'list'],
        [{ name: 'token' }, 'get'],
      ] as const) {
        const refused = await call('ann', 'POST', bindings, binding(kind, nameOf(others), ref));
        assert.equal(refused.status, 422);
        assert.ok(refused.message.includes(`does not have "${verb}" permission on the object referenced by paramRef`));
        const allowed = await call('reader', 'POST', bindings, binding(kind, nameOf(others), ref));
        assert.equal(allowed.status, 201, allowed.message);
      }
      const unknown = binding(kind, 'not-there-yet', { name: 'token', namespace: 'kube-system' });
      assert.equal((await call('ann', 'POST', bindings, unknown)).status, 422);
    });
  });
}
