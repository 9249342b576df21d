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
