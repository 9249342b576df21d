/**
 * The layout of file systems determines what the node removes under a signal and by which storage pods are ranked, as in the
 * kubelet (`buildSignalToRankFunc`, `buildSignalToNodeReclaimFuncs`).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { partsOn } from '../../../../../agent/resources/eviction/consumption.ts';
import { layoutOf, reclaimSteps } from '../../../../../agent/resources/eviction/signals.ts';
import type { Filesystem } from '../../../../../agent/resources/statistics/disk-usage.ts';

const filesystem = (device: string): Filesystem => ({ device }) as unknown as Filesystem;
const used = { usedBytes: 0, inodesUsed: 0 };
const layout = (root: string, images: string, containers: string): ReturnType<typeof layoutOf> =>
  layoutOf({
    root: filesystem(root),
    images: { filesystem: filesystem(images), used },
    containers: { filesystem: filesystem(containers), used },
  });

const ALL = ['layers', 'logs', 'volumes'];
const BOTH = ['dead-containers', 'unused-images'];

const layouts = {
  'one file system for all': {
    layout: layout('a', 'a', 'a'),
    nodefs: { steps: BOTH, parts: ALL },
    imagefs: { steps: BOTH, parts: ALL },
  },
  'images and writable layers on a file system of their own': {
    layout: layout('a', 'b', 'b'),
    nodefs: { steps: [], parts: ['logs', 'volumes'] },
    imagefs: { steps: BOTH, parts: ['layers'] },
  },
  'images on a file system of their own, writable layers on that of the root directory': {
    layout: layout('a', 'b', 'a'),
    nodefs: { steps: ['dead-containers'], parts: ALL },
    imagefs: { steps: ['unused-images'], parts: [] },
  },
  'images on the file system of the root directory, writable layers elsewhere': {
    layout: layout('a', 'a', 'b'),
    nodefs: { steps: BOTH, parts: ALL },
    imagefs: { steps: BOTH, parts: ALL },
  },
};

for (const [name, expected] of Object.entries(layouts))
  describe(name, () => {
    for (const place of ['nodefs', 'imagefs'] as const)
      for (const what of ['available', 'inodesFree'] as const)
        it(`${place}.${what}`, () => {
          const signal = `${place}.${what}` as const;
          assert.deepEqual(reclaimSteps(signal, expected.layout), expected[place].steps);
          assert.deepEqual(partsOn(signal, expected.layout), expected[place].parts);
        });

    it('containerfs ranks pods as the file system that holds the writable layers', () => {
      const { dedicatedImages, splitContainers } = expected.layout;
      const same = dedicatedImages && !splitContainers ? expected.imagefs : expected.nodefs;
      assert.deepEqual(partsOn('containerfs.available', expected.layout), same.parts);
      assert.deepEqual(reclaimSteps('containerfs.available', expected.layout), ['dead-containers']);
    });

    it('memory and processes are reclaimed from pods alone', () => {
      for (const signal of ['memory.available', 'allocatableMemory.available', 'pid.available'] as const)
        assert.deepEqual(reclaimSteps(signal, expected.layout), []);
    });
  });

it('a file system that cannot be read counts as that of the others', () => {
  const none = { filesystem: undefined, used };
  const read = layoutOf({ root: filesystem('a'), images: none, containers: none });
  assert.deepEqual(read, { dedicatedImages: false, splitContainers: false });
});
