/** Tests that a container that hangs in the engine only delays requests about its own pod. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ContainerStates } from '../../../../../agent/runtime/docker/container-states.ts';
import type { DockerClient } from '../../../../../agent/runtime/docker/docker-client.ts';
import type { DockerImages } from '../../../../../agent/runtime/docker/images.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const labels = (pod: string): Record<string, string> => ({
  'io.kubernetes.docker.type': 'container',
  'io.kubernetes.pod.uid': pod,
  'io.kubernetes.container.name': 'main',
});

/** Returns two running containers. The inspection of one never returns. */
function states(clock: FakeClock): ContainerStates {
  const entries = ['well', 'hung'].map((id) => ({
    Id: id,
    State: 'running',
    Created: 1,
    ImageID: 'i',
    Labels: labels(id),
  }));
  const inspected = {
    Id: 'well',
    Created: '2026-01-01T00:00:00Z',
    Image: 'i',
    Config: { Labels: labels('well') },
    State: { Running: true, Status: 'running', StartedAt: '2026-01-01T00:00:01Z' },
    HostConfig: {},
  };
  const client = {
    call: (_what: string, run: () => Promise<unknown>) => run(),
    docker: {
      listContainers: ({ filters }: { filters: { label: readonly string[] } }) => {
        const pod = filters.label.find((label) => label.startsWith('io.kubernetes.pod.uid='))?.split('=')[1];
        return Promise.resolve(entries.filter((entry) => pod === undefined || entry.Id === pod));
      },
      getContainer: (id: string) => ({
        inspect: () => (id === 'well' ? Promise.resolve(inspected) : new Promise(() => undefined)),
      }),
    },
  };
  return new ContainerStates({
    client: client as unknown as DockerClient,
    clock,
    images: { reference: () => Promise.resolve('i') } as unknown as DockerImages,
    instance: 'x',
    logSettled: () => Promise.resolve(),
  });
}

describe('a container that hangs', () => {
  it('has the status of its list entry in a list of all containers', async () => {
    const clock = new FakeClock();
    const looking = states(clock).containers({});
    await clock.advance(5_000);
    const found = await looking;
    assert.deepEqual(
      found.map(({ id, state, startedAtMs, labels: { 'io.kubernetes.pod.uid': pod } }) => [
        id,
        state,
        startedAtMs > 0,
        pod,
      ]),
      [
        ['well', 'running', true, 'well'],
        ['hung', 'running', false, 'hung'],
      ],
    );
  });

  it('does not delay a list of another pod', async () => {
    const found = await states(new FakeClock()).containers({ podUid: 'well' });
    assert.deepEqual(
      found.map(({ id }) => id),
      ['well'],
    );
  });
});
