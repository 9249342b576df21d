/** Tests combinations of the authentication flags, on a running server with a certificate of the administrator. */
import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { generateKey } from '../../api/pki/signing.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { signJwt } from '../../controlplane/security/authentication/jwt.ts';
import { WebhookClient } from '../../controlplane/security/webhooks/webhook-client.ts';
import { webhookFromFile } from '../../controlplane/security/webhooks/webhook-file.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { webhookCertificate } from './webhook-certificate.ts';

const directory = temporaryFolder();
const client = new WebhookClient('test');
let plane: ControlPlane;
let ca = '';
let key = '';

before(async () => {
  ({ cert: ca, key } = await webhookCertificate());
  const path = (name: string, text: string): string => {
    writeFileSync(join(directory, name), text);
    return join(directory, name);
  };
  plane = await startControlPlane({
    memory: true,
    flags: {
      tlsCertFile: path('server.crt', ca),
      tlsPrivateKeyFile: path('server.key', key),
      tokenAuthFile: path('tokens.csv', 'ann-token,ann,1\n'),
      authorizationMode: ['AlwaysAllow'],
      serviceAccountLookup: false,
      controllers: ['-*'],
      scheduler: false,
    },
  });
});

after(async () => {
  client.close();
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

async function statusOf(token?: string): Promise<number> {
  const endpoint = { url: new URL('/api/v1/secrets', plane.url), ca, purpose: 'configured' as const };
  const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const request = { method: 'GET' as const, signal: AbortSignal.timeout(60_000) };
  return (await client.call({ ...endpoint, ...authorization }, request)).status;
}

test('with AlwaysAllow, anonymous requests are refused', async () => {
  assert.equal(await statusOf(), 401);
  assert.equal(await statusOf('ann-token'), 200);
});

test('the server’s own key verifies tokens of service accounts where no other is named', async () => {
  const now = Math.floor(Date.now() / 1000);
  const claims = {
    iss: 'https://kubernetes.default.svc',
    aud: ['https://kubernetes.default.svc'],
    sub: 'system:serviceaccount:default:robot',
    exp: now + 600,
    nbf: now,
    iat: now,
    'kubernetes.io': { namespace: 'default', serviceaccount: { name: 'robot', uid: 'u' } },
  };
  assert.equal(await statusOf(signJwt(claims, createPrivateKey(key), { alg: 'ES256' })), 200);
  const other = await generateKey('ecdsa');
  assert.equal(await statusOf(signJwt(claims, other.privateKey, { alg: 'ES256' })), 401);
});

test('the file of a webhook must have a current context', async () => {
  const path = join(directory, 'webhook.yaml');
  writeFileSync(
    path,
    'apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: "https://hook.example"}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: a, user: u}}]\n',
  );
  await assert.rejects(webhookFromFile(path, systemClock), /current-context/);
});
