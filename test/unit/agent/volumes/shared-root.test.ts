import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { MountPoint } from '../../../../agent/host/mount-table.ts';
import { type Mounter, hostMounter } from '../../../../agent/volumes/mounter.ts';
import { isBoundToItself, shareRoot, unshareRoot } from '../../../../agent/volumes/shared-root.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const point = (path: string, fields: Partial<MountPoint> = {}): MountPoint => ({
  ...{ path, type: 'ext4', source: '/dev/sda1', options: ['rw'], device: '8:1', isShared: false },
  ...fields,
});

/** Resolves to what was mounted for a root directory on a host with these mounts. */
async function mountedFor(root: string, points: readonly MountPoint[]): Promise<unknown[]> {
  const mounted: unknown[] = [];
  const mounter: Pick<Mounter, 'list' | 'mount'> = {
    list: () => Promise.resolve(points),
    mount: (options) => Promise.resolve(void mounted.push(options)),
  };
  await shareRoot(root, mounter);
  return mounted;
}

it('binds a root directory on a private mount to itself', async () => {
  const root = temporaryFolder();
  const wanted = [{ source: root, target: root, options: ['bind', 'rshared'] }];
  assert.deepEqual(await mountedFor(root, [point('/')]), wanted);
  assert.deepEqual(await mountedFor(root, [point('/', { isShared: true }), point(root)]), wanted);
  assert.deepEqual(await mountedFor(root, [point('/'), point(`${root}-other/pods`)]), wanted);
});

it('leaves a root directory on a shared mount', async () => {
  const root = temporaryFolder();
  assert.deepEqual(await mountedFor(root, [point('/', { isShared: true })]), []);
  assert.deepEqual(await mountedFor(root, [point('/'), point(root, { isShared: true })]), []);
});

it('hides no mounts of volumes', async () => {
  const root = temporaryFolder();
  await assert.rejects(mountedFor(root, [point('/'), point(`${root}/pods/u`)]), /\/pods\/u is mounted below it/);
});

it('removes the mount of its own alone, and only when nothing is mounted below it', async () => {
  const unmounted = async (points: readonly MountPoint[]): Promise<string[]> => {
    const paths: string[] = [];
    await unshareRoot('/agent', {
      list: () => Promise.resolve(points),
      unmount: (path) => Promise.resolve(void paths.push(path)),
    });
    return paths;
  };
  assert.deepEqual(await unmounted([point('/'), point('/agent')]), ['/agent']);
  assert.deepEqual(
    await unmounted([point('/'), point('/agent'), point('/agent/local-volumes', { device: '8:17' })]),
    [],
  );
  assert.deepEqual(await unmounted([point('/'), point('/agent', { device: '8:17' })]), []);
  assert.deepEqual(await unmounted([point('/')]), []);
});

it('distinguishes the mount from a disk that is mounted there', () => {
  const root = point('/');
  assert.equal(isBoundToItself('/agent', [root, point('/agent')]), true);
  assert.equal(isBoundToItself('/agent', [root, point('/agent', { device: '8:17' })]), false);
  assert.equal(isBoundToItself('/agent', [root]), false);
});

it('makes a mount that is shared', { skip: process.getuid?.() !== 0 && 'needs root' }, async () => {
  const root = temporaryFolder();
  await shareRoot(root, hostMounter);
  try {
    const points = await hostMounter.list();
    const own = points.find(({ path }) => path === root);
    // Where the temporary directory is shared already, there is no mount.
    assert.equal(own?.isShared ?? true, true);
    await shareRoot(root, hostMounter);
    assert.equal((await hostMounter.list()).length, points.length);
  } finally {
    await hostMounter.unmount(root);
  }
});
