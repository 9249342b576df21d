/** Tests the list of authorizers: its order, its reload, and its metrics. */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { clusterRoleBindings, clusterRoles } from '../../../../../api/client/resources.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import type {
  AuthorizationAttributes,
  Decision,
} from '../../../../../controlplane/security/authorization/authorization.ts';
import { authorizationMetrics } from '../../../../../controlplane/security/authorization/authorization-metrics.ts';
import { type Authorizers, buildAuthorizers } from '../../../../../controlplane/security/authorization/authorizers.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const directory = temporaryFolder();
const kubeconfig = join(directory, 'webhook.yaml');
/** A webhook that denies the user with the name of its path, and has no opinion on others. */
const server = createServer((message, response) => {
  let text = '';
  message.on('data', (chunk: Buffer) => (text += chunk.toString()));
  message.on('end', () => {
    const { apiVersion, kind, spec } = JSON.parse(text) as { apiVersion: string; kind: string; spec: { user: string } };
    const denied = spec.user === 'mallory';
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ apiVersion, kind, status: { allowed: false, denied, reason: 'not she' } }));
  });
});

before(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  writeFileSync(
    kubeconfig,
    `apiVersion: v1
kind: Config
clusters: [{name: hook, cluster: {server: "http://127.0.0.1:${port}/authorize"}}]
users: [{name: us, user: {}}]
contexts: [{name: c, context: {cluster: hook, user: us}}]
current-context: c
`,
  );
});

after(() => {
  server.closeAllConnections();
  server.close();
  rmSync(directory, { recursive: true, force: true });
});

const config = (...authorizers: string[]): string =>
  `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
${authorizers.map((one) => `- ${one}\n`).join('')}`;
/** Replaces the authorizers, as a changed file does. */
const replace = async (built: Authorizers, text: string): Promise<void> => built.replacement(text)();
const RBAC = '{type: RBAC, name: rbac}';
const NODE = '{type: Node, name: node}';
const hook = (name: string): string =>
  `{type: Webhook, name: ${name}, webhook: {subjectAccessReviewVersion: v1, timeout: 20s, failurePolicy: Deny, connectionInfo: {type: KubeConfigFile, kubeConfigFile: "${kubeconfig}"}}}`;

const ask = (name: string): AuthorizationAttributes => ({
  user: { name, groups: ['system:authenticated'] },
  verb: 'get',
  isResourceRequest: true,
  group: '',
  version: 'v1',
  resource: 'pods',
  subresource: '',
  namespace: 'ns',
  name: 'p',
  path: '',
});

const listers = fixedListers([
  {
    resource: clusterRoles,
    object: { metadata: { name: 'r' }, rules: [{ verbs: ['get'], apiGroups: [''], resources: ['pods'] }] },
  },
  {
    resource: clusterRoleBindings,
    object: {
      metadata: { name: 'b' },
      roleRef: { kind: 'ClusterRole', name: 'r' },
      subjects: [{ kind: 'Group', name: 'system:authenticated' }],
    },
  },
]);

test('authorizers are added and removed with their file, in its order, and each decision is counted', async () => {
  const metrics = new MetricsRegistry();
  const built = await buildAuthorizers({
    clock: new FakeClock(),
    listers,
    modes: [],
    configFile: 'authorization.yaml',
    configText: config(RBAC),
    metrics: authorizationMetrics(metrics),
  });
  const decide = async (name: string) => (await built.authorizer.authorize(ask(name))).decision;
  const counted = (line: string): boolean =>
    metrics.text().includes(`apiserver_authorization_decisions_total{${line}}`);
  try {
    assert.equal(await decide('mallory'), 'allow');
    await replace(built, config(RBAC, hook('late')));
    assert.equal(await decide('mallory'), 'allow', 'the first that decides, decides');
    await replace(built, config(hook('early'), RBAC));
    assert.equal(await decide('mallory'), 'deny');
    assert.equal(await decide('ann'), 'allow');
    assert.ok(counted('decision="denied",name="early",type="Webhook"'));
    assert.ok(counted('decision="allowed",name="rbac",type="RBAC"'));
    assert.match(metrics.text(), /authorization_attempts_total\{result="denied"\} 1/);
    // Privileged users need no authorizer.
    const root = { ...ask('mallory'), user: { name: 'mallory', groups: ['system:masters'] } };
    assert.equal((await built.authorizer.authorize(root)).decision, 'allow');
  } finally {
    built.close();
  }
});

test('requests in flight while the file changes are decided by a whole list, of before or after the change', async () => {
  const built = await buildAuthorizers({
    clock: new FakeClock(),
    listers,
    modes: [],
    configFile: 'authorization.yaml',
    configText: config(hook('first'), RBAC),
  });
  const seen = new Set<string>();
  try {
    for (let change = 0; change < 30; change += 1) {
      let isReplaced = false;
      const replaced = replace(built, config(hook(`hook-${change}`), hook('second'), RBAC)).finally(() => {
        isReplaced = true;
      });
      const decisions: (Decision | Promise<Decision>)[] = [];
      while (!isReplaced) {
        decisions.push(built.authorizer.authorize(ask('mallory')));
        await setImmediate();
      }
      await replaced;
      await assert.rejects(replace(built, config(RBAC, NODE)));
      for (const { decision } of await Promise.all(decisions)) seen.add(decision);
    }
  } finally {
    built.close();
  }
  assert.deepEqual([...seen], ['deny']);
});

for (const [why, text, reason] of [
  ['no list', 'kind: Nothing', /not an AuthorizationConfiguration/],
  ['nobody in it', config().replace('authorizers:\n', 'authorizers: []\n'), /at least one/],
  ['an authorizer that was not there at the start', config(RBAC, NODE), /Node is not allowed if it was not enabled/],
  ['a webhook whose file is missing', config(hook('gone')).replace(kubeconfig, '/nowhere'), /nowhere/],
  ['one name twice', config(hook('a'), hook('a')), /occurs twice/],
] as const) {
  test(`a changed file with ${why} leaves the list as it was`, async () => {
    const built = await buildAuthorizers({
      clock: new FakeClock(),
      listers,
      modes: [],
      configFile: 'authorization.yaml',
      configText: config(RBAC),
    });
    await assert.rejects(replace(built, text), reason);
    assert.equal((await built.authorizer.authorize(ask('ann'))).decision, 'allow');
    built.close();
  });
}

test('AlwaysDeny has no opinion and a reason, so that only privileged users are allowed', async () => {
  const built = await buildAuthorizers({ clock: new FakeClock(), listers, modes: ['AlwaysDeny'] });
  assert.deepEqual(await built.authorizer.authorize(ask('ann')), {
    decision: 'no-opinion',
    reason: 'Everything is forbidden.',
  });
  const root = { ...ask('ann'), user: { name: 'ann', groups: ['system:masters'] } };
  assert.equal((await built.authorizer.authorize(root)).decision, 'allow');
  built.close();
});

test('an unknown mode prevents the start', async () => {
  await assert.rejects(
    buildAuthorizers({ clock: new FakeClock(), listers, modes: ['Magic'] }),
    /"Magic" is not an authorization mode/,
  );
});
