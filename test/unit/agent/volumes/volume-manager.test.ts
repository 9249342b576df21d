import assert from 'node:assert/strict';
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { Container, Pod } from '../../../../agent/base/model/pod.ts';
import { VolumeError } from '../../../../agent/runtime/container-volumes.ts';
import type { CsiMountRequest } from '../../../../agent/volumes/csi/csi-source.ts';
import type { MountPoint } from '../../../../agent/host/mount-table.ts';
import type { Mounter } from '../../../../agent/volumes/mounter.ts';
import { VolumeLimitError, VolumeStepError } from '../../../../agent/volumes/volume-failure.ts';
import { createVolumeManager, type CsiDriverVolumes } from '../../../../agent/volumes/volume-manager.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { persistentVolumeClaims, persistentVolumes } from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

type Volume = NonNullable<Pod['spec']['volumes']>[number];

/** Mounts in memory. The source `hang` never becomes available. */
class FakeMounter implements Mounter {
  points: MountPoint[] = [];
  readonly requests: string[] = [];
  async mount({ source, target, type = 'bind', options = [] }: Parameters<Mounter['mount']>[0]): Promise<void> {
    this.requests.push(`${type} ${options.join(',')}`);
    if (source.includes('hang')) await new Promise<void>(() => undefined);
    // The kernel creates the root of a tmpfs with this mode.
    if (type === 'tmpfs') await chmod(target, 0o1777);
    this.points.push({ path: target, type, source, options: ['rw'], device: '8:1', isShared: false });
  }
  async unmount(target: string): Promise<void> {
    this.points = this.points.filter((point) => point.path !== target);
  }
  async list(): Promise<readonly MountPoint[]> {
    return this.points;
  }
}

const mountsOf = (volumes: readonly Volume[]): NonNullable<Container['volumeMounts']> =>
  volumes.map(({ name }) => ({ name, mountPath: `/${name}` }));

function podOf(uid: string, volumes: Volume[], more: Partial<Pod['spec']> = {}): Pod {
  return {
    metadata: { name: uid, namespace: 'ns', uid },
    spec: { volumes, containers: [{ name: 'main', volumeMounts: mountsOf(volumes) }], ...more },
  };
}

async function setUp(csi?: CsiDriverVolumes) {
  const root = temporaryFolder();
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const mounter = new FakeMounter();
  const events: string[] = [];
  const maps = new Map<string, Record<string, string>>();
  const forgotten: string[] = [];
  const runtime = { recursiveReadOnly: true };
  const make = () =>
    createVolumeManager({
      rootDirectory: root,
      client,
      clock,
      logger: silentLogger,
      mounter,
      node: () => ({ name: 'n1', labels: { 'kubernetes.io/hostname': 'n1' } }),
      ...(csi === undefined ? {} : { csi }),
      recursiveReadOnly: () => runtime.recursiveReadOnly,
      refreshMs: 60_000,
      mountTimeoutMs: 123_000,
      events: {
        event: (pod, type, reason, message) => void events.push(`${pod.metadata.name} ${type} ${reason} ${message}`),
      },
      forgetPod: (uid) => void forgotten.push(uid),
      sources: {
        objects: {
          registerPod: () => undefined,
          unregisterPod: () => undefined,
          configMap: async (_namespace, name) => {
            const data = maps.get(name);
            return data === undefined ? undefined : ({ metadata: { name }, data } as unknown as KubeObject);
          },
          secret: async () => undefined,
        },
        token: async () => 'token',
        fieldValue: (_pod, path) => path,
        resourceValue: () => '',
      },
    });
  return { root, clock, client, mounter, events, maps, forgotten, runtime, make, manager: make() };
}

const never = new AbortController().signal;
const config = (name: string): Volume => ({ name, configMap: { name } });

/** Waits for file operations that a refresh has started. */
async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setImmediate(resolve));
}

describe('the volume manager', () => {
  it('names the volume that could not be set up in an event and an error', async () => {
    const { manager, events, maps } = await setUp();
    maps.set('there', { a: '1' });
    await assert.rejects(manager.mount(podOf('p', [config('there'), config('gone')]), never), {
      name: 'VolumeError',
      message:
        'unmounted volumes=[gone], unattached volumes=[], failed to process volumes=[]: configmap "gone" not found',
    });
    assert.deepEqual(events, [
      'p Warning FailedMount MountVolume.SetUp failed for volume "gone" : configmap "gone" not found',
    ]);
  });

  it('does not set up a volume that no container mounts', async () => {
    const { manager, events, maps } = await setUp();
    maps.set('there', { a: '1' });
    const mounts = mountsOf([config('there')]);
    for (const where of ['initContainers', 'containers', 'ephemeralContainers']) {
      const pod = podOf(where, [config('there'), config('gone')], {
        containers: [{ name: 'main' }],
        [where]: [{ name: 'user', volumeMounts: mounts }],
      });
      await manager.mount(pod, never);
      assert.deepEqual(
        manager.podVolumes(where).map(({ name }) => name),
        ['there'],
      );
    }
    assert.deepEqual(events, []);
  });

  it('blocks only the pod whose volume hangs, and reports the timeout', async () => {
    const { manager, clock, maps } = await setUp();
    maps.set('there', { a: '1' });
    const hanging = podOf('stuck', [{ name: 'share', nfs: { server: 'hang', path: '/' } }]);
    const failed = assert.rejects(manager.mount(hanging, never), {
      message:
        'unmounted volumes=[share], unattached volumes=[], failed to process volumes=[]: context deadline exceeded',
    });
    await manager.mount(podOf('free', [config('there')]), never);
    await clock.advance(123_000);
    await failed;
  });

  it('mounts no NFS volume whose server is not a host name or address, but an option of mount(8)', async () => {
    const { manager, mounter } = await setUp();
    for (const server of ['-T/var/lib/kubelet/pods/other/volumes/kubernetes.io~empty-dir/v/table', 'UUID=1', 'a b', ''])
      await assert.rejects(manager.mount(podOf('p', [{ name: 'share', nfs: { server, path: '/x' } }]), never), {
        message: /is not a host name or address$/,
      });
    assert.deepEqual(mounter.requests, []);
    const servers = ['files.example.com', '10.0.0.1', 'fd00::1', 'fe80::1%eth0'];
    for (const server of servers)
      await manager.mount(podOf(server, [{ name: 'share', nfs: { server, path: '/x' } }]), never);
    assert.equal(mounter.requests.length, servers.length);
  });

  it('stops waiting when the pod is terminated', async () => {
    const { manager } = await setUp();
    const stop = new AbortController();
    const pod = podOf('stuck', [{ name: 'share', nfs: { server: 'hang', path: '/' } }]);
    const failed = assert.rejects(manager.mount(pod, stop.signal), /enough/);
    stop.abort(new Error('enough'));
    await failed;
    await assert.rejects(manager.mount(pod, stop.signal), /enough/);
  });

  it('refreshes the content in the refresh period, and at once after a known change', async () => {
    const { manager, root, clock, maps } = await setUp();
    maps.set('cm', { key: '1' });
    await manager.mount(podOf('p', [config('cm')]), never);
    const file = join(root, 'pods/p/volumes/kubernetes.io~configmap/cm/key');
    assert.equal(await readFile(file, 'utf8'), '1');
    maps.set('cm', { key: '2' });
    await clock.advance(60_000);
    await until(async () => (await readFile(file, 'utf8')) === '2');
    maps.set('cm', { key: '3' });
    manager.refreshPods(new Set(['p', 'other']));
    await until(async () => (await readFile(file, 'utf8')) === '3');
    await manager.close();
  });

  it('keeps the last content and the pod running when its source is deleted, and logs it', async () => {
    const { manager, root, events, maps } = await setUp();
    maps.set('cm', { key: '1' });
    maps.set('other', { key: '1' });
    const pod = podOf('p', [config('cm'), config('other')]);
    await manager.mount(pod, never);
    maps.delete('cm');
    maps.set('other', { key: '2' });
    await manager.mount(pod, never);
    assert.equal(await readFile(join(root, 'pods/p/volumes/kubernetes.io~configmap/cm/key'), 'utf8'), '1');
    assert.equal(await readFile(join(root, 'pods/p/volumes/kubernetes.io~configmap/other/key'), 'utf8'), '2');
    assert.equal(events.length, 1);
    assert.match(events[0] ?? '', /volume "cm" : configmap "cm" not found/);
  });

  it('does not check a host path again once the pod has it', async () => {
    const { manager, root } = await setUp();
    await mkdir(join(root, 'data'));
    const pod = podOf('p', [{ name: 'd', hostPath: { path: join(root, 'data'), type: 'Directory' } }]);
    await manager.mount(pod, never);
    await rm(join(root, 'data'), { recursive: true });
    await manager.mount(pod, never);
  });

  it('makes an emptyDir that all may write, and leaves it to the containers then, over a restart too', async () => {
    const { manager, make, root } = await setUp();
    const pod = podOf('p', [{ name: 'd', emptyDir: {} }]);
    await manager.mount(pod, never);
    const path = join(root, 'pods/p/volumes/kubernetes.io~empty-dir/d');
    assert.equal((await stat(path)).mode & 0o777, 0o777);
    await writeFile(join(path, 'kept'), '');
    await chmod(path, 0o700);
    await manager.mount(pod, never);
    await make().mount(pod, never);
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    assert.equal((await stat(join(path, 'kept'))).isFile(), true);
  });

  it('keeps memory volumes on a tmpfs of their size, mounted once', async () => {
    const { manager, mounter } = await setUp();
    const pod = podOf('p', [{ name: 'd', emptyDir: { medium: 'Memory', sizeLimit: '64Mi' } }]);
    await manager.mount(pod, never);
    await manager.mount(pod, never);
    assert.deepEqual(mounter.requests, ['tmpfs size=67108864,noswap']);
  });

  it('leaves memory volumes the sticky bit that their file system has, as well as parts of them that it makes', async () => {
    const { manager, root } = await setUp();
    const pod = podOf(
      'p',
      [
        { name: 'd', emptyDir: { medium: 'Memory' } },
        { name: 'disk', emptyDir: {} },
      ],
      {
        securityContext: { fsGroup: 123 },
      },
    );
    await manager.mount(pod, never);
    const volumes = join(root, 'pods/p/volumes/kubernetes.io~empty-dir');
    const modeOf = async (path: string): Promise<number> => (await stat(join(volumes, path))).mode & 0o7777;
    assert.deepEqual([await modeOf('d'), await modeOf('disk')], [0o3777, 0o2777]);
    const container = { name: 'main', volumeMounts: [{ name: 'd', mountPath: '/d', subPath: 'part' }] };
    await manager.containerMounts(pod, container, new Map());
    assert.equal(await modeOf('d/part'), 0o3777);
  });

  for (const [kind, volume] of [
    ['configMap', config('v')],
    ['downwardAPI', { name: 'v', downwardAPI: { items: [{ path: 'a', fieldRef: { fieldPath: 'metadata.name' } }] } }],
    ['projected', { name: 'v', projected: { sources: [{ configMap: { name: 'v' } }] } }],
  ] as const satisfies readonly (readonly [string, Volume])[]) {
    it(`gives containers a ${kind} volume to read only, with directories for what is mounted below it`, async () => {
      const { manager, maps } = await setUp();
      maps.set('v', { a: '1' });
      const volumeMounts = [
        { name: 'v', mountPath: '/config' },
        { name: 'empty', mountPath: '/config/cache/deep/' },
      ];
      const container = { name: 'main', volumeMounts } as Container;
      const pod = podOf('p', [volume, { name: 'empty', emptyDir: {} }], { containers: [container] });
      await manager.mount(pod, never);
      const { mounts } = await manager.containerMounts(pod, container, new Map());
      assert.deepEqual(
        mounts.map(({ readonly }) => readonly),
        [true, false],
      );
      assert.equal((await stat(join(mounts[0]?.hostPath ?? '', 'cache/deep'))).isDirectory(), true);
    });
  }

  it('removes mounts and data with the pod', async () => {
    const { manager, mounter, root, forgotten } = await setUp();
    const pod = podOf('p', [
      { name: 'd', emptyDir: { medium: 'Memory' } },
      { name: 'e', emptyDir: {} },
    ]);
    await manager.mount(pod, never);
    await manager.unmount(pod, never);
    assert.deepEqual(mounter.points, []);
    assert.deepEqual(forgotten, ['p']);
    await assert.rejects(stat(join(root, 'pods/p/volumes')), /ENOENT/);
    await manager.unmount(pod, never);
  });

  it('removes nothing through a mount that cannot be unmounted', async () => {
    const { manager, mounter, root } = await setUp();
    const pod = podOf('p', [{ name: 'd', emptyDir: { medium: 'Memory' } }]);
    await manager.mount(pod, never);
    const precious = join(root, 'pods/p/volumes/kubernetes.io~empty-dir/d/precious');
    await writeFile(precious, '');
    mounter.unmount = async () => undefined;
    await assert.rejects(manager.unmount(pod, never), /still mounted/);
    assert.equal((await stat(precious)).isFile(), true);
  });

  it('removes the volumes of unknown pods only', async () => {
    const { manager, mounter, root } = await setUp();
    for (const uid of ['gone', 'known']) await mkdir(join(root, 'pods', uid, 'volumes'), { recursive: true });
    mounter.points.push({
      ...{ path: join(root, 'pods/gone/volumes/x'), type: 'tmpfs', source: 'tmpfs' },
      ...{ options: ['rw'], device: '0:30', isShared: false },
    });
    await manager.mount(podOf('here', []), never);
    await manager.cleanOrphans(() => new Set(['known']));
    await assert.rejects(stat(join(root, 'pods/gone')), /ENOENT/);
    assert.deepEqual(mounter.points, []);
    assert.equal((await stat(join(root, 'pods/known'))).isDirectory(), true);
    assert.equal((await stat(join(root, 'pods/here'))).isDirectory(), true);
  });

  it('uses a claim on a hostPath in place, with the group of its annotation, once it is bound', async () => {
    const { manager, client, root } = await setUp();
    client.seed(persistentVolumeClaims, {
      metadata: { name: 'c', namespace: 'ns', uid: 'claim' },
      spec: { volumeName: 'v' },
      status: { phase: 'Pending' },
    } as unknown as KubeObject);
    const pod = podOf('p', [byClaim]);
    await assert.rejects(
      manager.mount(pod, never),
      /failed to process volumes=\[d\]: error processing PVC ns\/c: PVC is not bound$/,
    );
    client.seed(persistentVolumeClaims, {
      metadata: { name: 'c', namespace: 'ns', uid: 'claim' },
      spec: { volumeName: 'v' },
      status: { phase: 'Bound' },
    } as unknown as KubeObject);
    client.seed(persistentVolumes, {
      metadata: { name: 'v', annotations: { 'pv.beta.kubernetes.io/gid': '777' } },
      spec: { hostPath: { path: root, type: 'Directory' }, claimRef: { uid: 'claim' }, accessModes: ['ReadWriteOnce'] },
    } as unknown as KubeObject);
    await manager.mount(pod, never);
    assert.deepEqual(
      manager.podVolumes('p').map(({ path }) => path),
      [root],
    );
    assert.deepEqual(manager.extraSupplementalGroups(pod), [777]);
  });

  it('is retried with growing delays, and at once when the missing object appears', async () => {
    const { manager } = await setUp();
    const pod = podOf('p', [config('late')]);
    const waits = async (): Promise<number> => {
      const error: unknown = await manager.mount(pod, never).catch((problem: unknown) => problem);
      assert.ok(error instanceof VolumeError);
      return error.retryAfterMs;
    };
    assert.deepEqual([await waits(), await waits(), await waits()], [500, 1000, 2000]);
    for (let attempt = 0; attempt < 10; attempt++) await waits();
    assert.equal(await waits(), 122_000);
    manager.refreshPods(new Set(['p']));
    assert.equal(await waits(), 500);
  });

  const claimed = (client: FakeClient, spec: object, more: object = {}): void => {
    client.seed(persistentVolumeClaims, {
      metadata: { name: 'c', namespace: 'ns', uid: 'claim' },
      spec: { volumeName: 'v' },
      status: { phase: 'Bound' },
      ...more,
    } as unknown as KubeObject);
    client.seed(persistentVolumes, {
      metadata: { name: 'v' },
      spec: { claimRef: { uid: 'claim' }, accessModes: ['ReadWriteOnce'], ...spec },
    } as unknown as KubeObject);
  };
  const byClaim: Volume = { name: 'd', persistentVolumeClaim: { claimName: 'c' } };

  it('is mounted only on the nodes of its volume, also in a pod that names its node', async () => {
    const { manager, client, events, root } = await setUp();
    const pod = podOf('p', [byClaim]);
    const on = (term: object): void =>
      claimed(client, { local: { path: root }, nodeAffinity: { required: { nodeSelectorTerms: [term] } } });
    const hostname = (value: string): object => ({ key: 'kubernetes.io/hostname', operator: 'In', values: [value] });
    const name = (value: string): object => ({ key: 'metadata.name', operator: 'In', values: [value] });
    for (const term of [
      { matchExpressions: [hostname('n2')] },
      { matchExpressions: [hostname('n1')], matchFields: [name('n2')] },
    ]) {
      on(term);
      await assert.rejects(manager.mount(pod, never), VolumeError);
      assert.match(
        events.at(-1) ?? '',
        /FailedMount MountVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms/,
      );
    }
    on({ matchExpressions: [hostname('n1')], matchFields: [name('n1')] });
    await manager.mount(pod, never);
    assert.deepEqual(
      manager.podVolumes('p').map(({ path }) => path),
      [root],
    );
  });

  it('whose persistent volume cannot be set up is reported by the name of that volume', async () => {
    const { manager, client, events, root } = await setUp();
    const failure = async (spec: object): Promise<string> => {
      claimed(client, spec);
      await assert.rejects(manager.mount(podOf('p', [byClaim]), never), VolumeError);
      return events.at(-1) ?? '';
    };
    const missing = join(root, 'missing');
    assert.ok(
      (await failure({ local: { path: missing } })).endsWith(
        `FailedMount MountVolume.NewMounter initialization failed for volume "v" : path "${missing}" does not exist`,
      ),
    );
    assert.match(
      await failure({ hostPath: { path: root, type: 'File' } }),
      /MountVolume.SetUp failed for volume "v" : hostPath type check failed: /,
    );
  });

  it('of ReadWriteOncePod is mounted for one pod of the node at a time, also after a restart of the agent', async () => {
    const { manager: first, make, client, events, root } = await setUp();
    claimed(client, { local: { path: root }, accessModes: ['ReadWriteOncePod'] });
    const [holder, other] = [podOf('holder', [byClaim]), podOf('other', [byClaim])];
    await first.mount(holder, never);
    for (const manager of [first, make()]) {
      await assert.rejects(manager.mount(other, never), VolumeError);
      assert.match(
        events.at(-1) ?? '',
        /FailedMount MountVolume.SetUp failed for volume "v" : volume uses the ReadWriteOncePod access mode and is already in use by another pod/,
      );
      await manager.mount(holder, never);
    }
    await first.unmount(holder, never);
    await first.mount(other, never);
    await assert.rejects(first.mount(holder, never), VolumeError);
  });

  it('of ReadWriteOncePod and further modes may be shared, as with the kubelet', async () => {
    const { manager, client, root } = await setUp();
    claimed(client, { local: { path: root }, accessModes: ['ReadWriteOncePod', 'ReadWriteMany'] });
    await manager.mount(podOf('a', [byClaim]), never);
    await manager.mount(podOf('b', [byClaim]), never);
  });

  it('is not a directory where its claim is a device, nor the other way round', async () => {
    const table: [string, Partial<Container>, RegExp][] = [
      [
        'Block',
        { volumeMounts: [{ name: 'd', mountPath: '/d' }] },
        /volume d has volumeMode Block, but is specified in volumeMounts/,
      ],
      [
        'Filesystem',
        { volumeDevices: [{ name: 'd', devicePath: '/dev/d' }] },
        /volume d has volumeMode Filesystem, but is specified in volumeDevices/,
      ],
    ];
    for (const [volumeMode, container, message] of table) {
      const { manager, client, events } = await setUp();
      claimed(client, { hostPath: { path: '/' }, volumeMode });
      const pod = podOf('p', [byClaim], { containers: [{ name: 'main', ...container }] });
      await assert.rejects(manager.mount(pod, never), message);
      assert.equal(events.length, 1);
      assert.match(events[0] ?? '', /FailedMount Unable to attach or mount volumes: unmounted volumes=\[d\]/);
      assert.match(events[0] ?? '', message);
    }
  });

  it('that is ephemeral uses a claim of its own pod only', async () => {
    const { manager, client, root } = await setUp();
    const metadata = { name: 'p-d', namespace: 'ns', uid: 'claim' };
    claimed(client, { hostPath: { path: root } }, { metadata });
    const pod = podOf('p', [{ name: 'd', ephemeral: {} }]);
    await assert.rejects(manager.mount(pod, never), /PVC ns\/p-d was not created for pod ns\/p \(pod is not owner\)/);
    const owner = { apiVersion: 'v1', kind: 'Pod', name: 'p', uid: 'p', controller: true };
    claimed(client, { hostPath: { path: root } }, { metadata: { ...metadata, ownerReferences: [owner] } });
    await manager.mount(pod, never);
  });

  it('are reported as too many for the node when they could not be attached for the time of a mount', async () => {
    const csi = {
      mount: () =>
        Promise.reject(new VolumeStepError('MountVolume.WaitForAttach', 'v', new VolumeLimitError('no room'))),
    } as unknown as CsiDriverVolumes;
    const { client, clock, manager } = await setUp(csi);
    claimed(client, { csi: { driver: 'd', volumeHandle: 'h' }, capacity: { storage: '1Gi' } });
    const pod = podOf('p', [byClaim]);
    await assert.rejects(manager.mount(pod, never), VolumeError);
    await clock.advance(123_000);
    await assert.rejects(manager.mount(pod, never), {
      name: 'VolumeLimitExceeded',
      message:
        'Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[d], unattached volumes=[d], failed to process volumes=[]: context deadline exceeded',
    });
  });

  it('of a driver is expanded to the size of its volume, which the claim and an event of the pod show', async () => {
    const grown: (number | undefined)[] = [];
    const csi = {
      mount: async ({ source }: CsiMountRequest) => {
        const growBytes = source.kind === 'persistent' ? source.growBytes : undefined;
        grown.push(growBytes);
        return { path: '/x', isBlock: false, setsGroup: false, refreshes: true, grown: growBytes !== undefined };
      },
      usage: async () => undefined,
      unmountPod: async () => undefined,
      cleanUnused: async () => undefined,
    };
    const { make, client, clock, events } = await setUp(csi);
    const status = {
      phase: 'Bound',
      capacity: { storage: '1Gi' },
      conditions: [{ type: 'FileSystemResizePending', status: 'True' }],
    };
    claimed(client, { csi: { driver: 'd', volumeHandle: 'h' }, capacity: { storage: '1Gi' } }, { status });
    const manager = make();
    await manager.mount(podOf('p', [byClaim]), never);
    claimed(client, { csi: { driver: 'd', volumeHandle: 'h' }, capacity: { storage: '2Gi' } }, { status });
    await clock.advance(60_000);
    await until(() => grown.length === 2);
    assert.deepEqual(grown, [undefined, 2 * 1024 ** 3]);
    await until(() => events.length > 0);
    assert.deepEqual(events, [
      'p Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "v"',
    ]);
    const patch = client.calls.find((call) => call.verb === 'patch');
    assert.deepEqual(patch?.patch, {
      status: {
        capacity: { storage: '2Gi' },
        conditions: [{ type: 'FileSystemResizePending', $patch: 'delete' }],
      },
    });
    await manager.close();
  });

  const subPaths: [string, { subPath?: string; subPathExpr?: string }, string][] = [
    ['absolute', { subPath: '/etc' }, 'error SubPath `/etc` must not be an absolute path'],
    ['backwards', { subPath: 'a/../..' }, "unable to provision SubPath `a/../..`: must not contain '..'"],
    ['of variables that are not set', { subPathExpr: '$(B)/$(A)/$(EMPTY)' }, 'missing value for A, B, EMPTY'],
    [
      'of a variable that goes backwards',
      { subPathExpr: '$(UP)' },
      "unable to provision SubPath `..`: must not contain '..'",
    ],
  ];
  for (const [what, mount, message] of subPaths) {
    it(`refuses a subPath that is ${what}, of images too`, async () => {
      for (const source of [{ emptyDir: {} }, { image: { reference: 'i' } }]) {
        const { manager } = await setUp();
        const container = { name: 'main', volumeMounts: [{ name: 'd', mountPath: '/d', ...mount }] };
        const pod = podOf('p', [{ name: 'd', ...source }], { containers: [container] });
        await manager.mount(pod, never);
        const env = new Map([
          ['UP', '..'],
          ['EMPTY', ''],
        ]);
        await assert.rejects(manager.containerMounts(pod, container, env), { name: 'VolumeError', message });
      }
    });
  }

  it('is read-only all through where the runtime can, and is not without it where the pod insists', async () => {
    const { manager, runtime } = await setUp();
    const mount = (recursiveReadOnly: string, readOnly = true) => ({
      name: 'main',
      volumeMounts: [{ name: 'd', mountPath: '/d', readOnly, recursiveReadOnly }],
    });
    const pod = podOf('p', [{ name: 'd', emptyDir: {} }]);
    await manager.mount(pod, never);
    const recursive = async (container: Container): Promise<boolean | undefined> =>
      (await manager.containerMounts(pod, container, new Map())).mounts[0]?.recursiveReadOnly;
    const modes = ['Disabled', 'IfPossible', 'Enabled'];
    assert.deepEqual(await Promise.all(modes.map((mode) => recursive(mount(mode)))), [false, true, true]);
    runtime.recursiveReadOnly = false;
    assert.equal(await recursive(mount('IfPossible')), false);
    await assert.rejects(recursive(mount('Enabled')), /not supported by the runtime/);
  });

  it('binds a subPath for each container, and releases it with the pod', async () => {
    const { manager, root, mounter } = await setUp();
    const container = {
      name: 'main',
      volumeMounts: [
        { name: 'd', mountPath: 'relative' },
        { name: 'd', mountPath: '/sub', subPathExpr: '$(NAME)/x', readOnly: true, recursiveReadOnly: 'Enabled' },
      ],
    };
    const pod = podOf('p', [{ name: 'd', emptyDir: {} }], { containers: [container] });
    await manager.mount(pod, never);
    const { mounts } = await manager.containerMounts(pod, container, new Map([['NAME', 'n']]));
    assert.deepEqual(
      mounts.map(({ hostPath, containerPath, readonly, recursiveReadOnly }) => [
        hostPath,
        containerPath,
        readonly,
        recursiveReadOnly,
      ]),
      [
        [join(root, 'pods/p/volumes/kubernetes.io~empty-dir/d'), '/relative', false, false],
        [join(root, 'pods/p/volume-subpaths/d/main/1'), '/sub', true, true],
      ],
    );
    await manager.unmount(pod, never);
    assert.deepEqual(mounter.points, []);
  });
});
