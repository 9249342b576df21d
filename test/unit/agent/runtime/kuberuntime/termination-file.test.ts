/** The termination log of a container is a file of the agent, whatever the pod mounts there. */
import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import { type ConfigDeps, containerConfig } from '../../../../../agent/runtime/kuberuntime/container-config.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const mount = (containerPath: string): object => ({ containerPath, hostPath: '/volume', readonly: false });

for (const [terminationMessagePath, mounted] of [
  ['/made/log', ['/made/log']],
  ['/made/log', ['/made//log', '/made/./log', '/x/../made/log']],
  ['/made/../log', ['/log']],
  ['made/log', ['/made/log']],
] as const)
  test(`a container with the termination log ${terminationMessagePath} has a file of the agent there, and not ${mounted.join(', ')} of its pod`, async () => {
    const directory = temporaryFolder();
    const container = { name: 'c', image: 'i', terminationMessagePath } as Container;
    const pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [container] } };
    const { mounts } = await containerConfig(
      {
        ...{ pod: pod as unknown as Pod, container, kind: 'regular', attempt: 0, image: 'i' },
        ...{ imageInfo: undefined, podIps: [], volumeImages: new Map() },
      },
      {
        settings: {
          rootDirectory: directory,
          dns: { clusterDns: [], clusterDomain: '', resolvConf: '' },
          security: { seccompDirectory: directory, seccompDefault: false },
          resources: () => ({}),
        },
        services: { list: () => [] },
        volumes: {
          containerMounts: () => Promise.resolve({ mounts: [mount('/made'), ...mounted.map(mount)], devices: [] }),
          extraSupplementalGroups: () => [],
        },
        userNamespaces: { mapping: () => Promise.resolve(undefined) },
        hostIps: () => [],
        allocatable: () => ({}),
      } as unknown as ConfigDeps,
    );
    const own = mounts.filter(({ containerPath }) => containerPath !== '/etc/hosts');
    assert.deepEqual(
      own.map(({ containerPath }) => containerPath),
      ['/made', terminationMessagePath],
    );
    assert.equal(dirname(own[1]?.hostPath ?? ''), join(directory, 'pods/u/containers/c'));
  });
