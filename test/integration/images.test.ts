/**
 * Tests the image store of real runtimes: the command imports archives, unused images are removed, and used, imported and
 * pinned images stay.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { hostArchitecture, imageArchive } from '../../agent/runtime/images/image-archive.ts';
import { importedImages } from '../../agent/runtime/images/imported-images.ts';
import { ImageGc, type ImageGcPolicy, type ImageSpace } from '../../agent/runtime/images/image-gc.ts';
import { startCriRuntime } from '../../agent/runtime/cri/cri-runtime.ts';
import { startDockerRuntime } from '../../agent/runtime/docker/docker-runtime.ts';
import type { Runtime } from '../../agent/runtime/runtime.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { containerOf, sandboxOf } from '../contract/runtime-contract.ts';
import { FakeClock } from '../fakes/fake-clock.ts';
import { containerdSocket, dockerSocket, skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ROOT = join(import.meta.dirname, '../..');
const NEVER_FULL: ImageSpace = { capacityBytes: 1_000_000, availableBytes: 1_000_000 };
const FULL: ImageSpace = { capacityBytes: 1_000_000, availableBytes: 0 };
const POLICY: ImageGcPolicy = { highThresholdPercent: 85, lowThresholdPercent: 80, minAgeMs: 60_000, maxAgeMs: 0 };

for (const [on, skip] of [
  ['docker', skipWithoutDocker],
  ['containerd', skipWithoutContainerd],
] as const) {
  describe(`the image store of ${on}`, { skip, timeout: 240_000 }, () => {
    const mark = `gc-${process.pid}`;
    const name = (what: string): string => `orchlet.test/${mark}-${what}:1`;
    let directory = '';
    let runtime: Runtime;

    /** Writes an archive with an image for each list of names. All images differ in their content. */
    const write = async (file: string, what: readonly (readonly string[])[]): Promise<string> => {
      const archive = join(directory, file);
      const images = what.map((names) => ({
        references: names.map(name),
        files: [
          { path: 'content', type: 'file', content: Buffer.from(`${mark} ${names.join()}`), mode: 0o644 } as const,
        ],
        command: ['/content'],
        env: [],
      }));
      await writeFile(archive, await imageArchive(images, hostArchitecture()));
      return archive;
    };
    const load = async (...what: readonly (readonly string[])[]): Promise<void> => {
      await runtime.loadImages(await write('more.tar', what));
    };
    const isThere = async (what: string): Promise<boolean> => (await runtime.imageStatus(name(what))) !== undefined;
    /** Images of other tests are ignored. */
    const collector = (
      space: () => ImageSpace,
      given: { readonly policy?: Partial<ImageGcPolicy>; readonly also?: string } = {},
    ) => {
      const clock = new FakeClock();
      const nodeEvents: string[] = [];
      const gc = new ImageGc({
        policy: { ...POLICY, ...given.policy },
        runtime: {
          listImages: async () =>
            (await runtime.listImages()).filter(
              ({ repoTags, pinned }) => pinned || repoTags.some((tag) => tag.includes(mark) || tag === given.also),
            ),
          listContainers: () => runtime.listContainers(),
          removeImage: (id) => runtime.removeImage(id),
        },
        clock,
        logger: silentLogger,
        space: () => Promise.resolve(space()),
        protectedImages: async () => new Set(await importedImages(join(directory, 'root'))),
        nodeEvent: (reason) => void nodeEvents.push(reason),
      });
      return { clock, gc, nodeEvents };
    };

    before(async () => {
      directory = temporaryFolder();
      const common = { clock: systemClock, logger: silentLogger };
      runtime =
        on === 'docker'
          ? await startDockerRuntime({
              ...common,
              endpoint: `unix://${dockerSocket ?? ''}`,
              nodeName: 'images',
              rootDirectory: directory,
              sandboxImage: 'orchlet.local/pause:1',
            })
          : await startCriRuntime({ ...common, endpoint: `unix://${containerdSocket ?? ''}` });
      await runtime.loadImages(process.env['ORCHLET_TEST_IMAGES'] ?? '');
    });
    after(async () => {
      for (const { id, repoTags } of await runtime.listImages())
        if (repoTags.some((tag) => tag.includes(mark))) await runtime.removeImage(id);
      await runtime.close();
      await rm(directory, { recursive: true, force: true });
    });

    test('imports an archive by the command, which prints its images and pins them', async () => {
      const archive = await write('imported.tar', [['imported', 'alias'], ['second']]);
      const endpoint =
        on === 'docker'
          ? ['--container-runtime', 'docker', '--docker-endpoint', `unix://${dockerSocket ?? ''}`]
          : ['--container-runtime-endpoint', `unix://${containerdSocket ?? ''}`];
      const imported = (file: string) =>
        spawnSync(
          join(ROOT, 'bin/orchlet'),
          ['images', 'import', file, '--root-dir', join(directory, 'root'), ...endpoint],
          {
            encoding: 'utf8',
          },
        );
      const done = imported(archive);
      assert.equal(done.status, 0, done.stderr);
      assert.deepEqual(done.stdout.trim().split('\n').toSorted(), [name('alias'), name('imported'), name('second')]);
      assert.equal(await isThere('imported'), true);
      const { gc, clock } = collector(() => FULL);
      await gc.deleteUnused();
      await clock.advance(100_000);
      await gc.deleteUnused();
      for (const what of ['imported', 'alias', 'second']) assert.equal(await isThere(what), true, what);
      const wrong = imported(join(ROOT, 'package.json'));
      assert.equal(wrong.status, 1);
      assert.equal(wrong.stderr.trim().split('\n').length, 1, wrong.stderr);
    });

    test('removes unused images of sufficient age with all their names when it is full', async () => {
      await load(['unused'], ['named', 'twice']);
      const { gc, clock, nodeEvents } = collector(() => FULL);
      await gc.collect().catch(() => undefined);
      assert.equal(await isThere('unused'), true, 'it may be for a pod that has not started yet');
      await clock.advance(POLICY.minAgeMs);
      await gc.collect().catch(() => undefined);
      for (const what of ['unused', 'named', 'twice']) assert.equal(await isThere(what), false, what);
      assert.deepEqual(nodeEvents, ['FreeDiskSpaceFailed', 'FreeDiskSpaceFailed'], 'there was not enough to free');
    });

    test('removes images that were unused for too long, even if it is not full', async () => {
      await load(['aged']);
      const { gc, clock } = collector(() => NEVER_FULL, { policy: { maxAgeMs: 120_000 } });
      await gc.collect();
      await clock.advance(120_000);
      await gc.collect();
      assert.equal(await isThere('aged'), true);
      await clock.advance(1);
      await gc.collect();
      assert.equal(await isThere('aged'), false);
    });

    test('keeps the images of running and terminated containers, and those that the runtime has pinned', async () => {
      const config = sandboxOf(join(directory, 'logs'), `images-${process.pid}`);
      const sandbox = await runtime.runSandbox(config);
      try {
        const demo = (await runtime.imageStatus(DEMO_IMAGE))?.id ?? '';
        const id = await runtime.createContainer(sandbox, config, containerOf(demo, 'c', ['sleep', '1000'], {}));
        await runtime.startContainer(id);
        // containerd 1.7 and later pin the pause image.
        const pinned = (await runtime.listImages()).filter((image) => image.pinned);
        const { gc, clock } = collector(() => FULL, { also: DEMO_IMAGE });
        for (const state of ['running', 'ended']) {
          if (state === 'ended') await runtime.stopContainer(id, 0);
          await gc.deleteUnused();
          await clock.advance(100_000);
          await gc.deleteUnused();
          assert.notEqual(await runtime.imageStatus(DEMO_IMAGE), undefined, state);
        }
        for (const image of pinned) assert.notEqual(await runtime.imageStatus(image.id), undefined);
      } finally {
        await runtime.stopSandbox(sandbox);
        await runtime.removeSandbox(sandbox);
      }
    });
  });
}
