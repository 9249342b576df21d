/** Replays power failures: every change that was not synced may be lost. `npm run soak -- --power` tries more of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { powerFailures } from '../power/power-failures.ts';
import { canRecord } from '../power/recording.ts';

test(
  'no power failure takes what was acknowledged, brings back what was deleted, or leaves a file that is half-written',
  { skip: !canRecord() && 'needs a C compiler', timeout: 180_000 },
  async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const { violations, counts } = await powerFailures({ seed, only: [], lives: 2, failures: 12, states: 2 });
    assert.deepEqual(violations, [], `try again with: npm run soak -- --power --seed ${seed}`);
    assert.equal(counts.get('states of the disk'), 96);
    assert.ok((counts.get('acknowledged writes checked') ?? 0) > 1000, JSON.stringify([...counts]));
  },
);
