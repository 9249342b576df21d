import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sendBody, sendGenerated } from '../../../../controlplane/server/body-stream.ts';
import type { Exchange } from '../../../../controlplane/server/exchange.ts';
import { Pieces } from '../../../../controlplane/server/pieces.ts';
import type { ApiRequest } from '../../../../controlplane/server/request.ts';

const CHUNK = Buffer.alloc(100_000);

/** A request whose client takes one chunk, and the next ones when `drain` is called. */
function slowClient() {
  const sent: number[] = [];
  let ended = false;
  let drain = (): void => undefined;
  const exchange: Partial<Exchange> = {
    closed: false,
    start: () => undefined,
    end: () => (ended = true),
    onClose: () => undefined,
    onDrain: (listener) => (drain = listener),
    write: (chunk, read) => {
      sent.push(chunk.length);
      read?.();
      return false;
    },
  };
  const request = { exchange, responseBytes: 0, responseHeaders: () => ({}), header: () => undefined };
  return {
    request: request as unknown as ApiRequest,
    sent,
    get ended() {
      return ended;
    },
    drain: () => drain(),
  };
}

test('a large body resolves when its last chunk is passed on, and all its bytes are counted', async () => {
  const client = slowClient();
  let left = 6;
  const pieces = new Pieces((to) => {
    if (left > 0) to.add(CHUNK);
    left -= 1;
    return left >= 0;
  });
  const sending = sendBody(client.request, 200, 'text/plain', pieces);
  for (let turn = 0; turn < 4; turn += 1) client.drain();
  await sending;
  assert.ok(client.ended);
  assert.equal(client.request.responseBytes, 6 * CHUNK.length);
  assert.equal(
    client.sent.reduce((sum, bytes) => sum + bytes, 0),
    6 * CHUNK.length,
  );
});

test('an item that cannot be encoded after the response began rejects the response, and does not end the process', async () => {
  const failure = new Error('cannot be encoded');
  const pieces = new Pieces((to) => {
    if (to.bytes > 500_000) throw failure;
    to.add(CHUNK);
    return true;
  });
  const lists = slowClient();
  const sending = sendBody(lists.request, 200, 'text/plain', pieces);
  for (let turn = 0; turn < 4; turn += 1) lists.drain();
  await assert.rejects(async () => sending, failure);
  const texts = slowClient();
  const generated = sendGenerated(
    texts.request,
    200,
    'text/plain',
    (function* () {
      yield CHUNK;
      yield CHUNK;
      throw failure;
    })(),
  );
  texts.drain();
  texts.drain();
  await assert.rejects(async () => generated, failure);
});
