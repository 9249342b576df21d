import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { StorageUsage } from '../../../../../agent/resources/statistics/storage-usage.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const MEGABYTE = 1_000_000;

async function ephemeralBytes(files: readonly string[]): Promise<number> {
  const root = temporaryFolder();
  for (const file of files) {
    const path = join(root, file);
    await mkdir(join(path, '..'), { recursive: true });
    await writeFile(path, Buffer.alloc(MEGABYTE, 1));
  }
  const pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u' },
    spec: { containers: [{ name: 'c' }], ephemeralContainers: [{ name: 'debug' }] },
  } as unknown as Pod;
  const usage = new StorageUsage({
    runtime: {
      containerStats: () => Promise.resolve([]),
      imageFilesystems: () => Promise.resolve({ images: [], containers: [] }),
    },
    clock: new FakeClock(),
    logger: silentLogger,
    rootDirectory: root,
    podLogsDirectory: join(root, 'logs'),
    volumes: { podVolumes: () => [] },
    pods: () => [pod],
    periodMs: 60_000,
  });
  return (await usage.pods()).get('u')?.ephemeral.usedBytes ?? 0;
}

for (const [what, file] of [
  ['/etc/hosts', 'pods/u/etc-hosts'],
  ['a termination log', 'pods/u/containers/c/1a2b3c4d'],
  ['the log of an ephemeral container', 'logs/ns_p_u/debug/0.log'],
] as const)
  it(`what a container writes to ${what} counts for the ephemeral storage of its pod`, async () => {
    const bytes = await ephemeralBytes([file]);
    assert.ok(bytes >= MEGABYTE && bytes < 1.1 * MEGABYTE, `${bytes} bytes`);
  });

it('a volume that its driver never measures keeps no other pod from being measured', async () => {
  const root = temporaryFolder();
  await mkdir(join(root, 'pods/quick/containers'), { recursive: true });
  await writeFile(join(root, 'pods/quick/containers/log'), Buffer.alloc(MEGABYTE, 1));
  const podOf = (uid: string): Pod =>
    ({ metadata: { name: uid, namespace: 'ns', uid }, spec: { containers: [] } }) as unknown as Pod;
  const clock = new FakeClock();
  const hanging = { name: 'v', path: '/v', ephemeral: false, measure: () => new Promise<never>(() => undefined) };
  const usage = new StorageUsage({
    runtime: {
      containerStats: () => Promise.resolve([]),
      imageFilesystems: () => Promise.resolve({ images: [], containers: [] }),
    },
    clock,
    logger: silentLogger,
    rootDirectory: root,
    podLogsDirectory: join(root, 'logs'),
    volumes: { podVolumes: (uid: string) => (uid === 'slow' ? [hanging] : []) } as never,
    pods: () => [podOf('slow'), podOf('quick')],
    periodMs: 60_000,
  });
  const measured = usage.pods();
  await clock.advance(5000);
  assert.ok(((await measured).get('quick')?.ephemeral.usedBytes ?? 0) >= MEGABYTE);
});

it('a driver whose numbers no client can decode does not spoil the page of the node', async () => {
  const measure = () =>
    Promise.resolve({
      ...{ driver: 'd', capacityBytes: 2 ** 64, availableBytes: -1, usedBytes: -1 },
      ...{ inodes: -1, inodesFree: Number.NaN, inodesUsed: 1.5 },
    });
  const pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [] } } as unknown as Pod;
  const usage = new StorageUsage({
    runtime: {
      containerStats: () => Promise.resolve([]),
      imageFilesystems: () => Promise.resolve({ images: [], containers: [] }),
    },
    clock: new FakeClock(),
    logger: silentLogger,
    rootDirectory: temporaryFolder(),
    podLogsDirectory: temporaryFolder(),
    volumes: { podVolumes: () => [{ name: 'v', path: '/v', ephemeral: false, measure }] } as never,
    pods: () => [pod],
    periodMs: 60_000,
  });
  const [volume] = (await usage.pods()).get('u')?.volumes ?? [];
  assert.deepEqual(volume?.usage, { usedBytes: 0, inodesUsed: 1 });
  assert.deepEqual(volume.filesystem, {
    ...{ capacityBytes: Number.MAX_SAFE_INTEGER, availableBytes: 0, usedBytes: 0 },
    ...{ inodes: 0, inodesFree: 0, device: 0 },
  });
});

it('an emptyDir in memory is listed, and does not count for the ephemeral storage of its pod', async () => {
  const path = temporaryFolder();
  await writeFile(join(path, 'file'), Buffer.alloc(MEGABYTE, 1));
  const spec = { containers: [], volumes: [{ name: 'v', emptyDir: { medium: 'Memory' } }] };
  const pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec } as unknown as Pod;
  const usage = new StorageUsage({
    runtime: {
      containerStats: () => Promise.resolve([]),
      imageFilesystems: () => Promise.resolve({ images: [], containers: [] }),
    },
    clock: new FakeClock(),
    logger: silentLogger,
    rootDirectory: temporaryFolder(),
    podLogsDirectory: temporaryFolder(),
    volumes: { podVolumes: () => [{ name: 'v', path, readOnly: false, ephemeral: false }] },
    pods: () => [pod],
    periodMs: 60_000,
  });
  const storage = (await usage.pods()).get('u');
  assert.deepEqual(
    storage?.volumes.map(({ name, memory }) => [name, memory]),
    [['v', true]],
  );
  assert.ok((storage.volumes[0]?.usage.usedBytes ?? 0) >= MEGABYTE);
  assert.equal(storage.ephemeral.usedBytes, 0);
});
