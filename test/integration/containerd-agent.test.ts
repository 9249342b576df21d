/** Tests the agent on a real containerd, without an API server. */
import { test } from 'node:test';
import { startCriRuntime } from '../../agent/runtime/cri/cri-runtime.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { containerdSocket, imageArchive, skipWithoutContainerd } from './container-runtimes.ts';
import { runStaticPod } from './static-pod.ts';

test(
  'on containerd, a static pod runs from its file, outlives the agent and ends with its file',
  { skip: skipWithoutContainerd },
  () => {
    const endpoint = `unix://${containerdSocket ?? ''}`;
    return runStaticPod({
      images: imageArchive ?? '',
      flags: { containerRuntimeEndpoint: endpoint },
      open: () => startCriRuntime({ endpoint, clock: systemClock, logger: silentLogger }),
    });
  },
);
