/** Tests the options of requests to the Docker Engine. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { containerCreateOptions } from '../../../../../agent/runtime/docker/container-options.ts';
import type { ContainerConfig, SandboxConfig } from '../../../../../agent/runtime/runtime.ts';

const FACTS = {
  swapLimit: false,
  lowestOomScoreAdj: -1000,
  recursiveReadOnly: true,
  isPodman: false,
  seLinux: false,
};
const OPTIONS = { sandboxId: 's', labels: {}, name: 'c', seccompProfile: undefined, resolvConf: undefined };

const namespaces = { network: 'pod', pid: 'container', ipc: 'pod' } as const;
const sandbox = { namespaces, cgroupParent: '/kubepods', runtimeHandler: '' } as unknown as SandboxConfig;
const config = (changes: Partial<ContainerConfig> = {}): ContainerConfig => ({
  kind: 'regular',
  name: 'main',
  attempt: 0,
  image: 'i',
  userImage: 'i',
  command: [],
  args: [],
  workingDir: '',
  env: [],
  mounts: [],
  devices: [],
  cdiDevices: [],
  labels: {},
  annotations: {},
  logPath: '',
  stdin: false,
  stdinOnce: false,
  tty: false,
  resources: {
    cpuPeriodUs: 100_000,
    cpuQuotaUs: 0,
    cpuShares: 1024,
    memoryLimitBytes: 0,
    memorySwapLimitBytes: 0,
    oomScoreAdj: 0,
    cpusetCpus: '1,5',
    cpusetMems: '0',
    hugepageLimits: [],
    unified: {},
    pidsLimit: 0,
  },
  security: {
    addCapabilities: [],
    dropCapabilities: [],
    privileged: false,
    namespaces,
    supplementalGroups: [],
    supplementalGroupsPolicy: 'Merge',
    readOnlyRootFilesystem: false,
    noNewPrivileges: false,
    maskedPaths: 'default',
    seccomp: { type: 'RuntimeDefault' },
  },
  stopSignal: '',
  ...changes,
});

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
