/** Headers that begin and do not end are limited for all connections together. */
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { IncompleteHeaders } from '../../../../api/http/incomplete-headers.ts';
import { Listener } from '../../../../controlplane/server/listener.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { selfSigned } from '../../../fakes/fake-server.ts';
import { assertLimitsHeaders } from '../../../endless-headers.ts';

class FakeConnection extends EventEmitter {
  bytesRead: number;
  isOpen = true;

  constructor(bytesRead: number) {
    super();
    this.bytesRead = bytesRead;
  }

  destroy(): void {
    this.isOpen = false;
    this.emit('close');
  }
}

function setUp(...sizes: readonly number[]) {
  const clock = new FakeClock();
  const headers = new IncompleteHeaders({ clock, logger: silentLogger, maxHeaderBytes: 1000, budgetBytes: 2500 });
  const connections = sizes.map((size) => new FakeConnection(size));
  for (const connection of connections) headers.add(connection);
  const open = async (): Promise<boolean[]> => {
    await clock.advance(250);
    return connections.map(({ isOpen }) => isOpen);
  };
  return { clock, headers, connections, open };
}

test('connections with the longest headers are closed until the others have room', async () => {
  const { open } = setUp(900, 100, 950, 800, 600);
  assert.deepEqual(await open(), [true, true, false, true, true]);
});

test('headers within the budget are left alone, and few connections are not checked', async () => {
  assert.deepEqual(await setUp(900, 900, 600, 50).open(), [true, true, true, true]);
  assert.equal(setUp(900, 900).clock.pendingTimers, 0);
});

test('neither complete headers nor bodies count, but the headers of the next request do', async () => {
  const { connections, headers, open } = setUp(900, 900, 900, 900);
  for (const one of connections) headers.complete(one);
  for (const one of connections) one.bytesRead = 1_000_000;
  assert.deepEqual(await open(), [true, true, true, true]);
  for (const one of connections) headers.ended(one);
  for (const one of connections) one.bytesRead += 800;
  assert.equal((await open()).filter(Boolean).length, 3);
});

test('a listener closes connections that send headers without an end, and serves others', async () => {
  const listener = new Listener({
    tls: await selfSigned(),
    clock: systemClock,
    logger: silentLogger,
    headersBudgetBytes: 500_000,
    onExchange: (exchange) => exchange.send(200, {}, 'ok'),
  });
  const { port }: AddressInfo = await listener.listen(0, '127.0.0.1');
  try {
    await assertLimitsHeaders(port);
  } finally {
    await listener.close(0);
  }
});
