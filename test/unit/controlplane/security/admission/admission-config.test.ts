/** Tests the admission configuration: both API versions, credentials of webhooks by host, and the defaults of Pod Security. */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import {
  loadAdmissionConfiguration,
  userFor,
} from '../../../../../controlplane/security/admission/admission-config.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const directory = temporaryFolder();
after(() => rmSync(directory, { recursive: true, force: true }));

const users = new Set(['a.example:8443', 'b.example', '*.wild.example', 's.n.svc:444', '*']);
for (const [server, user] of [
  ['a.example:8443', 'a.example:8443'],
  ['a.example', '*'],
  ['b.example', 'b.example'],
  ['b.example:443', 'b.example'],
  ['x.wild.example', '*.wild.example'],
  ['x.y.wild.example', '*.wild.example'],
  ['s.n.svc:444', 's.n.svc:444'],
  ['else.example', '*'],
] as const) {
  test(`the user for ${server} is ${user}`, () => assert.equal(userFor(server, users, undefined), user));
}

test('without a wildcard the user of the current context is used, or none', () => {
  assert.equal(userFor('x.example', new Set(['me']), 'me'), 'me');
  assert.equal(userFor('x.example', new Set(['me']), undefined), undefined);
});

const kubeconfig = `apiVersion: v1
kind: Config
users:
- {name: hook.example, user: {token: for-hook}}
- {name: "*.svc", user: {token: for-services}}
`;

for (const [outer, inner, kind] of [
  ['apiserver.config.k8s.io/v1', 'apiserver.config.k8s.io/v1', 'WebhookAdmissionConfiguration'],
  ['apiserver.k8s.io/v1alpha1', 'apiserver.config.k8s.io/v1alpha1', 'WebhookAdmission'],
] as const) {
  test(`credentials of ${outer}`, async () => {
    writeFileSync(join(directory, 'hooks.kubeconfig'), kubeconfig);
    const path = join(directory, 'admission.yaml');
    writeFileSync(
      path,
      `apiVersion: ${outer}
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: ${inner}, kind: ${kind}, kubeConfigFile: hooks.kubeconfig}
- name: ImagePolicyWebhook
  configuration: {imagePolicy: {}}
- name: PodSecurity
  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: baseline}, exemptions: {namespaces: [kube-system]}}
- name: PodNodeSelector
  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: "zone=a"}}
- name: ResourceQuota
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [vital]}]}]}
`,
    );
    const configuration = await loadAdmissionConfiguration(path, systemClock);
    assert.deepEqual(await configuration.validatingCredentials?.('hook.example'), { authorization: 'Bearer for-hook' });
    assert.deepEqual(await configuration.validatingCredentials?.('a.b.svc'), { authorization: 'Bearer for-services' });
    assert.deepEqual(await configuration.validatingCredentials?.('other.example'), {});
    assert.equal(configuration.mutatingCredentials, undefined);
    assert.deepEqual(configuration.ignored, ['ImagePolicyWebhook']);
    assert.equal(configuration.podSecurity?.defaults['enforce'], 'baseline');
    assert.ok(configuration.podSecurity.exemptNamespaces.has('kube-system'));
    assert.deepEqual(configuration.nodeSelectors, { clusterDefaultNodeSelector: 'zone=a' });
    const scope = { scopeName: 'PriorityClass', operator: 'In', values: ['vital'] };
    assert.deepEqual(configuration.limitedResources, [
      { group: '', resource: 'pods', matchContains: [], matchScopes: [scope] },
    ]);
  });
}

test('plugins that are named without a configuration have their defaults', async () => {
  const path = join(directory, 'defaults.yaml');
  const names = ['PodSecurity', 'ResourceQuota', 'MutatingAdmissionWebhook', 'PodNodeSelector', 'ImagePolicyWebhook'];
  const plugins = names.map((name) => `- name: ${name}\n`).join('');
  writeFileSync(path, `apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n${plugins}`);
  assert.deepEqual(
    await loadAdmissionConfiguration(path, systemClock),
    await loadAdmissionConfiguration('', systemClock),
  );
});

test('another kind of file is refused by its name', async () => {
  const path = join(directory, 'other.yaml');
  writeFileSync(path, 'apiVersion: v1\nkind: Pod\n');
  await assert.rejects(loadAdmissionConfiguration(path, systemClock), /other\.yaml: not an AdmissionConfiguration/);
});
