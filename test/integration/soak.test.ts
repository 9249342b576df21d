/** Runs the control plane with faults for half a minute, and checks what its clients saw. `npm run soak` runs longer. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { soak } from '../soak/run.ts';

const skip = spawnSync('cc', ['--version']).status === 0 ? false : 'needs a C compiler';

test(
  'nothing that was acknowledged is lost and nothing deleted comes back, whatever fails',
  { skip, timeout: 180_000 },
  async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const { violations, counts } = await soak({ seconds: 30, seed, only: [] });
    assert.deepEqual(violations, [], `replay with: npm run soak -- --minutes 0.5 --seed ${seed}`);
    assert.ok((counts.get('writes done') ?? 0) > 100, JSON.stringify([...counts]));
    // The faults are random: not every run kills the server more than once.
    const faults = [...counts].filter(([what]) => what.startsWith('fault ')).map(([, count]) => count);
    assert.ok(faults.reduce((sum, count) => sum + count, 0) > 2, JSON.stringify([...counts]));
  },
);
