/** Tests which paths have a stream, and the responses to requests whose connection is not upgraded. */
import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { it } from 'node:test';
import { refuseUpgrade, streamTarget } from '../../../../../agent/server/streaming/upgrade.ts';
import { parseTarget } from '../../../../../agent/server/request-target.ts';
import { newStatusError } from '../../../../../api/meta/status-error.ts';

it('a refused upgrade has the name of its status code', () => {
  const socket = new PassThrough();
  refuseUpgrade(socket, newStatusError(429, 'TooManyRequests', 'please try again'));
  assert.match(String(socket.read()), /^HTTP\/1\.1 429 Too Many Requests\r\n/);
});

it('a path of port forwarding with more parts than the uid has no stream', () => {
  assert.equal(streamTarget(parseTarget('/portForward/shop/web/u1'))?.uid, 'u1');
  assert.equal(streamTarget(parseTarget('/portForward/shop/web/u1/nginx')), undefined);
});
