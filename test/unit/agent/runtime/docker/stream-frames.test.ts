/** Tests Docker's multiplexed streams: frames in arbitrary chunks, and an exec whose client is slow or disconnected. */
import assert from 'node:assert/strict';
import { Duplex, PassThrough, Readable, Writable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { carryStreams, OutputBuffer, readFrames } from '../../../../../agent/runtime/docker/stream-frames.ts';

const frame = (stream: 1 | 2, payload: Buffer): Buffer => {
  const head = Buffer.alloc(8);
  head[0] = stream;
  head.writeUInt32BE(payload.length, 4);
  return Buffer.concat([head, payload]);
};

describe('frames', () => {
  it('are the same however the bytes arrive', async () => {
    const frames = fc.array(fc.tuple(fc.constantFrom<1 | 2>(1, 2), fc.uint8Array({ maxLength: 40 })), { maxLength: 8 });
    const sizes = fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 });
    await fc.assert(
      fc.asyncProperty(frames, sizes, async (sent, cuts) => {
        const all = Buffer.concat(sent.map(([stream, payload]) => frame(stream, Buffer.from(payload))));
        const chunks: Buffer[] = [];
        for (let at = 0, turn = 0; at < all.length; turn += 1) {
          const size = cuts[turn % cuts.length] ?? 1;
          chunks.push(all.subarray(at, at + size));
          at += size;
        }
        const read: [1 | 2, Buffer][] = [];
        let isNew = true;
        for await (const { stream, payload, last } of readFrames(Readable.from(chunks))) {
          const number = stream === 'stderr' ? 2 : 1;
          const before = read.at(-1);
          if (isNew || before === undefined) read.push([number, payload]);
          else before[1] = Buffer.concat([before[1], payload]);
          isNew = last;
        }
        assert.deepEqual(
          read,
          sent.filter(([, payload]) => payload.length > 0).map(([stream, payload]) => [stream, Buffer.from(payload)]),
        );
      }),
    );
  });
});

/** Returns a connection of Docker that sends these chunks and records what it receives. */
function connectionOf(...chunks: readonly Buffer[]): { readonly connection: Duplex; readonly input: Buffer[] } {
  const input: Buffer[] = [];
  const left = [...chunks];
  const connection = new Duplex({
    read() {
      this.push(left.shift() ?? null);
    },
    write(chunk: Buffer, _encoding, done) {
      input.push(chunk);
      done();
    },
  });
  return { connection, input };
}

const neverAborted = new AbortController().signal;

describe('the streams of an exec', () => {
  it('reach the stream that the frame names', async () => {
    const { connection } = connectionOf(frame(1, Buffer.from('out')), frame(2, Buffer.from('err')));
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    await carryStreams(connection, { stdout, stderr, tty: false, signal: neverAborted });
    assert.deepEqual([String(stdout.read()), String(stderr.read())], ['out', 'err']);
  });

  it('are bytes without frames on a terminal', async () => {
    const { connection } = connectionOf(Buffer.from([1, 0, 0, 0, 0, 0, 0, 9]));
    const stdout = new PassThrough();
    await carryStreams(connection, { stdout, tty: true, signal: neverAborted });
    assert.deepEqual(stdout.read(), Buffer.from([1, 0, 0, 0, 0, 0, 0, 9]));
  });

  it('give the input to the process', async () => {
    const input: Buffer[] = [];
    const connection = new Duplex({
      read() {},
      write(chunk: Buffer, _encoding, done) {
        input.push(chunk);
        done();
      },
      final(done) {
        this.push(null);
        done();
      },
    });
    await carryStreams(connection, { stdin: Readable.from([Buffer.from('in')]), tty: false, signal: neverAborted });
    assert.equal(String(Buffer.concat(input)), 'in');
  });

  it('wait for a slow client, and buffer no more than a chunk for it', async () => {
    const chunks = Array.from({ length: 20 }, () => frame(1, Buffer.alloc(1000)));
    const { connection } = connectionOf(...chunks);
    const taken: (() => void)[] = [];
    let receivedBytes = 0;
    const stdout = new Writable({
      highWaterMark: 1,
      write(chunk: Buffer, _encoding, done) {
        receivedBytes += chunk.length;
        taken.push(done);
      },
    });
    const carried = carryStreams(connection, { stdout, tty: false, signal: neverAborted });
    for (let turn = 0; turn < 20; turn += 1) await setImmediate();
    assert.equal(receivedBytes, 1000);
    let isOver = false;
    void carried.then(() => (isOver = true));
    for (let turn = 0; !isOver; turn += 1) {
      assert.ok(turn < 10_000, 'the output does not end');
      taken.shift()?.();
      await setImmediate();
    }
    assert.equal(receivedBytes, 20_000);
  });

  it('end with a client that has gone, before or while the output waits for it', { timeout: 20_000 }, async () => {
    const output = Array.from({ length: 3 }, () => frame(1, Buffer.alloc(100)));
    const gone = new PassThrough();
    gone.destroy();
    await setImmediate();
    await carryStreams(connectionOf(...output).connection, { stdout: gone, tty: false, signal: neverAborted });

    const leaving = new Writable({ highWaterMark: 1, write() {} });
    const carried = carryStreams(connectionOf(...output).connection, {
      stdout: leaving,
      tty: false,
      signal: neverAborted,
    });
    await setImmediate();
    leaving.destroy();
    await carried;
  });

  it('end when the caller aborts, although a client takes nothing', { timeout: 20_000 }, async () => {
    const abort = new AbortController();
    const { connection } = connectionOf(frame(1, Buffer.alloc(100)), frame(1, Buffer.alloc(100)));
    const stdout = new Writable({ highWaterMark: 1, write() {} });
    const carried = carryStreams(connection, { stdout, tty: false, signal: abort.signal });
    for (let turn = 0; turn < 5; turn += 1) await setImmediate();
    abort.abort();
    await carried;
    assert.ok(connection.destroyed);
  });
});

it('collected output ends at its limit', () => {
  const buffer = new OutputBuffer(5);
  for (const part of ['ab', 'cd', 'ef', 'gh']) buffer.add(Buffer.from(part));
  assert.equal(String(buffer.bytes()), 'abcde');
});
