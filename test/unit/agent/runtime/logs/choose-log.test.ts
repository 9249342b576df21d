import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ContainerStatusJson } from '../../../../../agent/base/model/pod.ts';
import { chooseLog } from '../../../../../agent/runtime/logs/choose-log.ts';

const status = (fields: object): ContainerStatusJson => fields as unknown as ContainerStatusJson;
const waiting = (reason: string): object => ({ state: { waiting: { reason } } });
const ended = (containerID: string): object => ({ terminated: { exitCode: 1, containerID } });
const running = { state: { running: {} }, containerID: 'r://now' };

describe('the log that is meant', () => {
  for (const [what, fields, now, before] of [
    ['of the first run', running, 'r://now', undefined],
    ['of the second run', { ...running, lastState: ended('r://before') }, 'r://now', 'r://before'],
    ['of one that has ended', { state: ended('r://now') }, 'r://now', undefined],
    [
      'of one that has ended twice',
      { state: ended('r://now'), lastState: ended('r://before') },
      'r://now',
      'r://before',
    ],
    ['of one that waits', { ...waiting('CrashLoopBackOff'), lastState: ended('r://now') }, 'r://now', 'r://now'],
    [
      'of one whose last run got lost',
      { state: { terminated: { exitCode: 137 } }, lastState: ended('r://now') },
      'r://now',
      'r://now',
    ],
  ] as const) {
    it(what, () => {
      const chosen = (previous: boolean): unknown => {
        const found = chooseLog({ pod: 'p', container: 'c' }, status(fields), { previous });
        return found.kind === 'container' ? found.containerID : undefined;
      };
      assert.deepEqual([chosen(false), chosen(true)], [now, before]);
    });
  }

  const lost = { ...waiting('RestartingAllContainers'), lastState: { terminated: { exitCode: 137 } } };
  for (const [what, fields, previous, message] of [
    ['waits for its image', waiting('ErrImagePull'), false, "C in P is waiting to start: image can't be pulled"],
    ['waits after', waiting('ImagePullBackOff'), false, 'C in P is waiting to start: trying and failing to pull image'],
    ['waits for others', waiting('PodInitializing'), false, 'C in P is waiting to start: PodInitializing'],
    ['has no status', undefined, false, 'C in P is not available'],
    ['has no status, for its previous run', undefined, true, 'C in P is not available'],
    ['has not run before', running, true, 'previous terminated C in P not found'],
    [
      'was never found when its pod terminated',
      { state: { terminated: { exitCode: 137 } } },
      false,
      'C in P is terminated',
    ],
    ['was removed with all others', lost, false, 'C in P is terminated'],
  ] as const) {
    it(`does not exist of one that ${what}, with the kubelet's message`, () =>
      assert.deepEqual(
        chooseLog({ pod: 'p', container: 'c' }, fields === undefined ? undefined : status(fields), { previous }),
        { kind: 'none', problem: message.replace('C', 'container "c"').replace('P', 'pod "p"') },
      ));
  }
});
