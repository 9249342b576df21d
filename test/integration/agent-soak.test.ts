/**
 * Kills the agent repeatedly for 45 seconds, and checks the records of the pods. `npm run soak -- --agent docker|containerd`
 * runs longer.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { soakAgent } from '../soak/agent/run.ts';
import { containerdSocket, imageArchive, skipWithoutContainerd } from './container-runtimes.ts';

test(
  'nothing starts twice, is left behind or goes back, at whatever step the agent is killed',
  { skip: skipWithoutContainerd, timeout: 290_000 },
  async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const options = { on: 'containerd', socket: containerdSocket ?? '', images: imageArchive ?? '' } as const;
    const { violations, counts } = await soakAgent({ ...options, seconds: 45, seed });
    assert.deepEqual(violations, [], `replay with: npm run soak -- --agent containerd --minutes 0.75 --seed ${seed}`);
    assert.ok((counts.get('kills') ?? 0) > 2, JSON.stringify([...counts]));
    assert.ok((counts.get('starts of containers') ?? 0) > 2, JSON.stringify([...counts]));
  },
);
