/** Tests the agent on a real Docker Engine, without an API server. */
import { test } from 'node:test';
import { startDockerRuntime } from '../../agent/runtime/docker/docker-runtime.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { dockerSocket, imageArchive, skipWithoutDocker } from './container-runtimes.ts';
import { runStaticPod } from './static-pod.ts';

test(
  'on Docker, a static pod runs from its file, outlives the agent and ends with its file',
  { skip: skipWithoutDocker },
  () => {
    const endpoint = `unix://${dockerSocket ?? ''}`;
    return runStaticPod({
      images: imageArchive ?? '',
      flags: { containerRuntime: 'docker', dockerEndpoint: endpoint },
      open: ({ nodeName, rootDir }) =>
        startDockerRuntime({
          endpoint,
          nodeName,
          rootDirectory: rootDir,
          sandboxImage: '',
          clock: systemClock,
          logger: silentLogger,
        }),
    });
  },
);
