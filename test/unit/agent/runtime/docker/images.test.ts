import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { DockerClient } from '../../../../../agent/runtime/docker/docker-client.ts';
import { DockerImages } from '../../../../../agent/runtime/docker/images.ts';
import { RuntimeError } from '../../../../../agent/runtime/runtime.ts';

it('the digest of an image is read again after the engine did not answer', async () => {
  let isDown = true;
  const client = {
    docker: {},
    call: async () => {
      if (isDown) throw new RuntimeError('timeout', 'the container runtime did not answer');
      return { Id: 'sha256:1', RepoDigests: ['registry.test/app@sha256:2'], Size: 1 };
    },
  } as unknown as DockerClient;
  const images = new DockerImages(client);
  assert.equal(await images.reference('sha256:1'), 'sha256:1');
  isDown = false;
  assert.equal(await images.reference('sha256:1'), 'registry.test/app@sha256:2');
});
