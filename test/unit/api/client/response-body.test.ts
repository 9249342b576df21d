import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { jsonFormat } from '../../../../api/client/object-format.ts';
import { framesOf, linesOf, readAll } from '../../../../api/client/response-body.ts';
import { statusOf } from '../../../../api/client/response-status.ts';

/** Counts what is taken of it. */
function endless() {
  let taken = 0;
  const body = new Readable({
    highWaterMark: 1,
    read() {
      taken += 10;
      this.push('0123456789');
    },
  });
  return { body, taken: () => taken };
}

describe('a body without an end', () => {
  it('is closed as soon as it has more bytes than are accepted', async () => {
    const { body, taken } = endless();
    await assert.rejects(readAll(body, 1000), /the response has more than 1000 bytes/);
    assert.ok(body.destroyed);
    assert.ok(taken() < 1100, `${taken()} bytes were taken`);
  });

  it('is closed as soon as a line has more bytes than are accepted', async () => {
    const { body, taken } = endless();
    await assert.rejects(
      linesOf(body, { largestBytes: 1000 })[Symbol.asyncIterator]().next(),
      /a line of the response has more than 1000/,
    );
    assert.ok(body.destroyed);
    assert.ok(taken() < 1100, `${taken()} bytes were taken`);
  });

  it('of a failure is bounded as well', async () => {
    const { body } = endless();
    const response = { status: 500, headers: {}, body };
    await assert.rejects(statusOf(response, jsonFormat, 1000), /the response has more than 1000 bytes/);
    assert.ok(body.destroyed);
  });
});

it('a body of as many bytes as are accepted is read', async () => {
  assert.equal((await readAll(Readable.from([Buffer.from('abc'), Buffer.from('de')]), 5)).toString(), 'abcde');
});

/** Returns the bytes of the text, one by one. */
const dripped = (bytes: Buffer): Readable => Readable.from(Array.from(bytes, (byte) => Buffer.of(byte)));

async function all<T>(values: AsyncIterable<T>): Promise<string[]> {
  const found: string[] = [];
  for await (const value of values) found.push(String(value));
  return found;
}

describe('the events of a watch', () => {
  it('are the lines or frames of its body, however they are split', async () => {
    const frame = (text: string): Buffer => Buffer.concat([Buffer.from([0, 0, 0, text.length]), Buffer.from(text)]);
    const [lines, frames] = [Buffer.from('a\n\nbc\nd\nrest'), Buffer.concat(['ab', '', 'c'].map(frame))];
    for (const sent of [dripped, (bytes: Buffer) => Readable.from([bytes])]) {
      assert.deepEqual(await all(linesOf(sent(lines))), ['a', 'bc', 'd']);
      assert.deepEqual(await all(linesOf(sent(lines), { takesRest: true })), ['a', 'bc', 'd', 'rest']);
      assert.deepEqual(await all(framesOf(sent(frames))), ['ab', '', 'c']);
    }
  });

  it('are gathered in time that grows with their bytes, also where these arrive one by one', async () => {
    const bytes = Buffer.alloc(300_000, 'x');
    const size = Buffer.alloc(4);
    size.writeUInt32BE(bytes.length);
    const before = process.cpuUsage();
    assert.deepEqual(await all(framesOf(dripped(Buffer.concat([size, bytes])))), [bytes.toString()]);
    const { user, system } = process.cpuUsage(before);
    assert.ok(user + system < 4e6, `${(user + system) / 1e6} s of processor time`);
  });
});
