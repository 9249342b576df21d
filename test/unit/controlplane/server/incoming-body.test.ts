/** Bodies are read whole within their limit, and a read never waits for a client that is disconnected. */
import assert from 'node:assert/strict';
import { PassThrough, Readable } from 'node:stream';
import { test } from 'node:test';
import { until } from '../../../until.ts';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { IncomingBody, incomingBody } from '../../../../controlplane/server/incoming-body.ts';

const readWhole = (body: Readable, limit: number, count?: (bytes: number) => void): Promise<Buffer> =>
  new IncomingBody(body).whole(limit, count);

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

test('what comes before a reader is gathered, and the rest waits for the reader', async () => {
  const source = new PassThrough();
  const body = new IncomingBody(source);
  const parts = Array.from({ length: 70_000 }, (_part, at) => String(at % 10));
  for (const part of parts) source.write(part);
  await until('the stream to be paused', () => source.isPaused());
  const counted: number[] = [];
  const whole = body.whole(100_000, (bytes) => counted.push(bytes));
  source.end();
  assert.equal((await whole).toString(), parts.join(''));
  assert.equal(counted[0], 64 * 1024, 'they were received as one part');
  assert.equal(
    counted.reduce((sum, bytes) => sum + bytes, 0),
    parts.length,
  );
});

test('a body that came whole before its reader is read, forwarded or refused like another', async () => {
  const arrived = async (...parts: readonly string[]): Promise<IncomingBody> => {
    const source = new PassThrough();
    const body = new IncomingBody(source);
    for (const part of parts) source.write(part);
    source.end();
    await until('the end', () => source.readableEnded);
    return body;
  };
  assert.equal((await (await arrived('a', 'b')).whole(10)).toString(), 'ab');
  assert.deepEqual((await Array.fromAsync((await arrived('a', 'b')).parts())).map(String), ['ab']);
  await assert.rejects((await arrived('a', 'b')).whole(1), (error) => isStatusError(error) && error.code === 413);
});

test('a body is forwarded part by part, those that came before among them', async () => {
  const source = new PassThrough();
  const body = new IncomingBody(source);
  source.write('early ');
  await new Promise(setImmediate);
  const parts = body.parts();
  assert.equal(String((await parts.next()).value), 'early ');
  source.write('late');
  assert.equal(String((await parts.next()).value), 'late');
  source.end();
  assert.equal((await parts.next()).done, true);
});

test('the body of a read is dropped as it comes', async () => {
  for (const method of ['GET', 'HEAD']) {
    const source = new PassThrough();
    assert.equal(incomingBody(method, source), undefined);
    for (let at = 0; at < 200_000; at += 1) source.write('x');
    source.end();
    await until('the end', () => source.readableEnded);
    assert.equal(source.readableLength, 0);
  }
  assert.ok(incomingBody('POST', new PassThrough()));
});
