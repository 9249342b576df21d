import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import {
  containerSecurity,
  namespaceOptions,
  verifyNonRoot,
} from '../../../../../agent/runtime/kuberuntime/security.ts';
import type { ImageInfo } from '../../../../../agent/runtime/runtime.ts';
import type { ContainerSecurity } from '../../../../../agent/runtime/runtime-security.ts';

const podOf = (spec: object = {}): Pod =>
  ({ metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [], ...spec } }) as unknown as Pod;
const containerOf = (securityContext?: object): Container => ({ name: 'c', securityContext }) as Container;
const settings = { seccompDirectory: '/root/seccomp', seccompDefault: false };

function security(own?: object, shared?: object, changes: Partial<typeof settings> = {}, user = ''): ContainerSecurity {
  return containerSecurity(podOf({ securityContext: shared }), containerOf(own), {
    settings: { ...settings, ...changes },
    userNamespace: undefined,
    extraGroups: [7],
    image: { user },
  });
}

describe('the confinement of a container', () => {
  it('names the user of the image, because a runtime refuses a group without a user', () => {
    const userOf = (user: string, own = {}): unknown[] => {
      const { runAsUser, runAsUserName, runAsGroup } = security({ runAsGroup: 5, ...own }, {}, {}, user);
      return [runAsUser, runAsUserName, runAsGroup];
    };
    assert.deepEqual(userOf(''), [0, undefined, 5]);
    assert.deepEqual(userOf('1000:2000'), [1000, undefined, 5]);
    assert.deepEqual(userOf('app:staff'), [undefined, 'app', 5]);
    assert.deepEqual(userOf('app', { runAsUser: 7 }), [7, undefined, 5]);
  });

  it("is its own, else its pod's", () => {
    const shared = { runAsUser: 1, runAsGroup: 2, seLinuxOptions: { level: 's0:c1' } };
    const { runAsUser, runAsGroup, seLinux } = security({ runAsUser: 3, seLinuxOptions: { type: 't' } }, shared);
    assert.deepEqual([runAsUser, runAsGroup, seLinux], [3, 2, { type: 't' }]);
    assert.deepEqual(security({}, shared).seLinux, { level: 's0:c1' });
  });
  it('has the groups of the pod, of its volumes, and each once', () => {
    const { supplementalGroups, supplementalGroupsPolicy } = security({}, { supplementalGroups: [5, 7], fsGroup: 6 });
    assert.deepEqual([supplementalGroups, supplementalGroupsPolicy], [[5, 7, 6], 'Merge']);
    assert.equal(security({}, { supplementalGroupsPolicy: 'Strict' }).supplementalGroupsPolicy, 'Strict');
  });
  it('has capabilities, privilege escalation, root filesystem and masked paths as specified', () => {
    const context = {
      capabilities: { add: ['A'], drop: ['ALL'] },
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      procMount: 'Unmasked',
    };
    const { addCapabilities, dropCapabilities, noNewPrivileges, readOnlyRootFilesystem, maskedPaths } =
      security(context);
    assert.deepEqual([addCapabilities, dropCapabilities], [['A'], ['ALL']]);
    assert.deepEqual([noNewPrivileges, readOnlyRootFilesystem, maskedPaths], [true, true, 'none']);
    assert.deepEqual([security().noNewPrivileges, security().maskedPaths], [false, 'default']);
  });
  for (const [own, shared, isDefault, profile] of [
    [undefined, undefined, false, { type: 'Unconfined' }],
    [undefined, undefined, true, { type: 'RuntimeDefault' }],
    [undefined, { type: 'RuntimeDefault' }, false, { type: 'RuntimeDefault' }],
    [{ type: 'Unconfined' }, { type: 'RuntimeDefault' }, true, { type: 'Unconfined' }],
    [
      { type: 'Localhost', localhostProfile: 'a/b.json' },
      undefined,
      false,
      { type: 'Localhost', localhost: '/root/seccomp/a/b.json' },
    ],
  ] as const) {
    it(`has seccomp ${profile.type} for ${JSON.stringify([own, shared, isDefault])}`, () =>
      assert.deepEqual(
        security({ seccompProfile: own }, { seccompProfile: shared }, { seccompDefault: isDefault }).seccomp,
        profile,
      ));
  }
  it('has no seccomp where it is privileged', () => {
    const { privileged, seccomp } = security({ privileged: true, seccompProfile: { type: 'RuntimeDefault' } });
    assert.deepEqual([privileged, seccomp], [true, { type: 'Unconfined' }]);
  });
  it('has the AppArmor profile that is named, and none where none is', () => {
    const named = { type: 'Localhost', localhostProfile: 'mine' };
    assert.deepEqual(security({ appArmorProfile: named }).appArmor, { type: 'Localhost', localhost: 'mine' });
    assert.deepEqual(security({}, { appArmorProfile: { type: 'Unconfined' } }).appArmor, { type: 'Unconfined' });
    assert.equal(security().appArmor, undefined);
  });
  it('has no AppArmor profile of the host that is named like none', () => {
    for (const localhostProfile of ['unconfined', ' unconfined '])
      for (const contexts of [
        [{ appArmorProfile: { type: 'Localhost', localhostProfile } }],
        [{}, { appArmorProfile: { type: 'Localhost', localhostProfile } }],
      ])
        assert.throws(
          () => security(contexts[0], contexts[1]),
          /the host has no AppArmor profile with the name "unconfined"/,
        );
  });
});

describe('the namespaces of a pod', () => {
  const ids = { hostId: 65_536, containerId: 0, length: 65_536 };
  const userNamespace = { uids: ids, gids: ids };
  for (const [spec, options, expected] of [
    [{}, {}, { network: 'pod', ipc: 'pod', pid: 'container' }],
    [{ shareProcessNamespace: true }, {}, { network: 'pod', ipc: 'pod', pid: 'pod' }],
    [{ hostNetwork: true, hostPID: true, hostIPC: true }, {}, { network: 'node', ipc: 'node', pid: 'node' }],
    [{}, { target: 'id' }, { network: 'pod', ipc: 'pod', pid: 'target', targetId: 'id' }],
    [{ hostUsers: false }, { userNamespace }, { network: 'pod', ipc: 'pod', pid: 'container', userNamespace }],
  ] as const) {
    it(`are ${JSON.stringify(expected)} for ${JSON.stringify(spec)}`, () =>
      assert.deepEqual(
        namespaceOptions(podOf(spec), { target: undefined, userNamespace: undefined, ...(options as object) }),
        expected,
      ));
  }
});

describe('a container that must not be root', () => {
  const where = '(pod: "p_ns(u)", container: c)';
  const verify = (own: object, user: string): void =>
    verifyNonRoot(podOf(), containerOf({ runAsNonRoot: true, ...own }), { user } as ImageInfo);
  for (const [own, user] of [
    [{ runAsUser: 5 }, ''],
    [{}, '5'],
    [{}, '5:0'],
    [{}, '2147483647'],
    [{ runAsNonRoot: false }, ''],
  ] as const) {
    it(`runs as ${JSON.stringify(own)} of an image of user "${user}"`, () => verify(own, user));
  }
  for (const [own, user, message] of [
    [{ runAsUser: 0 }, '5', `container's runAsUser breaks non-root policy ${where}`],
    [{}, '', `container has runAsNonRoot and image will run as root ${where}`],
    [{}, '00', `container has runAsNonRoot and image will run as root ${where}`],
    [{}, '000:5', `container has runAsNonRoot and image will run as root ${where}`],
    [{}, '0:5', `container has runAsNonRoot and image will run as root ${where}`],
    [
      {},
      'nobody',
      `container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root ${where}`,
    ],
    ...(['2147483648', '4294967296', '4294967296:5', '99999999999999999999999'] as const).map(
      (user) =>
        [
          {},
          user,
          `container has runAsNonRoot and image has a user id out of range, cannot verify user is non-root ${where}`,
        ] as const,
    ),
  ] as const) {
    it(`is refused as ${JSON.stringify(own)} of an image of user "${user}"`, () =>
      assert.throws(() => verify(own, user), { name: 'ContainerConfigError', message }));
  }
  it('names a long user of an image in part', () =>
    assert.throws(
      () => verify({}, 'u'.repeat(1 << 20)),
      (error: Error) => error.message.length < 1000,
    ));
});
