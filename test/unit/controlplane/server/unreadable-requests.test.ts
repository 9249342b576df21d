/** Tests the response to bytes that are not a valid request. */
import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { connect } from 'node:tls';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { createCertificate, certificatePem } from '../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../api/pki/signing.ts';
import type { Exchange } from '../../../../controlplane/server/exchange.ts';
import { Listener } from '../../../../controlplane/server/listener.ts';
import { until } from '../../../until.ts';

const GARBAGE = '{"kind":"DeleteOptions"}';
const exchanges: Exchange[] = [];
let listener: Listener;
let port = 0;

before(async () => {
  const keys = await generateKey('ecdsa');
  const window = { notBeforeMs: Date.now() - 1000, notAfterMs: Date.now() + 3_600_000 };
  const certificate = createCertificate(
    { subject: { commonName: 'a' }, publicKey: keys.publicKey, ...window },
    { privateKey: keys.privateKey },
  );
  listener = new Listener({
    tls: { cert: certificatePem(certificate), key: privateKeyPem(keys.privateKey) },
    clock: systemClock,
    logger: silentLogger,
    onExchange: (exchange) => void exchanges.push(exchange),
  });
  ({ port } = await listener.listen(0, '127.0.0.1'));
});
after(() => listener.close(0));

/** Resolves to everything that the server sends until it closes the connection. */
function sent(bytes: string): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => socket.write(bytes));
  return text(socket);
}

test('bytes that are no request are answered with 400', async () => {
  assert.match(await sent(`${GARBAGE}\r\n\r\n`), /^HTTP\/1\.1 400 /);
  assert.equal(exchanges.length, 0);
});

test('a request that is processed gets no response of what follows it, which would say that it was refused', async () => {
  const answer = sent(`DELETE /api/v1/nodes/a HTTP/1.1\r\nhost: a\r\n\r\n${GARBAGE}\r\n\r\n`);
  assert.equal(await answer.catch((error: NodeJS.ErrnoException) => `lost: ${error.code}`), '');
  assert.deepEqual(
    exchanges.map(({ method }) => method),
    ['DELETE'],
  );
});

for (const [what, head, status] of [
  ['a transfer coding that is not decoded', 'POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked', 501],
  [
    'identity before chunks',
    'POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\ntransfer-encoding: chunked',
    501,
  ],
  ['two hosts', 'POST / HTTP/1.1\r\nhost: a\r\nhost: b\r\ntransfer-encoding: chunked', 400],
  ['another version', 'POST / HTTP/2.0\r\nhost: a\r\ntransfer-encoding: chunked', 505],
] as const)
  test(`a request with ${what}, which servers read differently, is refused, and nothing after it is read`, async () => {
    const before = exchanges.length;
    const answer = await sent(`${head}\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n`);
    assert.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `));
    assert.equal(answer.match(/HTTP\/1\.1 /g)?.length, 1);
    assert.equal(exchanges.length, before);
  });

for (const [what, line, method] of [
  ['that no parser knows', 'FOO /api', 'FOO'],
  ['that begins like a known one', 'POSTX /api', 'POSTX'],
  ['in lower case', 'get /api', 'get'],
  ['of every character of a token', "!#$%&'*+.^_`|~1aZ- /api", "!#$%&'*+.^_`|~1aZ-"],
  ['for tunnels', 'CONNECT /api', 'CONNECT'],
] as const)
  test(`a request with a method ${what} is handled, and the connection ends with its response`, async () => {
    const answer = sent(
      `${line} HTTP/1.1\r\nhost: a\r\naccept: text/plain\r\n\r\nFOO /next HTTP/1.1\r\nhost: a\r\n\r\n`,
    );
    await until('the request', () => exchanges.at(-1)?.method === method);
    const exchange = exchanges.at(-1);
    assert.deepEqual([exchange?.target, exchange?.headers['accept']], ['/api', 'text/plain']);
    exchange?.send(405, {}, 'no');
    assert.match(await answer, /^HTTP\/1\.1 405 .*\r\nConnection: close\r\n\r\nno$/is);
  });

for (const line of ['F@O /api', ' /api', 'FOO', 'FOO /api HTTP/1.1\r\nno header'])
  test(`a request that begins with ${JSON.stringify(line)} is answered with 400`, async () => {
    assert.match(await sent(`${line} HTTP/1.1\r\nhost: a\r\n\r\n`), /^HTTP\/1\.1 400 /);
  });

test('a request with another method waits for the response to the request before it', async () => {
  const answers = sent('GET /first HTTP/1.1\r\nhost: a\r\n\r\nFOO /second HTTP/1.1\r\nhost: a\r\n\r\n');
  await until('the first request', () => exchanges.at(-1)?.target === '/first');
  exchanges.at(-1)?.send(200, {}, 'one');
  await until('the second request', () => exchanges.at(-1)?.target === '/second');
  exchanges.at(-1)?.send(405, {}, 'two');
  assert.match(await answers, /^HTTP\/1\.1 200 [^]*\r\n\r\noneHTTP\/1\.1 405 [^]*\r\n\r\ntwo$/);
});
