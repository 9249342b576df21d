/** Tests the outcomes that a fuzzer remembers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Outcomes } from '../../fuzz/outcomes.ts';

test('an outcome is new only the first time', () => {
  const outcomes = new Outcomes();
  assert.deepEqual(
    ['a', 'b', 'a', 'b', 'c'].map((one) => outcomes.isNew(one)),
    [true, true, false, false, true],
  );
  assert.equal(outcomes.size, 3);
});

test('the number of remembered outcomes is limited', () => {
  const outcomes = new Outcomes(10);
  for (let at = 0; at < 1000; at += 1) outcomes.isNew(`${at}`);
  assert.equal(outcomes.size, 10);
  assert.equal(outcomes.isNew('another'), false);
});

test('a long outcome is not kept as a whole', () => {
  const outcomes = new Outcomes();
  const heldBytes = (): number => process.memoryUsage().heapUsed + process.memoryUsage().external;
  const before = heldBytes();
  for (let at = 0; at < 20_000; at += 1) outcomes.isNew(`${at}`.padEnd(20_000, 'x'));
  assert.ok(heldBytes() - before < 200_000_000, 'not all 400 MB of outcomes are kept');
});
