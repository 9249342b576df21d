import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { createCertificate, certificatePem } from '../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../api/pki/signing.ts';
import { ConnectionLimit, type Connection } from '../../../../controlplane/server/connection-limit.ts';
import { Listener } from '../../../../controlplane/server/listener.ts';

class FakeConnection extends EventEmitter implements Connection {
  readonly remoteAddress: string;
  isOpen = true;

  constructor(remoteAddress: string) {
    super();
    this.remoteAddress = remoteAddress;
  }

  destroy(): void {
    this.isOpen = false;
    this.emit('close');
  }
}

function setup(most: number) {
  const limit = new ConnectionLimit({ clock: systemClock, logger: silentLogger, most });
  return (address: string): FakeConnection => {
    const connection = new FakeConnection(address);
    limit.add(connection);
    return connection;
  };
}

test('the client with most connections loses its newest one, others get in', () => {
  const connect = setup(10);
  const node = connect('10.0.0.2');
  const first = connect('10.0.0.9');
  const flood = Array.from({ length: 100 }, () => connect('10.0.0.9'));
  const late = connect('10.0.0.3');
  assert.deepEqual([node.isOpen, first.isOpen, late.isOpen], [true, true, true]);
  assert.equal(flood.filter(({ isOpen }) => isOpen).length, 7);
  assert.equal(flood[0]?.isOpen, true);
});

test('among clients with equally many connections those stay that are connected', () => {
  const connect = setup(3);
  const all = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'].map((address) => connect(address));
  assert.deepEqual(
    all.map(({ isOpen }) => isOpen),
    [true, true, true, false, false],
  );
});

test('a closed connection makes room for another one', () => {
  const connect = setup(2);
  connect('10.0.0.2').destroy();
  const both = [connect('10.0.0.2'), connect('10.0.0.2')];
  assert.deepEqual(
    both.map(({ isOpen }) => isOpen),
    [true, true],
  );
});

test('addresses of one IPv6 network are one client, and an IPv4 address in an IPv6 address is itself', () => {
  const connect = setup(3);
  const other = connect('::ffff:10.0.0.2');
  const flood = Array.from({ length: 20 }, (_, i) => connect(`2001:db8::${i + 1}`));
  assert.equal(other.isOpen, true);
  assert.equal(flood.filter(({ isOpen }) => isOpen).length, 2);
  assert.equal(connect('10.0.0.3').isOpen, true);
});

test('the port of the API server holds no more connections than that', async () => {
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
    onExchange: () => undefined,
    maxConnections: 3,
  });
  const { port } = await listener.listen(0, '127.0.0.1');
  const sockets = [];
  for (let i = 0; i < 4; i++) {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    sockets.push(socket);
  }
  const [last] = sockets.slice(-1);
  assert.ok(last !== undefined);
  last.resume();
  await once(last, 'close');
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    [false, false, false, true],
  );
  for (const socket of sockets) socket.destroy();
  await listener.close(0);
});
