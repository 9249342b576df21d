/** Tests the options of requests to the Docker Engine. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { containerCreateOptions } from '../../../../../agent/runtime/docker/container-options.ts';
import type { ContainerConfig } from '../../../../../agent/runtime/runtime.ts';
import { containerConfig, noLimits, sandboxConfig } from '../../../../fakes/runtime-config.ts';

const FACTS = {
  swapLimit: false,
  lowestOomScoreAdj: -1000,
  recursiveReadOnly: true,
  isPodman: false,
  seLinux: false,
};
const OPTIONS = { sandboxId: 's', labels: {}, name: 'c', seccompProfile: undefined, resolvConf: undefined };

const sandbox = sandboxConfig({ cgroupParent: '/kubepods' });
const config = (changes: Partial<ContainerConfig> = {}): ContainerConfig =>
  containerConfig({ resources: { ...noLimits, cpusetCpus: '1,5', cpusetMems: '0' }, ...changes });

test('a container is restricted to its CPUs and NUMA nodes', () => {
  const { HostConfig } = containerCreateOptions(sandbox, config(), OPTIONS, FACTS);
  assert.deepEqual([HostConfig?.CpusetCpus, HostConfig?.CpusetMems, HostConfig?.CpuQuota], ['1,5', '0', 0]);
  assert.equal(HostConfig?.DeviceRequests, undefined);
});

test("a container joins the pod's UTS namespace on Podman; on Docker the host name comes with the network", () => {
  const modes = [FACTS, { ...FACTS, isPodman: true }].map((facts) => {
    const { HostConfig } = containerCreateOptions(sandbox, config(), OPTIONS, facts);
    return [HostConfig?.NetworkMode, HostConfig?.UTSMode];
  });
  assert.deepEqual(modes, [
    ['container:s', undefined],
    ['container:s', 'container:s'],
  ]);
});

test('host devices and CDI devices are requested', () => {
  const devices = [{ hostPath: '/dev/null', containerPath: '/dev/thing', permissions: 'rw' }];
  const { HostConfig } = containerCreateOptions(
    sandbox,
    config({ devices, cdiDevices: ['example.com/gpu=a'] }),
    OPTIONS,
    FACTS,
  );
  assert.deepEqual(HostConfig?.Devices, [
    { PathOnHost: '/dev/null', PathInContainer: '/dev/thing', CgroupPermissions: 'rw' },
  ]);
  assert.deepEqual(HostConfig?.DeviceRequests, [{ Driver: 'cdi', DeviceIDs: ['example.com/gpu=a'] }]);
});

for (const [what, changes] of [
  ['a command of megabytes', { command: ['sh', '-c', 'x'.repeat(3_000_000)] }],
  ['thousands of arguments', { args: Array.from({ length: 50_000 }, () => 'abc') }],
  [
    'thousands of mounts',
    {
      mounts: Array.from({ length: 2_000 }, (_, at) => ({
        containerPath: `/m${at}`,
        hostPath: '/tmp',
        readonly: false,
        recursiveReadOnly: false,
        propagation: 'private',
        seLinuxRelabel: false,
      })),
    },
  ],
] as const satisfies readonly (readonly [string, Partial<ContainerConfig>])[])
  test(`a container with ${what} is not created, because each list of containers would have them`, () =>
    assert.throws(() => containerCreateOptions(sandbox, config(changes), OPTIONS, FACTS), {
      code: 'invalid',
      message: /more than 131072 characters/,
    }));

test('a container with a long script is created', () => {
  const args = ['-c', 'x'.repeat(100_000)];
  assert.deepEqual(containerCreateOptions(sandbox, config({ args }), OPTIONS, FACTS).Cmd, args);
});
