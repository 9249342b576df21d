/** Opens connections that send headers of HTTP/1.1 without their end, to use up the memory of a server. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';
import { until } from './until.ts';

/**
 * Sends a megabyte of headers over ten connections to a server that keeps 500,000 bytes of them. Asserts that it closes as many
 * connections as it must, and answers another client.
 */
export async function assertLimitsHeaders(port: number): Promise<void> {
  const sockets: TLSSocket[] = [];
  const open = async (): Promise<TLSSocket> => {
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
    sockets.push(socket);
    socket.on('error', () => undefined);
    await once(socket, 'secureConnect');
    return socket;
  };
  try {
    for (let at = 0; at < 10; at += 1)
      (await open()).write(`GET / HTTP/1.1\r\nHost: a\r\nX-Long: ${'x'.repeat(100_000)}`);
    await until('some to be closed', () => sockets.filter(({ destroyed }) => destroyed).length >= 5);
    assert.ok(sockets.filter(({ destroyed }) => !destroyed).length >= 4);
    const other = await open();
    let text = '';
    other.setEncoding('utf8').on('data', (part: string) => (text += part));
    other.write('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    await until('the answer', () => text.startsWith('HTTP/1.1 200'));
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}
