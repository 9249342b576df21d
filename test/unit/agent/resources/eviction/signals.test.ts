/** Tests the signals of memory with a cgroup of the host that is measured, and one that is not. */
import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { test } from 'node:test';
import { observeSignals } from '../../../../../agent/resources/eviction/signals.ts';
import type { CgroupUsage } from '../../../../../agent/resources/statistics/cgroup-usage.ts';
import { NO_USAGE } from '../../../../../agent/resources/statistics/usage.ts';

const GIB = 1024 ** 3;

async function memoryWith(node: CgroupUsage): Promise<{ readonly available: number; readonly capacity: number }> {
  const { observations } = await observeSignals({
    node: () => Promise.resolve(node),
    allPods: () => Promise.resolve(undefined),
    storage: () =>
      Promise.resolve({
        root: undefined,
        images: { filesystem: undefined },
        containers: { filesystem: undefined },
      } as never),
    allocatableMemoryBytes: () => 0,
  });
  const found = observations.get('memory.available');
  assert.ok(found);
  return found;
}

test('the working set of the host is not available', async () => {
  const usage = { ...NO_USAGE, memory: { ...NO_USAGE.memory, workingSetBytes: GIB / 4 } };
  const { available, capacity } = await memoryWith(usage);
  assert.equal(capacity - available, GIB / 4);
});

test('a host whose cgroup cannot be read has the memory that the kernel reports, and not all of it', async () => {
  const { available } = await memoryWith(NO_USAGE);
  assert.ok(available > 0 && available < totalmem());
});
