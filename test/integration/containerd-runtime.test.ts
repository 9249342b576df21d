/**
 * Tests the runtime contract on a real containerd. ORCHLET_TEST_CONTAINERD_SOCKET names its socket, ORCHLET_TEST_IMAGES an
 * archive with a pause image and a shell image.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startCriRuntime } from '../../agent/runtime/cri/cri-runtime.ts';
import type { Runtime } from '../../agent/runtime/runtime.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { runtimeContract } from '../contract/runtime-contract.ts';
import { containerdSocket, imageArchive } from './container-runtimes.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const socket = containerdSocket;
const images = imageArchive;

if (socket === undefined || images === undefined) {
  test(
    'the containerd runtime',
    { skip: 'ORCHLET_TEST_CONTAINERD_SOCKET and ORCHLET_TEST_IMAGES are not set: no containerd to test with' },
    () => undefined,
  );
} else {
  runtimeContract('containerd', async () => {
    const directory = temporaryFolder();
    const open = (): Promise<Runtime> =>
      startCriRuntime({ endpoint: `unix://${socket}`, clock: systemClock, logger: silentLogger });
    const runtime = await open();
    const references = await runtime.loadImages(images);
    return {
      runtime,
      image: references.find((reference) => !reference.includes('pause')) ?? '',
      directory: join(directory, 'logs'),
      simulated: false,
      restart: open,
      close: async () => {
        await runtime.close();
        await rm(directory, { recursive: true, force: true });
      },
    };
  });
}
