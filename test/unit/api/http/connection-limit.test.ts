import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { ConnectionLimit, type Connection } from '../../../../api/http/connection-limit.ts';

class FakeConnection extends EventEmitter implements Connection {
  static #ports = 0;
  readonly remoteAddress: string;
  readonly remotePort = ++FakeConnection.#ports;
  readonly localPort = 10250;
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
  return (address: string, { isProven = false } = {}): FakeConnection => {
    const connection = new FakeConnection(address);
    limit.add(connection);
    // Requests come by the TLS socket above the one that was added.
    const { remoteAddress, remotePort, localPort } = connection;
    if (isProven) limit.proven({ remoteAddress, remotePort, localPort });
    return connection;
  };
}

test('the client with most connections loses one, others get in', () => {
  const connect = setup(10);
  const node = connect('10.0.0.2');
  const flood = Array.from({ length: 100 }, () => connect('10.0.0.9'));
  const late = connect('10.0.0.3');
  assert.deepEqual([node.isOpen, late.isOpen], [true, true]);
  assert.equal(flood.filter(({ isOpen }) => isOpen).length, 8);
});

test('a connection in use stays, and a new one gets in, when others of the same address send nothing', () => {
  const connect = setup(10);
  const used = connect('10.0.0.9', { isProven: true });
  const flood = Array.from({ length: 100 }, () => connect('10.0.0.9'));
  const late = connect('10.0.0.9', { isProven: true });
  for (let more = 0; more < 100; more += 1) connect('10.0.0.9');
  assert.deepEqual([used.isOpen, late.isOpen], [true, true]);
  assert.equal(flood.filter(({ isOpen }) => isOpen).length, 0);
});

test('the newest one of the connections in use is closed', () => {
  const connect = setup(2);
  const all = [1, 2, 3].map(() => connect('10.0.0.9', { isProven: true }));
  assert.deepEqual(
    all.map(({ isOpen }) => isOpen),
    [true, true, false],
  );
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
