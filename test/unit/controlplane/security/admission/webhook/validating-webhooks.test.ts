import assert from 'node:assert/strict';
import { test } from 'node:test';
import { namespaces, validatingWebhookConfigurations } from '../../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../../api/meta/object.ts';
import { validatingWebhooks } from '../../../../../../controlplane/security/admission/webhook/webhooks.ts';
import { WebhookClient } from '../../../../../../controlplane/security/webhooks/webhook-client.ts';
import { fixedListers } from '../../../../../fakes/fixed-listers.ts';
import { FakeClock } from '../../../../../fakes/fake-clock.ts';
import { attributesOf } from '../attributes.ts';

const hook = (name: string, more: object): object => ({
  name,
  clientConfig: { url: 'http://127.0.0.1:9/' },
  rules: [{ apiGroups: ['*'], apiVersions: ['v1'], operations: ['*'], resources: ['*'] }],
  sideEffects: 'None',
  admissionReviewVersions: ['v1'],
  failurePolicy: 'Fail',
  ...more,
});

function pluginOf(webhooks: readonly object[]) {
  const client = new WebhookClient('test');
  const plugin = validatingWebhooks({
    listers: fixedListers([
      { resource: namespaces, object: { metadata: { name: 'n' } } },
      { resource: validatingWebhookConfigurations, object: { metadata: { name: 'c' }, webhooks } as KubeObject },
    ]),
    client,
    clock: new FakeClock(),
    random: () => 0,
    matchConditions: () => Promise.resolve({ matches: false, error: 'no such key' }),
    conversion: {
      isNamespaced: () => true,
      equivalents: () => [],
      kindOf: ({ group, version }) => ({ group, version, kind: 'Thing' }),
      convert: (object) => object,
    },
  });
  return { plugin, client };
}

test('a match condition that fails refuses the request before any webhook is called', async () => {
  const webhooks = [hook('first', {}), hook('second', { matchConditions: [{ name: 'c', expression: 'e' }] })];
  const { plugin, client } = pluginOf(webhooks);
  const attributes = attributesOf({ apiVersion: 'g/v1', kind: 'Thing', metadata: { name: 't' } });
  // Without that order, the first webhook would fail, because nothing listens at its address.
  await assert.rejects(
    async () => plugin.validate?.(attributes, new AbortController().signal),
    /things\.g "t" is forbidden: no such key/,
  );
  client.close();
});

test('reviews of tokens and access are sent to webhooks, but no configurations of webhooks', async () => {
  const { plugin, client } = pluginOf([hook('guard', {})]);
  const judge = async (group: string, resource: string): Promise<void> => {
    const attributes = attributesOf({ apiVersion: `${group}/v1`, kind: 'Thing', metadata: { name: 't' } });
    await plugin.validate?.(
      { ...attributes, resource: { group, version: 'v1', resource } },
      new AbortController().signal,
    );
  };
  for (const [group, resource] of [
    ['authentication.k8s.io', 'tokenreviews'],
    ['authorization.k8s.io', 'subjectaccessreviews'],
  ] as const)
    await assert.rejects(judge(group, resource), /failed calling webhook "guard"/);
  await judge('admissionregistration.k8s.io', 'validatingwebhookconfigurations');
  client.close();
});
