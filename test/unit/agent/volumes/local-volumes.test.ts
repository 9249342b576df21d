/** Local volumes of a node: what is made and removed is below the root, whatever the names and links. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readlinkSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { LocalVolumes } from '../../../../agent/volumes/local-volumes.ts';
import type { FolderLimits } from '../../../../agent/host/project-quota.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let base = '';
let root = '';
let stop: AbortController;
let volumes: LocalVolumes;
let running: Promise<void>;

/** Folders with limits in bytes. */
let limited: Map<string, bigint>;
let problem = '';
const limits: FolderLimits = {
  problem: () => Promise.resolve(problem),
  limit: async (folder, bytes) => void limited.set(folder, bytes),
  lift: async (folder) => void limited.set(folder, 0n),
};

function start(): void {
  stop = new AbortController();
  volumes = new LocalVolumes({ root, limits, clock: systemClock, logger: silentLogger });
  running = volumes.run(stop.signal);
}

beforeEach(() => {
  base = temporaryFolder();
  root = join(base, 'volumes');
  limited = new Map();
  problem = '';
  start();
});
afterEach(async () => {
  stop.abort();
  await running;
});

const modeOf = (path: string): number => statSync(path).mode & 0o7777;

test('a volume is a folder that any user of a container may write to, below a root that nobody else enters', async () => {
  const { path } = await volumes.create('pvc-1');
  assert.equal(path, join(root, 'pvc-1'));
  assert.deepEqual([modeOf(path), modeOf(root)], [0o777, 0o700]);
});

test('a volume that exists keeps its content and mode', async () => {
  const { path } = await volumes.create('pvc-1');
  writeFileSync(join(path, 'data'), 'x');
  assert.equal((await volumes.create('pvc-1')).path, path);
  assert.deepEqual(readdirSync(path), ['data']);
});

test('a removed volume is renamed at once, and its content is removed afterwards', async () => {
  const { path } = await volumes.create('pvc-1');
  mkdirSync(join(path, 'a/b'), { recursive: true });
  writeFileSync(join(path, 'a/b/c'), 'x');
  await volumes.remove('pvc-1');
  assert.equal(existsSync(path), false);
  await until('an empty root', () => readdirSync(root).length === 0);
  await volumes.remove('pvc-1');
});

test('the rest of a removed volume that a killed agent left is removed after the next start', async () => {
  await volumes.create('pvc-1');
  stop.abort();
  await running;
  await volumes.remove('pvc-1');
  assert.equal(readdirSync(root).length, 1);
  start();
  await until('an empty root', () => readdirSync(root).length === 0);
});

test('links in a volume are removed, and what they lead to stays', async () => {
  const outside = join(base, 'outside');
  mkdirSync(outside);
  writeFileSync(join(outside, 'precious'), 'x');
  const { path } = await volumes.create('pvc-1');
  symlinkSync(outside, join(path, 'link'));
  await volumes.remove('pvc-1');
  await until('an empty root', () => readdirSync(root).length === 0);
  assert.deepEqual(readdirSync(outside), ['precious']);
});

test('a link in the place of a volume is neither used nor followed', async () => {
  const outside = join(base, 'outside');
  mkdirSync(outside);
  writeFileSync(join(outside, 'precious'), 'x');
  mkdirSync(root);
  symlinkSync(outside, join(root, 'pvc-1'));
  await assert.rejects(volumes.create('pvc-1'), { code: 'ENOTDIR' });
  assert.equal(readlinkSync(join(root, 'pvc-1')), outside);
  await volumes.remove('pvc-1');
  await until('an empty root', () => readdirSync(root).length === 0);
  assert.deepEqual(readdirSync(outside), ['precious']);
});

for (const name of ['..', '.', '', '/etc', '../outside', 'a/b', '.removed-x', 'A', 'a\0b', 'a'.repeat(254)]) {
  test(`${JSON.stringify(name.slice(0, 20))} is not the name of a volume`, async () => {
    await assert.rejects(volumes.create(name), { reason: 'BadRequest' });
    await assert.rejects(volumes.remove(name), { reason: 'BadRequest' });
    assert.equal(existsSync(root), false);
  });
}

test('a volume is limited to its capacity, which may change, and a removed one is not', async () => {
  const { path, unlimited } = await volumes.create('pvc-1', 1_000n);
  assert.equal(unlimited, '');
  assert.equal(limited.get(path), 1_000n);
  await volumes.create('pvc-1', 2_000n);
  assert.equal(limited.get(path), 2_000n);
  await volumes.remove('pvc-1');
  const [[removed, bytes] = []] = [...limited].filter(([folder]) => folder !== path);
  assert.match(removed ?? '', /\.removed-/);
  assert.equal(bytes, 0n);
});

test('a volume that cannot be limited is made, with the reason', async () => {
  problem = '/ (ext4) is mounted without project quotas (prjquota)';
  const { path, unlimited } = await volumes.create('pvc-1', 1_000n);
  assert.equal(unlimited, problem);
  assert.ok(existsSync(path));
  await volumes.remove('pvc-1');
  assert.equal(limited.size, 0);
});
