import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { askOverUdp } from '../../../../../agent/network/clusterdns/upstream.ts';

/** Returns a query with one question of type A. */
function query(id: number, name: string): Buffer {
  const labels = name.split('.').map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
  const header = Buffer.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
  return Buffer.concat([header, ...labels, Buffer.from([0, 0, 1, 0, 1])]);
}

function responseTo(message: Buffer, id = message.readUInt16BE(0)): Buffer {
  const response = Buffer.from(message);
  response.writeUInt16BE(id, 0);
  response[2] = 0x81;
  return response;
}

/** Resolves to a name server that answers each query with these messages. */
async function nameServer(t: TestContext, answer: (query: Buffer) => readonly Buffer[]) {
  const seen: number[] = [];
  const socket = createSocket('udp4').bind(0, '127.0.0.1');
  t.after(() => socket.close());
  await once(socket, 'listening');
  socket.on('message', (message, from) => {
    seen.push(message.readUInt16BE(0));
    for (const response of answer(message)) socket.send(response, from.port, from.address);
  });
  return { address: '127.0.0.1', port: (socket.address() as AddressInfo).port, seen };
}

describe('a query that is forwarded to another name server', () => {
  it('has an id that its client neither chooses nor knows, and the response has that of the client', async (t) => {
    const server = await nameServer(t, (message) => [responseTo(message)]);
    for (let count = 0; count < 20; count++) {
      const response = await askOverUdp(server, query(7, 'example.com'), 2000);
      assert.equal(response.readUInt16BE(0), 7);
    }
    assert.ok(new Set(server.seen).size > 15, `ids ${server.seen.join()}`);
    assert.ok(server.seen.filter((id) => id === 7).length < 3);
  });

  it('takes no response with the id of the client, to another question, or that is no response', async (t) => {
    const server = await nameServer(t, (message) => [
      responseTo(message, 7),
      responseTo(query(message.readUInt16BE(0), 'other.com')),
      message,
      responseTo(query(message.readUInt16BE(0), 'EXAMPLE.com')),
    ]);
    const response = await askOverUdp(server, query(7, 'example.com'), 2000);
    assert.equal(response.toString('latin1', 13, 20), 'EXAMPLE', 'the case of letters does not matter');
  });

  it('takes an error without the question from a server that cannot read it', async (t) => {
    const server = await nameServer(t, (message) => [
      Buffer.concat([message.subarray(0, 2), Buffer.from([0x81, 0x01, 0, 0, 0, 0, 0, 0, 0, 0])]),
    ]);
    assert.equal((await askOverUdp(server, query(7, 'example.com'), 2000)).length, 12);
  });
});
