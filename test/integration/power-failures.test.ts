/** Replays power failures: every change that was not synced may be lost. `npm run soak -- --power` tries more of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { powerFailures } from '../power/power-failures.ts';
import { canRecord } from '../power/recording.ts';

const skip = !canRecord() && 'needs a C compiler';

interface Amount {
  readonly lives: number;
  readonly failures: number;
  readonly states: number;
}

/** Checks states of the disk, and that as many of them were checked as the amount says. */
async function check(only: readonly string[], amount: Amount, leastWrites: number): Promise<void> {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const { violations, counts } = await powerFailures({ seed, only, ...amount });
  assert.deepEqual(violations, [], `try again with: npm run soak -- --power --seed ${seed} --only ${only.join(',')}`);
  assert.equal(counts.get('states of the disk'), only.length * amount.lives * amount.failures * amount.states);
  assert.ok((counts.get('acknowledged writes checked') ?? 0) >= leastWrites, JSON.stringify([...counts]));
}

test(
  'no power failure takes what was acknowledged, brings back what was deleted, or leaves a file that is half-written',
  { skip, timeout: 180_000 },
  () => check(['storage', 'agent'], { lives: 2, failures: 12, states: 2 }, 1000),
);

test(
  'a control plane starts after a power failure with every acknowledged object, and gives no address twice',
  { skip, timeout: 300_000 },
  () => check(['controlplane'], { lives: 2, failures: 4, states: 1 }, 20),
);
