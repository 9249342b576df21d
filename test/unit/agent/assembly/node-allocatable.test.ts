/** Tests the events of a node whose cgroups for reserved resources are limited, or are missing. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { enforceAllocatable } from '../../../../agent/assembly/node-allocatable.ts';
import type { CgroupManager } from '../../../../agent/host/cgroups/cgroup-resources.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('reserved cgroups are reported once: those that are limited, and those that do not exist', async () => {
  const clock = new FakeClock();
  const flags = {
    enforceNodeAllocatable: ['pods', 'kube-reserved', 'system-reserved'],
    kubeReservedCgroup: '/kube',
    systemReservedCgroup: '/absent',
    kubeReserved: { cpu: '100m' },
    systemReserved: { cpu: '100m' },
    reservedCpus: '',
    cgroupsPerQos: true,
  };
  const manager = {
    name: (parts: readonly string[]) => `/${parts.join('/')}`,
    set: () => Promise.resolve(),
    update: (name: string) => Promise.resolve(name !== '/absent'),
  } as unknown as CgroupManager;
  const events: string[] = [];
  const enforced = enforceAllocatable(
    { flags, clock, logger: silentLogger } as never,
    manager,
    { active: () => [] },
    (reason, message, type) => void events.push(`${type} ${reason} ${message}`),
  );
  const stop = new AbortController();
  const running = enforced.run(stop.signal);
  await clock.settle();
  await clock.advance(60_000);
  stop.abort();
  await running;
  assert.deepEqual(events, [
    'Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods',
    'Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube',
    'Warning FailedNodeAllocatableEnforcement Failed to enforce System Reserved Cgroup Limits on "/absent": "/absent" cgroup does not exist',
  ]);
});
