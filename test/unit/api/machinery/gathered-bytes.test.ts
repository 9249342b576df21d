/** Parts of bodies are gathered in memory that grows with their bytes, and not with their number. */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { GatheredBytes } from '../../../../api/machinery/gathered-bytes.ts';
import { IncomingBody } from '../../../../controlplane/server/incoming-body.ts';

test('parts are joined in their order, and a single one is not copied', () => {
  const gathered = new GatheredBytes();
  const first = Buffer.from('one ');
  gathered.push(first);
  assert.equal(gathered.take().buffer, first.buffer);
  assert.equal(gathered.take().length, 0);
  const parts = Array.from({ length: 3000 }, (_part, at) => `${at} `);
  for (const part of parts) gathered.push(Buffer.from(part));
  assert.equal(gathered.size, parts.join('').length);
  assert.equal(gathered.take().toString(), parts.join(''));
  assert.equal(first.toString(), 'one ', 'the first part stays as it is');
});

test('three megabytes that arrive byte by byte take a few megabytes', async () => {
  const size = 3 * 1024 * 1024;
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const held = (): number => {
    collect();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const before = held();
  let atTheEnd = 0;
  let count = 0;
  const body = Readable.from(
    (function* () {
      const bytes = Buffer.alloc(64 * 1024, ' ');
      for (; count < size; count += 1) {
        if (count === size - 1) atTheEnd = held() - before;
        yield bytes.subarray(count % bytes.length, (count % bytes.length) + 1);
      }
    })(),
    { objectMode: true },
  );
  assert.equal((await new IncomingBody(body).whole(size)).length, size);
  assert.ok(atTheEnd > 0 && atTheEnd < 16 * 1024 * 1024, `${atTheEnd} bytes`);
});
