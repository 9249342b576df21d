import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { describe, test } from 'node:test';
import { formatTime } from '../../../../api/machinery/clock.ts';
import { TOKEN_INVALID_SINCE_LABEL, TOKEN_LAST_USED_LABEL } from '../../../../api/meta/well-known-labels.ts';
import type { ConfigMap, Pod, Secret, ServiceAccount } from '../../../../api/kinds/kinds.ts';
import { configMaps, pods, secrets, serviceAccounts } from '../../../../api/client/resources.ts';
import {
  detachedSignature,
  runBootstrapSigner,
} from '../../../../controlplane/controllers/bootstrap/bootstrap-signer.ts';
import { runTokenCleaner } from '../../../../controlplane/controllers/bootstrap/token-cleaner.ts';
import {
  judge,
  runLegacyTokenCleaner,
  TRACKING,
} from '../../../../controlplane/controllers/service-account/legacy-token-cleaner.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

const encode = (data: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString('base64')]));

function bootstrapToken(id: string, data: Record<string, string> = {}): Secret {
  return {
    metadata: { name: `bootstrap-token-${id}`, namespace: 'kube-system' },
    type: 'bootstrap.kubernetes.io/token',
    data: encode({ 'token-id': id, 'token-secret': 'secret', 'usage-bootstrap-signing': 'true', ...data }),
  };
}

describe('cluster-info', () => {
  const info: ConfigMap = {
    metadata: { name: 'cluster-info', namespace: 'kube-public' },
    data: { kubeconfig: 'content', 'jws-kubeconfig-gone': 'old' },
  };
  const signatures = (t: ControllerTest) =>
    Object.keys(t.client.peek(configMaps, 'kube-public', 'cluster-info')?.data ?? {}).toSorted();

  test('has a detached signature that its reader can check', () => {
    const [header = '', payload, signature] = detachedSignature('content', 'abc', 'secret').split('.');
    assert.equal(payload, '');
    assert.deepEqual(JSON.parse(Buffer.from(header, 'base64url').toString()), { alg: 'HS256', kid: 'abc' });
    const signed = `${header}.${Buffer.from('content').toString('base64url')}`;
    assert.equal(signature, createHmac('sha256', 'secret').update(signed).digest('base64url'));
  });
  test('is signed with each token that may sign and is valid', async () => {
    const t = controllerTest({
      objects: [
        [configMaps, info],
        [secrets, bootstrapToken('abc')],
        [secrets, bootstrapToken('old', { expiration: '2000-01-01T00:00:00Z' })],
        [secrets, bootstrapToken('mute', { 'usage-bootstrap-signing': 'false' })],
      ],
    });
    await t.start(runBootstrapSigner);
    await t.advance(100);
    assert.deepEqual(signatures(t), ['jws-kubeconfig-abc', 'kubeconfig']);
    await t.client.delete(secrets, 'kube-system', 'bootstrap-token-abc');
    await t.advance(100);
    assert.deepEqual(signatures(t), ['kubeconfig']);
    await t.stop();
  });
});

test('bootstrap tokens go when they expire, and at once when that cannot be read', async () => {
  const t = controllerTest();
  const expiration = formatTime(t.clock.now() + 60_000);
  t.client.seed(secrets, bootstrapToken('soon', { expiration }));
  t.client.seed(secrets, bootstrapToken('never'));
  t.client.seed(secrets, bootstrapToken('wrong', { expiration: 'tomorrow' }));
  await t.start(runTokenCleaner);
  await t.advance(1000);
  const names = () => t.client.peekAll(secrets).map(({ metadata }) => metadata.name?.replace('bootstrap-token-', ''));
  assert.deepEqual(names(), ['soon', 'never']);
  await t.advance(60_000);
  assert.deepEqual(names(), ['never']);
  await t.stop();
});

describe('tokens that were made by themselves', () => {
  const DAY = 86_400_000;
  const now = Date.UTC(2027, 6, 1);
  const year = 365 * DAY;
  const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
  const token = (labels: Record<string, string>): Secret => ({
    metadata: { name: 't', namespace: 'n', labels, creationTimestamp: '2020-01-01T00:00:00Z' },
  });
  const verdict = (labels: Record<string, string>, sinceMs = now - 2 * year): string =>
    judge(token(labels), { nowMs: now, sinceMs, unusedMs: year });

  test('stay while they are used', () =>
    assert.equal(verdict({ [TOKEN_LAST_USED_LABEL]: day(now - 10 * DAY) }), 'keep'));
  test('are marked when they were not used for a year', () => {
    assert.equal(verdict({ [TOKEN_LAST_USED_LABEL]: day(now - year - 2 * DAY) }), 'mark');
    assert.equal(verdict({}), 'mark');
  });
  test('stay where use has not been marked for so long', () => assert.equal(verdict({}, now - 10 * DAY), 'keep'));
  test('go a year after the mark', () => {
    assert.equal(verdict({ [TOKEN_INVALID_SINCE_LABEL]: day(now - 10 * DAY) }), 'keep');
    assert.equal(verdict({ [TOKEN_INVALID_SINCE_LABEL]: day(now - year - 2 * DAY) }), 'delete');
  });

  test('are recognized by their account, and stay while a pod mounts them', async () => {
    const secret = (name: string): Secret => ({
      metadata: { ...token({}).metadata, name, annotations: { 'kubernetes.io/service-account.name': 'robot' } },
      type: 'kubernetes.io/service-account-token',
    });
    const account: ServiceAccount = {
      metadata: { name: 'robot', namespace: 'n' },
      secrets: [{ name: 'listed' }, { name: 'mounted' }],
    };
    const pod: Pod = {
      metadata: { name: 'p', namespace: 'n' },
      spec: { containers: [], volumes: [{ name: 'v', secret: { secretName: 'mounted' } }] },
    };
    const t = controllerTest({
      objects: [
        [configMaps, { metadata: { name: TRACKING, namespace: 'kube-system' }, data: { since: '2020-01-01' } }],
        [serviceAccounts, account],
        [pods, pod],
        [secrets, secret('listed')],
        [secrets, secret('mounted')],
        [secrets, secret('asked-for')],
      ],
    });
    await t.start(runLegacyTokenCleaner);
    await t.advance(1000);
    const marked = t.client
      .peekAll(secrets)
      .filter(({ metadata }) => metadata.labels?.[TOKEN_INVALID_SINCE_LABEL] !== undefined)
      .map(({ metadata }) => metadata.name);
    assert.deepEqual(marked, ['listed']);
    await t.stop();
  });
});
