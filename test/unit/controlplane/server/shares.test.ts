/** Tests shares of a budget that is used up. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Shares } from '../../../../controlplane/server/shares.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

test('opening one share after another at the limit takes time that grows with their number', async () => {
  const run = (size: number): void => {
    const shares = new Shares(size, 1);
    for (let count = 0; count < size; count += 1) shares.open('alice', assert.fail);
    let refused = 0;
    for (let count = 0; count < size; count += 1) shares.open('alice', () => (refused += 1));
    assert.equal(refused, size);
    assert.equal(shares.amount, size);
  };
  await assertLinearTime(run, { minBytes: 1_000, maxBytes: 32_000, noticeableMs: 300 });
});
