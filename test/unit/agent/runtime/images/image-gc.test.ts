import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import {
  bytesToFree,
  ImageGc,
  type ImageGcPolicy,
  type ImageSpace,
} from '../../../../../agent/runtime/images/image-gc.ts';
import type { ContainerStatus, ImageInfo } from '../../../../../agent/runtime/runtime.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const policy: ImageGcPolicy = { highThresholdPercent: 85, lowThresholdPercent: 80, minAgeMs: 120_000, maxAgeMs: 0 };
const image = (name: string, sizeBytes: number, pinned = false): ImageInfo => ({
  id: `sha256:${name}`,
  repoTags: [`example.org/${name}:1`],
  repoDigests: [],
  sizeBytes,
  user: '',
  pinned,
});

function setUp(given: {
  readonly images: ImageInfo[];
  readonly used?: readonly string[];
  readonly kept?: readonly string[];
  readonly space?: ImageSpace;
  readonly policy?: Partial<ImageGcPolicy>;
  /** The ids of images that cannot be removed. */
  readonly stuck?: readonly string[];
}) {
  const clock = new FakeClock();
  const removed: string[] = [];
  const nodeEvents: string[] = [];
  const used = new Set(given.used ?? []);
  const gc = new ImageGc({
    policy: { ...policy, ...given.policy },
    clock,
    logger: silentLogger,
    runtime: {
      listImages: () => Promise.resolve(given.images.filter((one) => !removed.includes(one.id))),
      listContainers: () =>
        Promise.resolve(
          [...used].map(
            (name) => ({ imageId: `sha256:${name}`, image: '', imageRef: '' }) as unknown as ContainerStatus,
          ),
        ),
      removeImage(id) {
        if (given.stuck?.includes(id) === true) return Promise.reject(new Error(`${id} is stuck`));
        removed.push(id);
        return Promise.resolve();
      },
    },
    space: () => Promise.resolve(given.space ?? { capacityBytes: 1000, availableBytes: 100 }),
    protectedImages: () => Promise.resolve(new Set(given.kept ?? [])),
    nodeEvent: (reason, message) => void nodeEvents.push(`${reason}: ${message}`),
  });
  return { clock, gc, removed, nodeEvents, used };
}

describe('image collection', () => {
  it('frees down to the low threshold from the high one on', () => {
    assert.equal(bytesToFree({ capacityBytes: 1000, availableBytes: 100 }, policy), 100);
    assert.equal(bytesToFree({ capacityBytes: 1000, availableBytes: 160 }, policy), undefined);
    const full = { ...policy, highThresholdPercent: 100 };
    assert.equal(bytesToFree({ capacityBytes: 1000, availableBytes: 1 }, full), 199);
    assert.equal(bytesToFree({ capacityBytes: 1000, availableBytes: 11 }, full), undefined);
  });

  it('removes the least recently used images, and no more than necessary', async () => {
    const { clock, gc, removed, used } = setUp({
      images: [image('old', 60), image('older', 60), image('newest', 60)],
      used: ['old', 'older', 'newest'],
      space: { capacityBytes: 1000, availableBytes: 100 },
    });
    await gc.collect().catch(() => undefined);
    for (const name of ['older', 'old']) {
      used.delete(name);
      await clock.advance(200_000);
      await gc.collect().catch(() => undefined);
    }
    used.delete('newest');
    await clock.advance(200_000);
    await gc.collect().catch(() => undefined);
    assert.deepEqual(removed, ['sha256:older', 'sha256:old', 'sha256:newest']);
  });

  it('never takes images in use, pinned ones and those that came with the installation', async () => {
    const { clock, gc, removed, nodeEvents } = setUp({
      images: [image('used', 500), image('pinned', 500, true), image('kept', 500), image('free', 10)],
      used: ['used'],
      kept: ['example.org/kept:1'],
    });
    await gc.collect().catch(() => undefined);
    await clock.advance(200_000);
    await assert.rejects(gc.collect(), /\(freed 10 bytes\)/);
    assert.deepEqual(removed, ['sha256:free']);
    assert.equal(
      nodeEvents.at(-1),
      "FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem (90% of 1000 B used). " +
        'Failed to free sufficient space by deleting unused images (freed 10 bytes). ' +
        'Investigate disk usage, as it could be used by active images, logs, volumes, or other data.',
    );
  });

  it('leaves images alone that are younger than the minimum age', async () => {
    const { clock, gc, removed } = setUp({ images: [image('fresh', 500)] });
    await gc.collect().catch(() => undefined);
    await clock.advance(60_000);
    await gc.deleteUnused();
    assert.deepEqual(removed, []);
    await clock.advance(60_000);
    await gc.deleteUnused();
    assert.deepEqual(removed, ['sha256:fresh']);
  });

  it('removes images that were unused for the maximum age, although there is room', async () => {
    const { clock, gc, removed } = setUp({
      images: [image('stale', 1), image('used', 1)],
      used: ['used'],
      space: { capacityBytes: 1000, availableBytes: 900 },
      policy: { maxAgeMs: 3_600_000 },
    });
    await gc.collect();
    await clock.advance(3_000_000);
    await gc.collect();
    assert.deepEqual(removed, []);
    await clock.advance(700_000);
    await gc.collect();
    assert.deepEqual(removed, ['sha256:stale']);
  });

  it('removes images that were never used before those that were', async () => {
    const { clock, gc, removed, used } = setUp({
      images: [image('was-used', 500), image('never', 500)],
      used: ['was-used'],
    });
    await gc.collect().catch(() => undefined);
    used.delete('was-used');
    await clock.advance(200_000);
    await gc.collect();
    assert.deepEqual(removed, ['sha256:never']);
  });

  it('removes an image that was never used as soon as the agent runs for the maximum age', async () => {
    const images = [image('early', 1)];
    const { clock, gc, removed } = setUp({
      images,
      space: { capacityBytes: 1000, availableBytes: 900 },
      policy: { maxAgeMs: 3_600_000 },
    });
    await gc.collect();
    await clock.advance(3_500_000);
    images.push(image('late', 1));
    await gc.collect();
    await clock.advance(200_000);
    await gc.collect();
    assert.deepEqual(removed, ['sha256:early', 'sha256:late']);
  });

  it('reports images that cannot be removed, and goes on with the others', async () => {
    const images = [image('a', 40), image('b', 40), image('c', 60)];
    const { clock, gc, removed, nodeEvents } = setUp({ images, stuck: ['sha256:a', 'sha256:b'] });
    await gc.collect().catch(() => undefined);
    nodeEvents.length = 0;
    await clock.advance(200_000);
    await assert.rejects(gc.collect(), {
      message:
        'wanted to free 100 bytes, but freed 60 bytes space with errors in image deletion: [sha256:a is stuck, sha256:b is stuck]',
    });
    assert.deepEqual(removed, ['sha256:c']);
    assert.deepEqual(nodeEvents, []);
    const old = setUp({ images: [image('a', 1)], stuck: ['sha256:a'], policy: { maxAgeMs: 3_600_000 } });
    await old.clock.advance(3_700_000);
    await assert.rejects(old.gc.collect(), {
      message: 'wanted to free images older than 1h0m0s, encountered errors in image deletion: sha256:a is stuck',
    });
  });

  it('leaves all images alone if neither usage nor age limits them', async () => {
    const { clock, gc, removed, nodeEvents } = setUp({
      images: [image('a', 1)],
      space: { capacityBytes: 0, availableBytes: 0 },
      policy: { highThresholdPercent: 100 },
    });
    await clock.advance(200_000);
    await gc.collect();
    assert.deepEqual([removed, nodeEvents], [[], []]);
  });

  it('reports an error if the filesystem has no size', async () => {
    const { gc, nodeEvents } = setUp({ images: [], space: { capacityBytes: 0, availableBytes: 0 } });
    await assert.rejects(gc.collect());
    assert.deepEqual(nodeEvents, ['InvalidDiskCapacity: invalid capacity 0 on image filesystem']);
  });
});
