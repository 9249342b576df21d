/** Tests the limits of all pods together, of the agent and of the system, on cgroup hierarchies that are plain files. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { NodeAllocatable } from '../../../../../agent/host/cgroups/node-allocatable.ts';
import { FileCgroups, handDownControllers, readCgroupMount } from '../../../../../agent/host/cgroups/file-cgroups.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const LIMITS = { milliCpu: 1500, memoryBytes: 2 ** 30, pids: 1000 };

async function hierarchy(version: 1 | 2, files: readonly string[]): Promise<string> {
  const root = temporaryFolder();
  if (version === 2) await writeFile(join(root, 'cgroup.controllers'), 'cpuset cpu io memory pids rdma\n');
  for (const file of files) {
    await mkdir(dirname(join(root, file)), { recursive: true });
    await writeFile(join(root, file), '0\n');
  }
  return root;
}

async function allocatable(mountPoint: string, root = ''): Promise<NodeAllocatable> {
  const manager = new FileCgroups(await readCgroupMount(mountPoint), { root, logger: silentLogger });
  return new NodeAllocatable({ manager, logger: silentLogger });
}

test('v1: all pods together are limited to the allocatable amounts, each agent of a host below its own root', async () => {
  const names = ['cpu/a/kubepods/cpu.shares', 'memory/a/kubepods/memory.limit_in_bytes', 'pids/a/kubepods/pids.max'];
  const root = await hierarchy(1, [...names, ...names.map((name) => name.replace('/a/', '/b/'))]);
  await (await allocatable(root, '/a')).enforcePods(LIMITS);
  const read = (name: string): Promise<string> => readFile(join(root, name), 'utf8');
  assert.deepEqual(await Promise.all(names.map(read)), ['1536', '1073741824', '1000']);
  assert.equal(await read('memory/b/kubepods/memory.limit_in_bytes'), '0\n');
});

test('v2: weights instead of shares, and every level hands its controllers down', async () => {
  const names = ['agents/a/kubepods/cpu.weight', 'agents/a/kubepods/memory.max', 'agents/a/kubepods/pids.max'];
  const root = await hierarchy(2, names);
  await writeFile(join(root, 'agents', 'cgroup.controllers'), 'cpu memory\n');
  await writeFile(join(root, 'agents', 'cgroup.subtree_control'), 'cpu\n');
  await (await allocatable(root, '/agents/a')).enforcePods(LIMITS);
  const read = (name: string): Promise<string> => readFile(join(root, name), 'utf8');
  assert.deepEqual(await Promise.all(names.map(read)), ['59', '1073741824', '1000']);
  assert.equal(await read('cgroup.subtree_control'), '+cpu +cpuset +memory +pids +io');
  assert.equal(await read('agents/cgroup.subtree_control'), '+memory', 'what is handed down already is not said again');
});

test('a missing path is created level by level', async () => {
  const root = await hierarchy(2, []);
  await handDownControllers(root, '/kubepods/burstable/podx');
  assert.ok(existsSync(join(root, 'kubepods/burstable/podx')));
});

test('cgroups of the agent and the system are held where they exist, and never made', async () => {
  const root = await hierarchy(1, [
    'cpu/agent/cpu.shares',
    'memory/agent/memory.limit_in_bytes',
    'pids/agent/pids.max',
  ]);
  const held = await allocatable(root);
  await held.enforce('/agent', LIMITS);
  assert.equal(await readFile(join(root, 'memory/agent/memory.limit_in_bytes'), 'utf8'), '1073741824');
  await held.enforce('/absent', LIMITS);
  assert.equal(existsSync(join(root, 'memory/absent')), false);
});

test('the enforcement of compressible resources alone does not limit memory', async () => {
  const root = await hierarchy(2, ['agent/cpu.weight', 'agent/memory.max']);
  await (await allocatable(root)).enforce('/agent', { ...LIMITS, memoryBytes: 0, pids: 0 });
  assert.equal(await readFile(join(root, 'agent/cpu.weight'), 'utf8'), '59');
  assert.equal(await readFile(join(root, 'agent/memory.max'), 'utf8'), '0\n');
});

test('classes of pods have weight by what they request', async () => {
  const root = await hierarchy(1, ['cpu/kubepods/burstable/cpu.shares', 'cpu/kubepods/besteffort/cpu.shares']);
  const pod = {
    metadata: { name: 'p', namespace: 'd', uid: 'u' },
    spec: { containers: [{ name: 'c', resources: { requests: { cpu: '500m' } } }] },
  };
  await (await allocatable(root)).updateQosShares([pod]);
  assert.equal(await readFile(join(root, 'cpu/kubepods/burstable/cpu.shares'), 'utf8'), '512');
  assert.equal(await readFile(join(root, 'cpu/kubepods/besteffort/cpu.shares'), 'utf8'), '2');
});

test('v1 with the hierarchy of v2 beside it: a cgroup is removed from both', async () => {
  const root = await hierarchy(1, ['unified/cgroup.controllers']);
  for (const base of ['cpu', 'unified']) await mkdir(join(root, base, 'kubepods/poda/container'), { recursive: true });
  const manager = new FileCgroups(await readCgroupMount(root), { root: '', logger: silentLogger });
  await manager.remove('/kubepods/poda');
  for (const base of ['cpu', 'unified']) assert.equal(existsSync(join(root, base, 'kubepods/poda')), false, base);
});
