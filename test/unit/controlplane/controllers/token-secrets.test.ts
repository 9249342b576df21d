/** Tests Secrets of type service-account-token: what they get, what is repaired, and when they are deleted. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Secret } from '../../../../api/kinds/kinds.ts';
import { secrets, serviceAccounts } from '../../../../api/client/resources.ts';
import {
  ACCOUNT_NAME,
  TOKEN_SECRET_TYPE,
  tokenSecrets,
} from '../../../../controlplane/controllers/service-account/token-secrets.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

const ACCOUNT_UID = 'kubernetes.io/service-account.uid';

const run = tokenSecrets({
  signer: { issueLegacy: ({ metadata }, secretName) => `${metadata.name}/${metadata.uid}/${secretName}` },
  rootCaPem: 'the CA',
});

const tokenSecret = (name: string, annotations: Record<string, string>, data?: Secret['data']): Secret => ({
  metadata: { name, namespace: 'default', annotations },
  type: TOKEN_SECRET_TYPE,
  ...(data && { data }),
});

function decoded(t: ControllerTest, name: string): Record<string, string> {
  const data = t.client.peek(secrets, 'default', name)?.data ?? {};
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Buffer.from(value, 'base64').toString()]));
}

const exists = (t: ControllerTest, name: string): boolean => t.client.peek(secrets, 'default', name) !== undefined;

describe('a secret of type service-account-token', () => {
  test('gets the token of its account, the CA and the namespace, and the uid of the account', async () => {
    const t = controllerTest();
    t.client.seed(serviceAccounts, { metadata: { name: 'builder', namespace: 'default' } });
    t.client.seed(secrets, tokenSecret('token', { [ACCOUNT_NAME]: 'builder' }));
    await t.start(run);
    await t.advance(100);
    const uid = t.client.peek(serviceAccounts, 'default', 'builder')?.metadata.uid ?? '';
    assert.notEqual(uid, '');
    assert.deepEqual(decoded(t, 'token'), {
      'ca.crt': 'the CA',
      namespace: 'default',
      token: `builder/${uid}/token`,
    });
    assert.equal(t.client.peek(secrets, 'default', 'token')?.metadata.annotations?.[ACCOUNT_UID], uid);
    await t.stop();
  });

  test('keeps its token and other data when its CA is replaced', async () => {
    const t = controllerTest();
    t.client.seed(serviceAccounts, { metadata: { name: 'builder', namespace: 'default' } });
    const encode = (text: string): string => Buffer.from(text).toString('base64');
    const data = { token: encode('issued before'), 'ca.crt': encode('another CA'), extra: encode('of the user') };
    t.client.seed(secrets, tokenSecret('token', { [ACCOUNT_NAME]: 'builder' }, data));
    await t.start(run);
    await t.advance(100);
    assert.deepEqual(decoded(t, 'token'), {
      'ca.crt': 'the CA',
      namespace: 'default',
      token: 'issued before',
      extra: 'of the user',
    });
    await t.stop();
  });

  test('gets a token and a namespace in place of empty ones', async () => {
    const t = controllerTest();
    t.client.seed(serviceAccounts, { metadata: { name: 'builder', namespace: 'default' } });
    t.client.seed(secrets, tokenSecret('token', { [ACCOUNT_NAME]: 'builder' }, { token: '', namespace: '' }));
    await t.start(run);
    await t.advance(100);
    const uid = t.client.peek(serviceAccounts, 'default', 'builder')?.metadata.uid ?? '';
    assert.deepEqual(decoded(t, 'token'), {
      'ca.crt': 'the CA',
      namespace: 'default',
      token: `builder/${uid}/token`,
    });
    await t.stop();
  });

  test('is deleted if its account does not exist, or is a later one of the same name', async () => {
    const t = controllerTest();
    t.client.seed(serviceAccounts, { metadata: { name: 'builder', namespace: 'default' } });
    t.client.seed(secrets, tokenSecret('of-nobody', { [ACCOUNT_NAME]: 'gone' }));
    t.client.seed(secrets, tokenSecret('of-earlier', { [ACCOUNT_NAME]: 'builder', [ACCOUNT_UID]: 'earlier' }));
    t.client.seed(secrets, tokenSecret('without-account', {}));
    await t.start(run);
    await t.advance(100);
    assert.deepEqual(
      ['of-nobody', 'of-earlier', 'without-account'].filter((name) => exists(t, name)),
      ['without-account'],
    );
    await t.stop();
  });

  test('is deleted with its account', async () => {
    const t = controllerTest();
    t.client.seed(serviceAccounts, { metadata: { name: 'builder', namespace: 'default' } });
    t.client.seed(secrets, tokenSecret('token', { [ACCOUNT_NAME]: 'builder' }));
    await t.start(run);
    await t.advance(100);
    assert.ok(exists(t, 'token'));
    await t.client.delete(serviceAccounts, 'default', 'builder');
    await t.advance(100);
    assert.ok(!exists(t, 'token'));
    await t.stop();
  });
});
