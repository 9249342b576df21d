import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ContainerStatusJson } from '../../../../../agent/model/pod.ts';
import { chooseLog, whyNoLog } from '../../../../../agent/runtime/logs/choose-log.ts';
import type { ContainerStatus } from '../../../../../agent/runtime/runtime.ts';

const attempt = (id: string, state: ContainerStatus['state']): ContainerStatus =>
  ({ id, state }) as unknown as ContainerStatus;
const waiting = (reason: string): ContainerStatusJson =>
  ({ state: { waiting: { reason } } }) as unknown as ContainerStatusJson;
const running = { state: { running: {} } } as unknown as ContainerStatusJson;
const terminated = { state: { terminated: { exitCode: 1 } } } as unknown as ContainerStatusJson;

describe('the log that is meant', () => {
  for (const [what, states, status, now, before] of [
    ['of one that has not run', [], waiting('ContainerCreating'), undefined, undefined],
    ['of one that was created only', ['created'], waiting('ContainerCreating'), undefined, undefined],
    ['of the first run', ['running'], running, '0', undefined],
    ['of the second run', ['running', 'exited'], running, '0', '1'],
    ['of one that has ended for good', ['exited'], terminated, '0', undefined],
    ['of one that has ended for good after two runs', ['exited', 'exited'], terminated, '0', '1'],
    ['of one that waits after its first run', ['exited'], waiting('CrashLoopBackOff'), '0', '0'],
    ['of one that waits after two runs', ['exited', 'exited'], waiting('CrashLoopBackOff'), '0', '0'],
    ['of one whose next run is being made', ['created', 'exited'], waiting('CrashLoopBackOff'), '1', '1'],
  ] as const) {
    it(what, () => {
      const attempts = states.map((state, index) => attempt(String(index), state));
      assert.equal(chooseLog(attempts, status, { previous: false })?.id, now);
      assert.equal(chooseLog(attempts, status, { previous: true })?.id, before);
    });
  }

  it("does not exist while the image cannot be pulled, with the kubelet's message", () =>
    assert.deepEqual(['ErrImagePull', 'ImagePullBackOff', 'PodInitializing'].map(waiting).map(whyNoLog), [
      "image can't be pulled",
      'trying and failing to pull image',
      'PodInitializing',
    ]));
});
