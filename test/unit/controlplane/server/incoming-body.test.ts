/** Bodies are read whole within their limit, and a read never waits for a client that is disconnected. */
import assert from 'node:assert/strict';
import { PassThrough, Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { until } from '../../../until.ts';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { TooManyRequests } from '../../../../controlplane/server/flowcontrol/too-many-requests.ts';
import { IncomingBody, incomingBody, MAX_UNREAD_BYTES } from '../../../../controlplane/server/incoming-body.ts';
import { UnreadBodies } from '../../../../controlplane/server/unread-bodies.ts';

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

test('bytes that arrive before the reader are collected up to the size of a whole body, and the rest waits for the reader', async () => {
  const source = new PassThrough();
  const body = new IncomingBody(source);
  const parts = Array.from({ length: 70_000 }, (_part, at) => String(at % 10));
  for (const part of parts) source.write(part);
  await until('all parts to be gathered', () => source.readableLength === 0);
  const rest = Buffer.alloc(MAX_UNREAD_BYTES);
  source.write(rest);
  await until('the stream to be paused', () => source.isPaused());
  source.write('last');
  const counted: number[] = [];
  const whole = body.whole(2 * MAX_UNREAD_BYTES, (bytes) => counted.push(bytes));
  source.end();
  assert.equal((await whole).toString(), `${parts.join('')}${rest.toString()}last`);
  assert.deepEqual(counted, [parts.length + rest.length, 4], 'they were received as one part');
});

describe('bodies that wait for a reader', () => {
  const connection = (remoteAddress: string) => ({
    connection: { remoteAddress, peerCertificate: undefined },
    onClose: () => undefined,
  });
  const waiting = (unread: UnreadBodies, address: string, bytes: number): IncomingBody => {
    const source = new PassThrough();
    const body = new IncomingBody(source, (refuse) => unread.open(connection(address), refuse));
    source.end(Buffer.alloc(bytes, 0x78));
    return body;
  };
  const refused = (error: unknown): boolean => error instanceof TooManyRequests;

  test('share a budget, of which the client that holds most loses its newest bodies', async () => {
    const unread = new UnreadBodies(1_000_000);
    const large = Array.from({ length: 20 }, () => waiting(unread, '10.0.0.1', 200_000));
    const other = waiting(unread, '10.0.0.2', 200_000);
    await until('all bodies to arrive', () => unread.bytes > 800_000);
    await new Promise(setImmediate);
    assert.ok(unread.bytes <= 1_000_000, `${unread.bytes} bytes wait`);
    assert.equal((await other.whole(MAX_UNREAD_BYTES)).length, 200_000);
    const outcomes = await Promise.allSettled(large.map((body) => body.whole(MAX_UNREAD_BYTES)));
    const lost = outcomes.filter((one) => one.status === 'rejected');
    assert.ok(lost.length >= 16 && lost.length < 20, `${lost.length} lost`);
    assert.ok(lost.every((one) => refused(one.reason)));
    assert.equal(outcomes[0]?.status, 'fulfilled', 'the oldest one stays');
    assert.equal(unread.bytes, 0);
  });

  test('no longer count once they are read, forwarded or dropped', async () => {
    const unread = new UnreadBodies();
    const bodies = [1, 2, 3].map(() => waiting(unread, '10.0.0.1', 100));
    await until('all bodies to arrive', () => unread.bytes > 3 * 16_384);
    await bodies[0]?.whole(MAX_UNREAD_BYTES);
    await Array.fromAsync(bodies[1]?.parts() ?? []);
    bodies[2]?.discard();
    assert.equal(unread.bytes, 0);
  });

  test('are not forwarded after they were refused', async () => {
    const unread = new UnreadBodies(100_000);
    const body = waiting(unread, '10.0.0.1', 200_000);
    await until('the body to be refused', () => unread.bytes === 0);
    await new Promise(setImmediate);
    await assert.rejects(Array.fromAsync(body.parts()), refused);
  });
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
