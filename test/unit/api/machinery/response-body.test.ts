import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { jsonFormat } from '../../../../api/machinery/object-format.ts';
import { readAll } from '../../../../api/machinery/response-body.ts';
import { statusOf } from '../../../../api/machinery/response-status.ts';

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
