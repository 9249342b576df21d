import assert from 'node:assert/strict';
import { get, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { warningHeaders } from '../../../../controlplane/server/warning-headers.ts';

/** Returns distinct texts of this length. */
const texts = (count: number, length: number, fill: string): string[] =>
  Array.from({ length: count }, (_, at) => String.fromCodePoint(0x4e00 + at).padEnd(length, fill));

describe('warnings', () => {
  for (const [what, warnings] of [
    ['thousands of one character', texts(4000, 1, '')],
    ['as many as are sent, of the longest characters', texts(128, 32, '界')],
    ['a few of megabytes', texts(20, 1_000_000, '"')],
    ['control characters', ['a\r\nSet-Cookie: b', '\u0000\u0085"\\', '"\\']],
  ] as const) {
    it(`are headers that a client in Node.js accepts: ${what}`, async () => {
      const server = createServer((_request, response) => {
        response.setHeader('warning', warningHeaders(warnings));
        response.end();
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      const { port } = server.address() as AddressInfo;
      const headers = await new Promise<NodeJS.Dict<string[]>>((resolve, reject) => {
        get({ host: '127.0.0.1', port, agent: false }, (response) => {
          response.resume();
          resolve(response.headersDistinct);
        }).on('error', reject);
      });
      server.close();
      assert.equal(headers['set-cookie'], undefined);
      const received = headers['warning'] ?? [];
      assert.ok(received.length > 0 && received.every((text) => /^299 - "(\\.|[^"\\\r\n])*"$/.test(text)));
    });
  }

  it('with control characters are left out, and do not count', () =>
    assert.deepEqual(warningHeaders(['a', 'b\nc'.padEnd(4096), 'é']), ['299 - "a"', '299 - "Ã©"']));

  it('within the limit in code points are whole, and beyond it each is truncated', () => {
    const four = ['a', 'b', 'c', 'd'].map((start) => start.padEnd(1024, '😀'.repeat(512)));
    const lengths = (warnings: readonly string[]): number[] =>
      warningHeaders(warnings).map(
        (header) => [...Buffer.from(header, 'latin1').toString()].length - '299 - ""'.length,
      );
    assert.deepEqual(lengths(four), [513, 513, 513, 513]);
    assert.deepEqual(lengths([...four, 'e'.padEnd(4000)]), [256, 256, 256, 256, 256]);
  });
});
