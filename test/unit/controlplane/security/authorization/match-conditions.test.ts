/** Tests which requests an authorization webhook with match conditions decides on. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { authorizationCondition } from '../../../../../controlplane/security/admission/policy/match-conditions.ts';
import { WebhookClient } from '../../../../../controlplane/security/webhooks/webhook-client.ts';
import { webhookAuthorizer } from '../../../../../controlplane/security/authorization/webhook.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { AuthorizationAttributes } from '../../../../../controlplane/security/authorization/authorization.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const LIST: AuthorizationAttributes = {
  user: { name: 'ann', groups: ['devs'], extra: { 'a.io/b': ['c'] } },
  verb: 'list',
  isResourceRequest: true,
  group: 'apps',
  version: 'v1',
  resource: 'deployments',
  subresource: '',
  namespace: 'n',
  name: '',
  path: '',
  labelSelector: [{ key: 'app', operator: 'In', values: ['web'] }],
};
const PATH: AuthorizationAttributes = { ...LIST, isResourceRequest: false, verb: 'get', path: '/metrics' };

/** Whether the webhook is called, is not, or its conditions fail. The webhook denies each request that it gets. */
async function outcome(
  expressions: readonly string[],
  attributes: AuthorizationAttributes,
  version: 'v1' | 'v1beta1' = 'v1',
): Promise<string> {
  class DenyingClient extends WebhookClient {
    override call() {
      return Promise.resolve({
        status: 200,
        contentType: 'application/json',
        body: Buffer.from('{"status": {"denied": true, "reason": "called"}}'),
      });
    }
  }
  const authorizer = webhookAuthorizer({
    name: 'hook',
    endpoint: () => Promise.resolve({ url: 'https://hook.example.com' } as never),
    client: new DenyingClient('test'),
    version,
    authorizedTtlMs: 0,
    unauthorizedTtlMs: 0,
    failurePolicy: 'Deny',
    matchConditions: expressions.map(authorizationCondition),
    clock: new FakeClock(),
  });
  const { decision, reason, evaluationError } = await authorizer.authorize(attributes);
  if (evaluationError !== undefined) return evaluationError;
  return decision === 'deny' ? reason : 'not called';
}

describe('match conditions of an authorization webhook', () => {
  for (const expression of [
    "request.user == 'ann' && 'devs' in request.groups",
    "request.uid == '' && request.extra['a.io/b'] == ['c']",
    "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'n'",
    "request.resourceAttributes.group == 'apps' && request.resourceAttributes.resource == 'deployments'",
    "request.resourceAttributes.subresource == '' && request.resourceAttributes.name == ''",
    "request.resourceAttributes.verb == 'list' && request.resourceAttributes.version == 'v1'",
    "request.resourceAttributes.labelSelector.requirements[0].values == ['web']",
    '!has(request.resourceAttributes.fieldSelector) && !has(request.nonResourceAttributes)',
  ])
    for (const version of ['v1', 'v1beta1'] as const)
      it(`see the fields of a review of v1, whichever version the webhook gets (${version}): ${expression}`, async () => {
        assert.equal(await outcome([expression], LIST, version), 'called');
        assert.equal(await outcome([`!(${expression})`], LIST, version), 'not called');
      });

  it('see the path of a request for no resource', async () => {
    assert.equal(await outcome(["request.nonResourceAttributes.path == '/metrics'"], PATH), 'called');
    assert.equal(await outcome(["has(request.resourceAttributes) || request.user != 'ann'"], PATH), 'not called');
  });

  it('are decided by one that is false, whichever others fail before it', async () => {
    const failing = "request.extra['none'] == []";
    assert.match(await outcome([failing, 'true'], LIST), /^cel evaluation error: no such key: none$/);
    assert.equal(await outcome([failing, 'false'], LIST), 'not called');
  });

  it('give the event loop to others between them, whatever the request is that they read', async () => {
    const groups = Array.from({ length: 30_000 }, (_, at) => `group-${at}`);
    const expressions = Array.from({ length: 30 }, (_, at) => `!request.groups.exists(g, g == 'absent-${at}')`);
    const authorizer = webhookAuthorizer({
      name: 'hook',
      endpoint: () => Promise.reject(new Error('is not called')),
      client: new WebhookClient('test'),
      version: 'v1',
      authorizedTtlMs: 0,
      unauthorizedTtlMs: 0,
      matchConditions: [...expressions, 'false'].map(authorizationCondition),
      clock: systemClock,
    });
    let turns = 0;
    let isDecided = false;
    const count = (): void => {
      turns += 1;
      if (!isDecided) setImmediate(count);
    };
    setImmediate(count);
    const { decision } = await authorizer.authorize({ ...LIST, user: { name: 'ann', groups } });
    isDecided = true;
    assert.equal(decision, 'no-opinion');
    assert.ok(turns > 5, `${turns} turns`);
  });
});
