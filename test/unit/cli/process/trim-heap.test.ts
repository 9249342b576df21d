import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { trimHeap } from '../../../../cli/process/trim-heap.ts';

const MIB = 1024 * 1024;
const BLOCK_BYTES = 54_000;

test(
  'free memory between blocks in use is returned to the host',
  { skip: !isGnu() && 'no GNU C library' },
  async () => {
    setFlagsFromString('--expose-gc');
    const collectGarbage = runInNewContext('gc') as () => void;
    let blocks: Buffer[] = Array.from({ length: 2_000 }, () => Buffer.allocUnsafeSlow(BLOCK_BYTES).fill(1));
    blocks = blocks.filter((_, at) => at % 10 === 0);
    collectGarbage();
    await sleep(500);
    const before = process.memoryUsage.rss();
    trimHeap();
    assert.ok(process.memoryUsage.rss() < before - 60 * MIB);
    assert.equal(blocks.length, 200);
  },
);

function isGnu(): boolean {
  const report = process.report.getReport() as { readonly header: { readonly glibcVersionRuntime?: string } };
  return report.header.glibcVersionRuntime !== undefined && process.getBuiltinModule('node:ffi') !== undefined;
}
