import assert from 'node:assert/strict';
import { mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import {
  collectContainers,
  containersToRemove,
  type DeadContainerPolicy,
} from '../../../../../agent/runtime/kuberuntime/container-gc.ts';
import type { ContainerStatus } from '../../../../../agent/runtime/runtime.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { createFakeHost, FakeRuntime } from '../../../../fakes/fake-runtime.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const policy: DeadContainerPolicy = { keptPerContainer: 1, keptInTotal: -1, createdBeforeMs: Number.POSITIVE_INFINITY };

/**
 * Returns an exited container. The key is `uid/name/attempt`. By default, the container was created at the time of its attempt
 * number.
 */
const dead = (key: string, createdAtMs?: number): ContainerStatus => {
  const [uid = '', name = '', attempt = '0'] = key.split('/');
  return {
    id: key,
    name,
    attempt: Number(attempt),
    state: 'exited',
    createdAtMs: createdAtMs ?? Number(attempt),
    labels: { 'io.kubernetes.pod.uid': uid },
  } as unknown as ContainerStatus;
};
const gone = (
  containers: readonly ContainerStatus[],
  given: Partial<DeadContainerPolicy> = {},
  exists = (_uid: string): boolean => true,
): string[] =>
  containersToRemove(containers, exists, { ...policy, ...given })
    .map((container) => container.id)
    .toSorted();

describe('dead containers', () => {
  it('of an existing pod are removed except for the newest of each container', () => {
    assert.deepEqual(gone([dead('a/main/0'), dead('a/main/1'), dead('a/main/2'), dead('a/side/0')]), [
      'a/main/0',
      'a/main/1',
    ]);
  });

  it('of a removed pod are all removed', () => {
    assert.deepEqual(
      gone([dead('a/main/0'), dead('b/main/0')], {}, (uid) => uid === 'b'),
      ['a/main/0'],
    );
  });

  it('stay while they run, or are created and may be started', () => {
    const running = { ...dead('a/main/0'), state: 'running' } as ContainerStatus;
    const created = { ...dead('a/side/0'), state: 'created' } as ContainerStatus;
    assert.deepEqual(gone([running, created]), []);
    assert.deepEqual(
      gone([running, created], {}, () => false),
      ['a/side/0'],
      'nobody starts a container of a pod that is gone',
    );
  });

  it('stay while they are younger than the minimum age', () => {
    assert.deepEqual(
      gone([dead('a/main/0', 50), dead('a/main/1', 200), dead('a/main/2', 300)], {
        createdBeforeMs: 100,
        keptPerContainer: 0,
      }),
      ['a/main/0'],
    );
  });

  it('in total are as many as are kept, each container having its part, the oldest going first', () => {
    const containers = [dead('a/main/0', 1), dead('a/main/1', 2), dead('b/main/0', 3), dead('c/main/0', 4)];
    assert.deepEqual(gone(containers, { keptPerContainer: 2, keptInTotal: 2 }), ['a/main/0', 'a/main/1']);
    assert.deepEqual(gone(containers, { keptPerContainer: -1, keptInTotal: -1 }), []);
  });

  it('of removed pods take no part of the total', () => {
    const kept = [
      dead('a/main/0', 1),
      dead('a/main/1', 2),
      dead('b/main/0', 3),
      dead('b/main/1', 4),
      dead('b/main/2', 5),
    ];
    const removed = [dead('gone/main/0', 6), dead('gone/other/0', 7)];
    assert.deepEqual(
      gone([...kept, ...removed], { keptPerContainer: 3, keptInTotal: 4 }, (uid) => uid !== 'gone'),
      ['b/main/0', 'gone/main/0', 'gone/other/0'],
    );
  });
});

describe('logs', () => {
  it('of removed pods are removed with their directories, and no others; so are dangling links', async () => {
    const directory = temporaryFolder();
    const [logs, pods, links] = ['logs', 'pods', 'links'].map((name) => join(directory, name)) as [
      string,
      string,
      string,
    ];
    const folder = (uid: string): string => join(logs, `ns_pod_${uid}`);
    for (const uid of ['gone', 'here', 'foreign', 'empty']) await mkdir(join(folder(uid), 'c'), { recursive: true });
    for (const uid of ['gone', 'here', 'foreign']) await writeFile(join(folder(uid), 'c/0.log'), 'words');
    for (const uid of ['gone', 'here']) await mkdir(join(pods, uid), { recursive: true });
    await mkdir(links);
    for (const uid of ['gone', 'here']) await symlink(join(folder(uid), 'c/0.log'), join(links, uid));
    await collectContainers({
      runtime: new FakeRuntime(new FakeClock(), createFakeHost([])),
      logger: silentLogger,
      podLogsDirectory: logs,
      podsDirectory: pods,
      containerLogsDirectory: links,
      podExists: (uid) => uid === 'here',
    });
    assert.deepEqual((await readdir(logs)).toSorted(), ['ns_pod_foreign', 'ns_pod_here']);
    assert.deepEqual(await readdir(links), ['here']);
  });
});
