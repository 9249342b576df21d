/** Bodies are read whole within their limit, and a read never waits for a client that is disconnected. */
import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { readWhole } from '../../../../controlplane/server/whole-body.ts';

test('the parts of a body are joined, and counted as they arrive', async () => {
  const body = new PassThrough();
  const counted: number[] = [];
  const read = readWhole(body, 100, (bytes) => counted.push(bytes));
  body.write('one ');
  body.end('two');
  assert.equal((await read).toString(), 'one two');
  assert.deepEqual(counted, [4, 3]);
});

test('an empty body is empty', async () => {
  const body = new PassThrough();
  body.end();
  assert.equal((await readWhole(body, 100)).length, 0);
});

test('a body over the limit is refused at once, and the rest of it is not read', async () => {
  const body = new PassThrough();
  const read = readWhole(body, 5);
  body.write('123456');
  await assert.rejects(read, (error) => isStatusError(error) && error.code === 413);
  body.write('more');
  await new Promise(setImmediate);
  assert.equal(body.isPaused(), true);
  assert.equal(body.readableLength, 4);
});

test('a client that is disconnected before or during a body is no end of it', async () => {
  const body = new PassThrough();
  const read = readWhole(body, 100);
  body.write('part');
  await new Promise(setImmediate);
  body.destroy();
  await assert.rejects(read, /disconnected/);
  await assert.rejects(readWhole(body, 100), /disconnected/);
});

test('a body whose stream fails is refused', async () => {
  const body = new PassThrough();
  const read = readWhole(body, 100);
  body.on('error', () => undefined);
  body.destroy(new Error('reset'));
  await assert.rejects(read, /disconnected/);
});
