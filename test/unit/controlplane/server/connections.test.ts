import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { createCertificate, certificatePem } from '../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../api/pki/signing.ts';
import { chainOf } from '../../../certificate-chain.ts';
import { Listener } from '../../../../controlplane/server/listener.ts';

type Limits = Pick<ConstructorParameters<typeof Listener>[0], 'maxConnections' | 'handshakeTimeoutMs'>;

/** Starts a listener that accepts the requests whose path is `/known`. */
async function listening(t: TestContext, limits: Limits): Promise<{ port: number; listener: Listener }> {
  const keys = await generateKey('ecdsa');
  const window = { notBeforeMs: Date.now() - 1000, notAfterMs: Date.now() + 3_600_000 };
  const certificate = createCertificate(
    { subject: { commonName: 'a' }, publicKey: keys.publicKey, ...window },
    { privateKey: keys.privateKey },
  );
  const listener = new Listener({
    tls: { cert: certificatePem(certificate), key: privateKeyPem(keys.privateKey) },
    clock: systemClock,
    logger: silentLogger,
    onExchange: (exchange) => {
      if (exchange.target === '/known') exchange.connection.accepted?.();
      // An answer before the end of the request would close the connection.
      setImmediate(() => exchange.send(200, {}, 'ok'));
    },
    ...limits,
  });
  t.after(() => listener.close(0));
  const { port } = await listener.listen(0, '127.0.0.1');
  return { port, listener };
}

async function opened(t: TestContext, port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  t.after(() => socket.destroy());
  socket.resume();
  await once(socket, 'connect');
  return socket;
}

test('the port of the API server holds no more connections than that', async (t) => {
  const { port } = await listening(t, { maxConnections: 3 });
  const sockets: Socket[] = [];
  for (let i = 0; i < 3; i++) sockets.push(await opened(t, port));
  const closed = once(sockets[0] as Socket, 'close');
  sockets.push(await opened(t, port));
  await closed;
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    [true, false, false, false],
  );
});

test('a connection whose client is known stays when others of the same address flood the port', async (t) => {
  const { port } = await listening(t, { maxConnections: 3 });
  const client = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
  t.after(() => client.destroy());
  const ask = async (): Promise<string> => {
    client.write('GET /known HTTP/1.1\r\nHost: a\r\n\r\n');
    const [chunk] = (await once(client, 'data')) as [Buffer];
    return chunk.toString().slice(0, 12);
  };
  assert.equal(await ask(), 'HTTP/1.1 200');
  for (let i = 0; i < 10; i++) await opened(t, port);
  assert.equal(await ask(), 'HTTP/1.1 200');
});

test('a client that does not complete its handshake in time is disconnected', async (t) => {
  const { port } = await listening(t, { handshakeTimeoutMs: 50 });
  const socket = await opened(t, port);
  // The beginning of a record of TLS.
  socket.write(Buffer.from([22, 3, 1]));
  await once(socket, 'close');
});

test('a client whose handshakes cost much is limited to short ones, over HTTP/1.1 and HTTP/2', async (t) => {
  const { port } = await listening(t, { handshakeTimeoutMs: 500 });
  const keys = await generateKey('ecdsa');
  const key = privateKeyPem(keys.privateKey);
  const shake = (cert: string): Promise<boolean> =>
    new Promise((resolve) => {
      const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false, key, cert });
      t.after(() => socket.destroy());
      socket.on('error', () => undefined);
      socket.on('close', () => resolve(false));
      socket.on('data', () => resolve(true));
      socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    });
  const long = chainOf(60, keys, keys);
  assert.deepEqual([await shake(long), await shake(long), await shake(long)], [true, true, false]);
  const ordinary = chainOf(1, keys, keys);
  assert.equal(await shake(ordinary), true);
  const session = connectHttp2(`https://127.0.0.1:${port}`, { rejectUnauthorized: false, key, cert: ordinary });
  t.after(() => session.destroy());
  const stream = session.request({ ':path': '/' }).resume();
  const [headers] = (await once(stream, 'response')) as [{ ':status': number }];
  assert.equal(headers[':status'], 200);
});

test('clients that send nothing do not keep the listener from closing', async (t) => {
  const { port, listener } = await listening(t, {});
  const sockets = [await opened(t, port), await opened(t, port)];
  const closed = sockets.map((socket) => once(socket, 'close'));
  // The listener has accepted the connections before this one.
  await once(connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false }), 'secureConnect');
  await listener.close(0);
  await Promise.all(closed);
});
