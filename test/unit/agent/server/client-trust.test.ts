/** Tests the CAs of an agent's clients: files without certificates, and connections that outlive the CA of their client. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect } from 'node:tls';
import type { PodHost } from '../../../../agent/server/pod-host.ts';
import { createAccess } from '../../../../agent/server/access.ts';
import { readClientCa } from '../../../../agent/server/client-trust.ts';
import { startAgentServer } from '../../../../agent/server/server.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { certificatePem, createCertificate, parseCertificate } from '../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../api/pki/signing.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';
import { serverOptionsUnderTest } from './server-under-test.ts';

const window = { notBeforeMs: Date.UTC(2020, 0, 1), notAfterMs: Date.UTC(2100, 0, 1) };

/** Resolves to a CA with a client certificate that it has signed. */
async function authority(commonName: string) {
  const [own, client] = [await generateKey('ecdsa'), await generateKey('ecdsa')];
  const subject = { commonName };
  const template = { subject, publicKey: own.publicKey, ...window, basicConstraints: { isCa: true } };
  const ca = createCertificate(template, { privateKey: own.privateKey });
  const issued = createCertificate(
    { subject: { commonName: 'ann' }, publicKey: client.publicKey, ...window, extendedKeyUsages: ['client auth'] },
    { privateKey: own.privateKey, certificate: parseCertificate(ca) },
  );
  return { ca: certificatePem(ca), cert: certificatePem(issued), key: privateKeyPem(client.privateKey) };
}

test('a file of client CAs without a certificate is refused, because Node.js would trust the public CAs, and so is a FIFO', async () => {
  const file = join(temporaryFolder(), 'ca.crt');
  const { ca } = await authority('own');
  writeFileSync(file, ca);
  assert.equal(await readClientCa(file), ca);
  for (const text of ['', '\n', 'no certificate', ca.slice(0, 80)]) {
    writeFileSync(file, text);
    await assert.rejects(readClientCa(file), Error, JSON.stringify(text));
  }
  const fifo = join(temporaryFolder(), 'ca.crt');
  execFileSync('mkfifo', [fifo]);
  await assert.rejects(readClientCa(fifo), /is not a regular file/);
});

test('an open connection is refused from its next request on once the CA of its client is removed, and stays while it is trusted', async (t) => {
  const [old, next] = [await authority('old'), await authority('next')];
  const host = { syncLoopHealth: () => '', devicePluginHealth: () => '' } as unknown as PodHost;
  const access = createAccess({
    ...{
      client: undefined,
      clock: systemClock,
      nodeName: 'n',
      hasClientCa: true,
      anonymous: 'none',
      tokenWebhook: false,
    },
    ...{ tokenTtlMs: 0, authorization: 'AlwaysAllow', allowedTtlMs: 0, refusedTtlMs: 0 },
  });
  const options = await serverOptionsUnderTest({ host, access });
  const server = await startAgentServer({ ...options, tls: { ...options.tls, clientCa: old.ca } });
  t.after(() => server.close());
  const socket = connect({
    ...{ port: server.port, host: '127.0.0.1', rejectUnauthorized: false },
    ...{ cert: old.cert, key: old.key },
  });
  t.after(() => socket.destroy());
  await once(socket, 'secureConnect');
  const status = async (): Promise<string> => {
    socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
    return String((await once(socket, 'data'))[0]).split(' ')[1] ?? '';
  };
  assert.equal(await status(), '200');
  server.trustClients(next.ca + old.ca);
  assert.equal(await status(), '200');
  server.trustClients(next.ca);
  assert.equal(await status(), '401');
});
