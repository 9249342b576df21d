import assert from 'node:assert/strict';
import { test } from 'node:test';
import { humanDuration, humanDurationLasts } from '../../../../../controlplane/registry/columns/human-duration.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** The durations at which the precision of the text changes. */
const EDGES = [120 * SECOND, 10 * MINUTE, 3 * HOUR, 8 * HOUR, 2 * DAY, 8 * DAY, 730 * DAY, 8 * 365 * DAY];

test('a text stays the same for as long as announced', () => {
  const starts = [
    0,
    1,
    999,
    ...EDGES.flatMap((edge) => [-DAY, -HOUR, -MINUTE, -1, 0, 1, 12_345].map((by) => edge + by)),
  ];
  for (const start of starts.filter((duration) => duration >= 0)) {
    const lasts = humanDurationLasts(start);
    assert.ok(lasts > 0, `${start} ms`);
    assert.equal(humanDuration(start + lasts - 1), humanDuration(start), `${start} ms, for ${lasts} ms`);
  }
});

test('a text below eight days changes at the announced time and not later', () => {
  for (const start of [0, 5.5 * SECOND, 119.5 * SECOND, 9 * MINUTE, 11 * MINUTE, 4 * HOUR, 9 * HOUR, 3 * DAY]) {
    assert.notEqual(humanDuration(start + humanDurationLasts(start)), humanDuration(start), `${start} ms`);
  }
});

test('nothing is announced before its time', () => assert.equal(humanDurationLasts(-1), 0));
