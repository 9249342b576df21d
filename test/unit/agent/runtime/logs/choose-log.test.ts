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

  const lost = {
    state: { waiting: { reason: 'RestartingAllContainers' } },
    lastState: { terminated: { exitCode: 137 } },
  };
  for (const [what, status, previous, message] of [
    ['waits for its image', waiting('ErrImagePull'), false, "C in P is waiting to start: image can't be pulled"],
    ['waits after', waiting('ImagePullBackOff'), false, 'C in P is waiting to start: trying and failing to pull image'],
    ['waits for others', waiting('PodInitializing'), false, 'C in P is waiting to start: PodInitializing'],
    ['has no status', undefined, false, 'C in P is not available'],
    ['has no status, for its previous run', undefined, true, 'C in P is not available'],
    ['has not run before', running, true, 'previous terminated C in P not found'],
    ['was never found when its pod terminated', terminated, false, 'C in P is terminated'],
    ['was removed with all others', lost as unknown as ContainerStatusJson, false, 'C in P is terminated'],
  ] as const) {
    it(`does not exist of one that ${what}, with the kubelet's message`, () =>
      assert.equal(
        whyNoLog({ pod: 'p', container: 'c' }, status, { previous }),
        message.replace('C', 'container "c"').replace('P', 'pod "p"'),
      ));
  }
});
