/** An object that admission gives another name is created under that name, or refused if there is one already. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Agent, request } from 'node:https';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const directory = temporaryFolder();
const GROUP = '/apis/admissionregistration.k8s.io/v1';
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';
const agent = new Agent({ keepAlive: false });
let plane: ControlPlane;

before(async () => {
  const tokenAuthFile = join(directory, 'tokens.csv');
  writeFileSync(tokenAuthFile, 'admin-token,admin,1,"system:masters"\n');
  plane = await startControlPlane({ memory: true, flags: { tokenAuthFile, controllers: [], scheduler: false } });
});
after(async () => {
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

function call(method: string, path: string, body: object, contentType = 'application/json') {
  const headers = { authorization: 'Bearer admin-token', 'content-type': contentType };
  return new Promise<{ readonly status: number; readonly text: string }>((resolve, reject) => {
    const sent = request(new URL(path, plane.url), { method, ca: plane.ca, agent, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    sent.on('error', reject).end(JSON.stringify(body));
  });
}

const apply = (name: string) =>
  call(
    'PATCH',
    `${CONFIG_MAPS}/${name}?fieldManager=test`,
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } },
    'application/apply-patch+yaml',
  );

test('an apply that creates an object which admission renames fails when that name exists', async () => {
  const apiVersion = 'admissionregistration.k8s.io/v1';
  const metadata = { name: 'rename' };
  const expression = "Object{metadata: Object.metadata{name: 'renamed'}}";
  const rules = [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['configmaps'] }];
  const spec = {
    reinvocationPolicy: 'Never',
    matchConstraints: { resourceRules: rules },
    mutations: [{ patchType: 'ApplyConfiguration', applyConfiguration: { expression } }],
  };
  const policy = { apiVersion, kind: 'MutatingAdmissionPolicy', metadata, spec };
  const binding = { apiVersion, kind: 'MutatingAdmissionPolicyBinding', metadata, spec: { policyName: 'rename' } };
  assert.equal((await call('POST', `${GROUP}/mutatingadmissionpolicies`, policy)).status, 201);
  assert.equal((await call('POST', `${GROUP}/mutatingadmissionpolicybindings`, binding)).status, 201);
  for (let attempt = 0; ; attempt++) {
    const { status, text } = await apply(`c${attempt}`);
    if (status === 409) {
      assert.match(text, /configmaps \\"renamed\\" already exists/);
      return;
    }
    assert.equal(status, 201, text);
    assert.ok(attempt < 100, 'the policy has no effect');
  }
});
