/**
 * Tests the file of `--authorization-config`: what it configures, and that a fault in it names the field and leaves nothing
 * out.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { stringifyJson } from '../../../../../api/codec/json.ts';
import { loadAuthorizationConfig } from '../../../../../controlplane/security/authorization/authorization-config.ts';

const PATH = '/etc/authorization.yaml';
const webhook = {
  timeout: '3s',
  subjectAccessReviewVersion: 'v1',
  failurePolicy: 'Deny',
  connectionInfo: { type: 'KubeConfigFile', kubeConfigFile: '/etc/webhook.kubeconfig' },
};
const configuration = (authorizers: unknown): string =>
  stringifyJson({ kind: 'AuthorizationConfiguration', apiVersion: 'apiserver.config.k8s.io/v1', authorizers });
const withWebhook = (change: object): string =>
  configuration([{ type: 'Webhook', name: 'w', webhook: { ...webhook, ...change } }]);
const compile = (expression: string) => {
  if (expression.endsWith('.')) throw new Error('it ends with a dot');
  return { matches: () => expression === 'true' };
};

describe('a configuration of authorizers', () => {
  it('keeps their order and the defaults of the cache', () => {
    const [node, remote, ...others] = loadAuthorizationConfig(
      configuration([
        { type: 'Node', name: 'n' },
        { type: 'Webhook', name: 'w', webhook },
      ]),
      PATH,
    );
    assert.deepEqual(node, { type: 'Node', name: 'n' });
    assert.deepEqual(remote?.webhook, {
      configFile: '/etc/webhook.kubeconfig',
      version: 'v1',
      failurePolicy: 'Deny',
      timeoutMs: 3000,
      authorizedTtlMs: 300_000,
      unauthorizedTtlMs: 30_000,
      matchConditions: [],
    });
    assert.deepEqual(others, []);
  });

  it('caches nothing where a cache is disabled, whatever its lifetime says', () => {
    const text = withWebhook({ cacheAuthorizedRequests: false, authorizedTTL: '1h', cacheUnauthorizedRequests: false });
    const [{ webhook: settings } = { webhook: undefined }] = loadAuthorizationConfig(text, PATH);
    assert.equal(settings?.authorizedTtlMs, 0);
    assert.equal(settings?.unauthorizedTtlMs, 0);
  });

  it('may have several webhooks with match conditions', () => {
    const conditions = { matchConditionSubjectAccessReviewVersion: 'v1', matchConditions: [{ expression: 'true' }] };
    const [entry] = loadAuthorizationConfig(withWebhook(conditions), PATH, compile);
    assert.deepEqual(
      entry?.webhook?.matchConditions?.map((one) => one.matches({})),
      [true],
    );
  });

  for (const [what, text, message] of [
    ['another kind', '{"kind": "Pod", "apiVersion": "v1"}', 'not an AuthorizationConfiguration'],
    ['a list', '[]', 'not an AuthorizationConfiguration'],
    ['no authorizers', configuration([]), 'at least one authorization mode must be defined'],
    ['an authorizer that is a text', configuration(['Node']), 'authorizers[0] must be an object'],
    ['an authorizer without a name', configuration([{ type: 'Node' }]), 'authorizers[0].name is required'],
    ['an authorizer without a type', configuration([{ name: 'n' }]), 'authorizers[0].type is required'],
    [
      'two authorizers of one name',
      configuration([
        { type: 'Node', name: 'n' },
        { type: 'RBAC', name: 'n' },
      ]),
      'authorizers[1].name: "n" occurs twice',
    ],
    [
      'two Node authorizers',
      configuration([
        { type: 'Node', name: 'a' },
        { type: 'Node', name: 'b' },
      ]),
      'authorizers[1].type: "Node" occurs twice',
    ],
    [
      'settings of a webhook for RBAC',
      configuration([{ type: 'RBAC', name: 'r', webhook }]),
      'is only for type Webhook',
    ],
    [
      'a webhook without settings',
      configuration([{ type: 'Webhook', name: 'w' }]),
      'authorizers[0].webhook is required',
    ],
    ['no failure policy', withWebhook({ failurePolicy: undefined }), 'failurePolicy must be NoOpinion or Deny'],
    [
      'a failure policy of another name',
      withWebhook({ failurePolicy: 'Allow' }),
      'failurePolicy must be NoOpinion or Deny',
    ],
    ['no timeout', withWebhook({ timeout: undefined }), 'timeout must be a duration'],
    ['a timeout of an hour', withWebhook({ timeout: '1h' }), 'timeout must be above 0 and at most 30s'],
    ['a timeout of 0', withWebhook({ timeout: '0s' }), 'timeout must be above 0 and at most 30s'],
    ['an unknown version of the review', withWebhook({ subjectAccessReviewVersion: 'v2' }), 'must be v1 or v1beta1'],
    [
      'a connection without a file',
      withWebhook({ connectionInfo: { type: 'InClusterConfig' } }),
      'of type KubeConfigFile',
    ],
    [
      'match conditions without a version',
      withWebhook({ matchConditions: [{ expression: 'true' }] }),
      'matchConditionSubjectAccessReviewVersion must be v1',
    ],
    [
      'a match condition without an expression',
      withWebhook({ matchConditionSubjectAccessReviewVersion: 'v1', matchConditions: [{}] }),
      'matchConditions[0].expression is required',
    ],
    [
      'a match condition twice',
      withWebhook({
        matchConditionSubjectAccessReviewVersion: 'v1',
        matchConditions: [{ expression: 'true' }, { expression: 'true' }],
      }),
      'matchConditions[1].expression: "true" occurs twice',
    ],
    [
      'a match condition that does not compile',
      withWebhook({ matchConditionSubjectAccessReviewVersion: 'v1', matchConditions: [{ expression: 'request.' }] }),
      'matchConditions[0].expression: it ends with a dot',
    ],
    [
      'more match conditions than each request may wait for',
      withWebhook({
        matchConditionSubjectAccessReviewVersion: 'v1',
        matchConditions: Array.from({ length: 65 }, (_, at) => ({ expression: `${at} == ${at}` })),
      }),
      'matchConditions: 65 are too many, must have at most 64',
    ],
  ] as const)
    it(`with ${what} is refused, and the error names the file and the field`, () => {
      assert.throws(
        () => loadAuthorizationConfig(text, PATH, compile),
        (error: Error) => error.message.startsWith(`${PATH}: `) && error.message.includes(message),
      );
    });
});
