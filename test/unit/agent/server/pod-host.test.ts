/** Tests the logs of containers that the runtime has removed. */
import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { it } from 'node:test';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import { createPodHost } from '../../../../agent/server/pod-host.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

it('answers a log of a removed container with the message of the kubelet, by the id that the status has', async () => {
  const pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u' },
    spec: { containers: [{ name: 'c' }] },
    status: {
      containerStatuses: [
        {
          name: 'c',
          state: { terminated: { exitCode: 1, containerID: 'fake://2' } },
          lastState: { terminated: { exitCode: 1, containerID: 'fake://1' } },
        },
      ],
    },
  } as unknown as Pod;
  const host = createPodHost({
    runtime: { listSandboxes: () => Promise.resolve([]), listContainers: () => Promise.resolve([]) },
    table: { byName: () => pod },
    clock: new FakeClock(),
  } as unknown as Parameters<typeof createPodHost>[0]);
  let text = '';
  const out = new Writable({
    write(chunk, _encoding, done) {
      text += String(chunk);
      done();
    },
  });
  const options = { follow: false, previous: true, timestamps: false };
  await host.logs({ namespace: 'ns', pod: 'p', container: 'c' }, options, out, new AbortController().signal);
  assert.equal(text, 'unable to retrieve container logs for fake://1');
});
