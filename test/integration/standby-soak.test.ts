/** Runs a first control plane and its standby with faults and promotions. `npm run soak -- --standby` runs longer. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { whyNoHosts } from '../soak/standby/network.ts';
import { soakPair } from '../soak/standby/run.ts';

const skip = spawnSync('cc', ['--version']).status === 0 ? whyNoHosts() : 'needs a C compiler';

/** The faults of each kind that take the least time. */
const FAULTS = ['first-killed-promoted', 'first-frozen-promoted', 'cut-promoted', 'promoted', 'first-disk-fails'];

test(
  'a pair loses only what may be lost, and a former first acknowledges nothing once it was stopped',
  { skip, timeout: 600_000 },
  async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const { violations, counts } = await soakPair({ seconds: 25, seed, only: FAULTS });
    const replay = `replay with: npm run soak -- --standby --minutes 0.4 --only ${FAULTS.join(',')} --seed ${seed}`;
    assert.deepEqual(violations, [], replay);
    assert.ok((counts.get('writes done') ?? 0) > 20, JSON.stringify([...counts]));
    const faults = [...counts].filter(([what]) => what.startsWith('fault ')).map(([, count]) => count);
    assert.ok(faults.reduce((sum, count) => sum + count, 0) > 0, JSON.stringify([...counts]));
  },
);
