/**
 * Tests the runtime contract on a real Docker Engine. ORCHLET_TEST_DOCKER_SOCKET names its socket, ORCHLET_TEST_IMAGES an
 * archive with a pause image and a shell image.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { PAUSE_IMAGE } from '../../agent/runtime/images/pause-image.ts';
import { startDockerRuntime } from '../../agent/runtime/docker/docker-runtime.ts';
import { type Runtime, RuntimeError } from '../../agent/runtime/runtime.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { runtimeContract } from '../contract/runtime-contract.ts';
import { dockerSocket, imageArchive } from './container-runtimes.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const socket = dockerSocket;
const images = imageArchive;

if (socket === undefined || images === undefined) {
  test(
    'the Docker runtime',
    { skip: 'ORCHLET_TEST_DOCKER_SOCKET and ORCHLET_TEST_IMAGES are not set: no Docker Engine to test with' },
    () => undefined,
  );
} else {
  runtimeContract('Docker', async () => {
    const directory = temporaryFolder();
    const open = (sandboxImage: string): Promise<Runtime> =>
      startDockerRuntime({
        endpoint: `unix://${socket.replace(/^unix:\/\//, '')}`,
        nodeName: `contract-${process.pid}`,
        rootDirectory: directory,
        sandboxImage,
        clock: systemClock,
        logger: silentLogger,
      });
    const loader = await open('');
    const references = await loader.loadImages(images);
    // The first sandbox must pull its image itself, unless a pod of another test still uses the image.
    await loader.removeImage(PAUSE_IMAGE).catch((error: unknown) => {
      if (!(error instanceof RuntimeError && /conflict|is using/i.test(error.message))) throw error;
    });
    await loader.close();
    const image = references.find((reference) => !reference.includes('pause')) ?? '';
    const runtime = await open(PAUSE_IMAGE);
    return {
      runtime,
      image,
      directory: join(directory, 'logs'),
      simulated: false,
      restart: () => open(PAUSE_IMAGE),
      close: async () => {
        await runtime.close();
        await rm(directory, { recursive: true, force: true });
      },
    };
  });
}
