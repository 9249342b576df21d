import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { HttpClient } from '../../../../api/client/http-client.ts';
import { boundedWaitMs } from '../../../../api/client/response-status.ts';
import { pods } from '../../../../api/client/resources.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';

test('a server, or a proxy before it, that asks a client to wait for days is asked again after a minute', async (t) => {
  const waits: number[] = [];
  const answers = ['8640000', '1e300', '-5', '7'];
  const server = createServer((_request, response) => {
    const wait = answers.shift();
    if (wait === undefined) {
      response.setHeader('content-type', 'application/json');
      response.end('{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b"}}');
    } else response.writeHead(503, { 'retry-after': wait }).end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const clock = { ...systemClock, sleep: (ms: number) => Promise.resolve(void waits.push(ms)) };
  const client = new HttpClient({ server: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, clock });
  t.after(() => {
    client.close();
    server.close();
  });
  assert.equal((await client.get(pods, 'b', 'a')).metadata.name, 'a');
  assert.deepEqual(waits, [60_000, 60_000, 0, 7_000]);
});

test('the wait that a Status requests is limited as well, even if it is no number', () => {
  for (const [seconds, waitMs] of [
    [3, 3_000],
    [2 ** 53, 60_000],
    ['3', 0],
    [Number.NaN, 0],
    [-1, 0],
    [undefined, 0],
    [[], 0],
  ] as const)
    assert.equal(boundedWaitMs(seconds), waitMs);
});
