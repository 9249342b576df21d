/** Failed webhook calls are described with the messages of Kubernetes. */
import assert from 'node:assert/strict';
import { createServer as createPlainServer } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { certificatePem, createCertificate } from '../../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../../api/pki/signing.ts';
import { WebhookClient } from '../../../../../controlplane/security/webhooks/webhook-client.ts';

const keys = await generateKey('ecdsa');
const pemOf = (names: { dns: string[]; ip: string[] } | undefined, notAfterMs = Date.UTC(2100, 0, 1)): string =>
  certificatePem(
    createCertificate(
      {
        subject: { commonName: 'hook' },
        publicKey: keys.publicKey,
        notBeforeMs: Date.UTC(2020, 0, 1),
        notAfterMs,
        ...(names === undefined ? {} : { names }),
      },
      { privateKey: keys.privateKey },
    ),
  );
const good = pemOf({ dns: ['a.example', 'b.example'], ip: ['127.0.0.2'] });
const bare = pemOf(undefined);
const FAILED = 'tls: failed to verify certificate: x509: ';

async function problem(
  served: string | 'http' | 'nothing',
  { ca, serverName }: { readonly ca?: string; readonly serverName?: string } = {},
): Promise<string> {
  const server =
    served === 'http' || served === 'nothing'
      ? createPlainServer((_request, response) => response.end())
      : createServer({ key: privateKeyPem(keys.privateKey), cert: served }, (_request, response) => response.end());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  if (served === 'nothing') await new Promise((resolve) => server.close(resolve));
  const client = new WebhookClient('test');
  try {
    await client.call(
      {
        url: new URL(`https://127.0.0.1:${port}/`),
        purpose: 'configured',
        ...(ca === undefined ? {} : { ca }),
        ...(serverName === undefined ? {} : { serverName }),
      },
      { method: 'POST', body: '{}', signal: AbortSignal.timeout(60_000) },
    );
    return 'none';
  } catch (error) {
    return (error as Error).message.replace(String(port), 'PORT');
  } finally {
    client.close();
    server.closeAllConnections();
    server.close();
  }
}

for (const [title, run, expected] of [
  ['of a CA that nobody named', () => problem(good), `${FAILED}certificate signed by unknown authority`],
  [
    'for other names',
    () => problem(good, { ca: good, serverName: 'c.example' }),
    `${FAILED}certificate is valid for a.example, b.example, not c.example`,
  ],
  [
    'for another address',
    () => problem(good, { ca: good }),
    `${FAILED}certificate is valid for 127.0.0.2, not 127.0.0.1`,
  ],
  [
    'without addresses',
    () => problem(bare, { ca: bare }),
    `${FAILED}cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs`,
  ],
  [
    'that has expired',
    () => {
      const old = pemOf({ dns: [], ip: ['127.0.0.1'] }, Date.UTC(2021, 0, 1));
      return problem(old, { ca: old });
    },
    `${FAILED}certificate has expired or is not yet valid`,
  ],
] as const)
  test(`a certificate ${title}`, async () => assert.equal(await run(), expected));

test('a server without TLS, and none at all', async () => {
  assert.equal(await problem('http'), 'http: server gave HTTP response to HTTPS client');
  assert.equal(await problem('nothing'), 'dial tcp 127.0.0.1:PORT: connect: connection refused');
});
