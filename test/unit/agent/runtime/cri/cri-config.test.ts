/** Tests the CRI messages of sandboxes and containers: what a container may do and see is decided here. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { containerMessage, sandboxMessage } from '../../../../../agent/runtime/cri/cri-config.ts';
import type { ContainerConfig, Mount } from '../../../../../agent/runtime/runtime.ts';
import type { ContainerSecurity } from '../../../../../agent/runtime/runtime-security.ts';
import {
  containerConfig,
  defaultSecurity,
  noLimits,
  ownNamespaces,
  sandboxConfig,
} from '../../../../fakes/runtime-config.ts';

const MAPPING = {
  uids: { hostId: 65536, containerId: 0, length: 65536 },
  gids: { hostId: 7, containerId: 0, length: 9 },
};
const SECURITY: ContainerSecurity = {
  ...defaultSecurity,
  addCapabilities: ['NET_ADMIN'],
  dropCapabilities: ['ALL'],
  supplementalGroups: [5],
  supplementalGroupsPolicy: 'Strict',
  readOnlyRootFilesystem: true,
  noNewPrivileges: true,
};
const MOUNT: Mount = {
  containerPath: '/data',
  hostPath: '/host',
  readonly: true,
  recursiveReadOnly: true,
  propagation: 'host-to-container',
  seLinuxRelabel: false,
};

const container = (security: Partial<ContainerSecurity> = {}, rest: Partial<ContainerConfig> = {}) =>
  containerMessage(
    containerConfig({
      name: 'c',
      attempt: 2,
      env: [{ name: 'A', value: 'é' }],
      cdiDevices: ['vendor.com/gpu=0'],
      resources: { ...noLimits, hugepageLimits: [{ pageSize: '2MB', limitBytes: 4 }] },
      security: { ...SECURITY, ...security },
      ...rest,
    }),
  );
const securityOf = (security: Partial<ContainerSecurity>) =>
  container(security).linux?.securityContext ?? assert.fail();

test('a container sees neither masked nor writable kernel files, unless its spec unmasks them', () => {
  const byDefault = securityOf({});
  assert.ok(byDefault.maskedPaths?.includes('/proc/kcore') === true);
  assert.ok(byDefault.readonlyPaths?.includes('/proc/sys') === true);
  const unmasked = securityOf({ maskedPaths: 'none' });
  assert.deepEqual([unmasked.maskedPaths, unmasked.readonlyPaths], [[], []]);
  const own = securityOf({ maskedPaths: ['/proc/secret'] });
  assert.deepEqual(own.maskedPaths, ['/proc/secret']);
  assert.ok(own.readonlyPaths?.includes('/proc/sys') === true);
});

test('the user 0 is sent, while a user that is not set is absent', () => {
  assert.deepEqual(securityOf({ runAsUser: 0, runAsGroup: 0 }).runAsUser, { value: 0 });
  const unset = securityOf({});
  for (const field of ['runAsUser', 'runAsGroup', 'runAsUsername', 'selinuxOptions', 'apparmor'] as const)
    assert.ok(!(field in unset), field);
});

test('profiles, groups and capabilities have the numbers and names of CRI', () => {
  const { seccomp, apparmor, selinuxOptions, supplementalGroupsPolicy, capabilities, noNewPrivs } = securityOf({
    seccomp: { type: 'Localhost', localhost: '/profiles/a.json' },
    appArmor: { type: 'Unconfined' },
    seLinux: { level: 's0' },
  });
  assert.deepEqual(seccomp, { profileType: 2, localhostRef: '/profiles/a.json' });
  assert.deepEqual(apparmor, { profileType: 1, localhostRef: '' });
  assert.deepEqual(selinuxOptions, { user: '', role: '', type: '', level: 's0' });
  assert.deepEqual(capabilities, { addCapabilities: ['NET_ADMIN'], dropCapabilities: ['ALL'] });
  assert.deepEqual([supplementalGroupsPolicy, noNewPrivs], [1, true]);
});

test('the ids of a user namespace apply to the container and to its mounts', () => {
  const namespaces = { ...ownNamespaces, userNamespace: MAPPING };
  const { linux, mounts } = container({ namespaces }, { mounts: [MOUNT] });
  const { namespaceOptions } = linux?.securityContext ?? {};
  assert.deepEqual(namespaceOptions?.usernsOptions, { mode: 0, uids: [MAPPING.uids], gids: [MAPPING.gids] });
  const [mount] = mounts ?? [];
  assert.deepEqual([mount?.uidMappings, mount?.gidMappings], [[MAPPING.uids], [MAPPING.gids]]);
  assert.deepEqual([mount?.propagation, mount?.readonly, mount?.recursiveReadOnly], [1, true, true]);
  assert.ok(!('usernsOptions' in (securityOf({}).namespaceOptions ?? {})));
});

test('a container joins the processes of the container that it targets', () => {
  const { namespaceOptions } = securityOf({ namespaces: { ...ownNamespaces, pid: 'target', targetId: 'id' as never } });
  assert.deepEqual(namespaceOptions, { network: 0, pid: 3, ipc: 0, targetId: 'id' });
});

test('an image volume names its image, and other mounts none', () => {
  const image = { ...MOUNT, hostPath: '', image: 'data:1', imageSubPath: 'x' };
  const [ofImage, ofHost] = container({}, { mounts: [image, MOUNT] }).mounts ?? [];
  assert.deepEqual([ofImage?.image, ofImage?.imageSubPath], [{ image: 'data:1', userSpecifiedImage: 'data:1' }, 'x']);
  assert.ok(ofHost !== undefined && !('image' in ofHost) && !('imageSubPath' in ofHost));
});

test('stop signals have the numbers of CRI, real-time signals included', () => {
  const numbers = ['', 'SIGTERM', 'SIGRTMIN', 'SIGRTMINPLUS15', 'SIGRTMAXMINUS14', 'SIGRTMAX', 'SIGNONE'].map(
    (stopSignal) => container({}, { stopSignal }).stopSignal,
  );
  assert.deepEqual(numbers, [0, 23, 35, 50, 51, 65, 0]);
});

test('environment, devices and resources are those of the configuration', () => {
  const { envs, cdiDevices, linux, image, metadata } = container();
  assert.deepEqual(envs, [{ key: 'A', value: Buffer.from('é') }]);
  assert.deepEqual([cdiDevices, metadata], [[{ name: 'vendor.com/gpu=0' }], { name: 'c', attempt: 2 }]);
  assert.deepEqual(image, { image: 'sha256:1', userSpecifiedImage: 'web:1' });
  assert.deepEqual(linux?.resources?.hugepageLimits, [{ pageSize: '2MB', limit: 4 }]);
});

test('a sandbox has a host name of its own only with a network of its own', () => {
  const sandbox = sandboxConfig({
    portMappings: [{ protocol: 'SCTP', containerPort: 1, hostPort: 2, hostIp: '' }],
  });
  const own = sandboxMessage(sandbox);
  assert.deepEqual([own.hostname, own.portMappings?.[0]?.protocol, 'dnsConfig' in own], ['web', 2, false]);
  const onHost = sandboxMessage({ ...sandbox, namespaces: { ...ownNamespaces, network: 'node' } });
  assert.equal(onHost.hostname, '');
  assert.equal(onHost.linux?.securityContext?.namespaceOptions?.network, 2);
});
