import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { attachmentName } from '../../../../../api/kinds/attached-volumes.ts';
import type { CsiMountRequest } from '../../../../../agent/volumes/csi/csi-source.ts';
import { CsiVolumes } from '../../../../../agent/volumes/csi/csi-volumes.ts';
import { CsiDrivers } from '../../../../../agent/volumes/csi/drivers.ts';
import type { PersistentVolume } from '../../../../../agent/volumes/persistent.ts';
import { csiCallMetrics } from '../../../../../agent/resources/statistics/driver-metrics.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { csiDrivers, volumeAttachments } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { deadlineExceeded, internal, startCsiDriver, type FakeCsiDriverOptions } from '../../../../fakes/csi-driver.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const never = new AbortController().signal;
const NAME = 'csi.example.com';

function podOf(uid: string, spec: Partial<Pod['spec']> = {}): Pod {
  return {
    metadata: { name: `pod-${uid}`, namespace: 'ns', uid },
    spec: { containers: [{ name: 'main' }], serviceAccountName: 'robot', ...spec },
  };
}

function volumeOf(name: string, csi: object = {}, spec: object = {}): PersistentVolume {
  return {
    metadata: { name },
    spec: { csi: { driver: NAME, volumeHandle: `handle-${name}`, ...csi }, accessModes: ['ReadWriteOnce'], ...spec },
  } as PersistentVolume;
}

function persistent(pod: Pod, volume: PersistentVolume, more: Partial<CsiMountRequest> = {}): CsiMountRequest {
  return {
    pod,
    volumeName: 'data',
    readOnly: false,
    signal: never,
    source: { kind: 'persistent', volume, growBytes: undefined },
    ...more,
  };
}

function inline(pod: Pod, volume: object = {}): CsiMountRequest {
  return {
    pod,
    volumeName: 'data',
    readOnly: false,
    signal: never,
    source: { kind: 'inline', volume: { driver: NAME, ...volume } },
  };
}

async function setUp(t: TestContext, driverOptions: Partial<FakeCsiDriverOptions> = {}, driverSpec?: object) {
  const root = temporaryFolder();
  const driver = await startCsiDriver({ directory: join(root, 'driver'), ...driverOptions });
  t.after(() => driver.stop());
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const spec = driverSpec ?? { attachRequired: false };
  client.seed(csiDrivers, { metadata: { name: NAME }, spec } as unknown as KubeObject);
  const reported: string[] = [];
  const metrics = new MetricsRegistry();
  const make = async () => {
    const drivers = new CsiDrivers({
      node: undefined,
      logger: silentLogger,
      observe: csiCallMetrics(metrics, clock),
    });
    t.after(() => drivers.close());
    await drivers.register({ name: NAME, endpoint: driver.endpoint, supportedVersions: ['1.0.0'] }, never);
    const volumes: CsiVolumes = new CsiVolumes({
      rootDirectory: root,
      nodeName: 'n1',
      client,
      clock,
      logger: silentLogger,
      drivers,
      sources: {
        secret: async (namespace, name) => ({ from: `${namespace}/${name}` }),
        token: async (_pod, { audience = '', expirationSeconds }) => ({
          token: `token for ${audience}, ${expirationSeconds}`,
          expirationTimestamp: '2026-01-02T04:04:05Z',
        }),
      },
      reportedInUse: () => reported,
      onInUseChange: () => void reported.splice(0, reported.length, ...volumes.volumesInUse()),
    });
    await volumes.recover();
    return volumes;
  };
  const volumes = await make();
  const requests = (method: string) =>
    driver.calls.filter((call) => call.method === method).map(({ request }) => request);
  /** Returns a message of the last publish: `volumeCapability`, `volumeContext`. */
  const published = <T>(field: string): T => requests('nodePublishVolume').at(-1)?.[field] as T;
  const order = () => driver.calls.map(({ method }) => method).filter((method) => !/Info|Capabilities/.test(method));
  return { root, driver, clock, client, volumes, make, requests, published, order, reported, metrics };
}

describe('volumes of CSI drivers', () => {
  it('are measured by the calls to their driver, with the status code of gRPC', async (t) => {
    const { driver, metrics, volumes } = await setUp(t);
    await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    driver.behave.set('nodePublishVolume', () => {
      throw internal('no');
    });
    await assert.rejects(volumes.mount(persistent(podOf('b'), volumeOf('w'))));
    const counts = metrics
      .text()
      .split('\n')
      .filter((line) => line.startsWith('csi_operations_seconds_count') && line.includes('NodePublishVolume'));
    const labels = (code: string): string =>
      `driver_name="${NAME}",grpc_status_code="${code}",method_name="/csi.v1.Node/NodePublishVolume",migrated="false"`;
    assert.deepEqual(counts, [
      `csi_operations_seconds_count{${labels('Internal')}} 1`,
      `csi_operations_seconds_count{${labels('OK')}} 1`,
    ]);
  });

  it('are staged once a node, published for each pod, and taken back in the opposite order', async (t) => {
    const { volumes, order, requests, root } = await setUp(t, { capabilities: ['stageUnstage'] });
    const first = await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    const second = await volumes.mount(persistent(podOf('b'), volumeOf('v')));
    assert.equal(first.path, join(root, 'pods/a/volumes/kubernetes.io~csi/v/mount'));
    assert.equal(second.path, join(root, 'pods/b/volumes/kubernetes.io~csi/v/mount'));
    await volumes.unmountPod('a');
    assert.deepEqual(order(), ['nodeStageVolume', 'nodePublishVolume', 'nodePublishVolume', 'nodeUnpublishVolume']);
    await volumes.unmountPod('b');
    assert.deepEqual(order().slice(4), ['nodeUnpublishVolume', 'nodeUnstageVolume']);
    const staging = String(requests('nodeStageVolume')[0]?.['stagingTargetPath']);
    assert.match(staging, /plugins\/kubernetes\.io\/csi\/csi\.example\.com\/[0-9a-f]{64}\/globalmount$/);
    assert.equal(requests('nodePublishVolume')[0]?.['stagingTargetPath'], staging);
    assert.deepEqual(requests('nodeUnstageVolume')[0], { volumeId: 'handle-v', stagingTargetPath: staging });
    await assert.rejects(stat(staging), /ENOENT/);
    await assert.rejects(stat(join(root, 'pods/b/volumes/kubernetes.io~csi/v')), /ENOENT/);
  });

  it('are not staged by a driver that does not stage', async (t) => {
    const { volumes, order, requests } = await setUp(t);
    await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    await volumes.unmountPod('a');
    assert.deepEqual(order(), ['nodePublishVolume', 'nodeUnpublishVolume']);
    assert.equal(requests('nodePublishVolume')[0]?.['stagingTargetPath'], '');
  });

  it('are passed to the driver with all fields of the volume', async (t) => {
    const { volumes, requests } = await setUp(t, { capabilities: ['stageUnstage'] });
    const csi = {
      fsType: 'xfs',
      volumeAttributes: { size: 'small' },
      nodeStageSecretRef: { namespace: 'x', name: 'stage' },
      nodePublishSecretRef: { namespace: 'x', name: 'publish' },
    };
    const volume = volumeOf('v', csi, { mountOptions: ['noatime'], accessModes: ['ReadWriteMany'] });
    await volumes.mount(persistent(podOf('a'), volume, { readOnly: true }));
    const [stage] = requests('nodeStageVolume');
    const [publish] = requests('nodePublishVolume');
    const capability = {
      block: null,
      mount: { fsType: 'xfs', mountFlags: ['noatime'], volumeMountGroup: '' },
      accessMode: { mode: 5 },
    };
    assert.deepEqual(stage?.['volumeCapability'], capability);
    assert.deepEqual(publish?.['volumeCapability'], capability);
    assert.deepEqual([stage?.['secrets'], publish?.['secrets']], [{ from: 'x/stage' }, { from: 'x/publish' }]);
    assert.deepEqual([stage?.['volumeContext'], publish?.['volumeContext']], [{ size: 'small' }, { size: 'small' }]);
    assert.equal(publish?.['readonly'], true);
  });

  const modes: [string, 'singleNodeMultiWriter' | undefined, number][] = [
    ['ReadWriteOnce', undefined, 1],
    ['ReadWriteOncePod', undefined, 1],
    ['ReadOnlyMany', undefined, 3],
    ['ReadWriteMany', undefined, 5],
    ['ReadWriteOncePod', 'singleNodeMultiWriter', 6],
    ['ReadWriteOnce', 'singleNodeMultiWriter', 7],
  ];
  for (const [mode, capability, number] of modes) {
    it(`are ${mode} as CSI numbers it${capability === undefined ? '' : ' for a driver that distinguishes single writers'}`, async (t) => {
      const { volumes, published } = await setUp(t, { capabilities: capability === undefined ? [] : [capability] });
      await volumes.mount(persistent(podOf('a'), volumeOf('v', {}, { accessModes: [mode] })));
      assert.deepEqual(published<{ accessMode: object }>('volumeCapability').accessMode, { mode: number });
    });
  }

  it('pass the pod and tokens of its service account to a driver that requests them', async (t) => {
    const { volumes, published } = await setUp(
      t,
      {},
      {
        attachRequired: false,
        podInfoOnMount: true,
        tokenRequests: [{ audience: 'vault', expirationSeconds: 600 }, { audience: '' }],
      },
    );
    await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    const { 'csi.storage.k8s.io/serviceAccount.tokens': tokens, ...context } =
      published<Record<string, string>>('volumeContext');
    assert.deepEqual(context, {
      'csi.storage.k8s.io/pod.name': 'pod-a',
      'csi.storage.k8s.io/pod.namespace': 'ns',
      'csi.storage.k8s.io/pod.uid': 'a',
      'csi.storage.k8s.io/serviceAccount.name': 'robot',
      'csi.storage.k8s.io/ephemeral': 'false',
    });
    assert.deepEqual(JSON.parse(tokens ?? ''), {
      vault: { token: 'token for vault, 600', expirationTimestamp: '2026-01-02T04:04:05Z' },
      '': { token: 'token for , 3600', expirationTimestamp: '2026-01-02T04:04:05Z' },
    });
  });

  it('pass tokens as a secret if the driver requests this', async (t) => {
    const { volumes, requests } = await setUp(
      t,
      {},
      { attachRequired: false, serviceAccountTokenInSecrets: true, tokenRequests: [{ audience: 'vault' }] },
    );
    await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    const [publish] = requests('nodePublishVolume');
    assert.deepEqual(publish?.['volumeContext'], {});
    assert.match(JSON.stringify(publish?.['secrets']), /token for vault/);
  });

  it('are published again with new tokens only for a driver that requests this', async (t) => {
    for (const [requiresRepublish, times] of [
      [true, 2],
      [false, 1],
    ] as const) {
      const { volumes, requests } = await setUp(t, {}, { attachRequired: false, requiresRepublish });
      const { refreshes } = await volumes.mount(persistent(podOf('a'), volumeOf('v')));
      assert.equal(refreshes, requiresRepublish);
      await volumes.mount(persistent(podOf('a'), volumeOf('v')));
      assert.equal(requests('nodePublishVolume').length, times);
    }
  });

  it('stay with a running pod when the driver fails to publish them again', async (t) => {
    const { volumes, driver, root } = await setUp(t, {}, { attachRequired: false, requiresRepublish: true });
    await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    driver.behave.set('nodePublishVolume', () => Promise.reject(internal('no')));
    await assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf('v'))), /desc = no/);
    assert.equal((await stat(join(root, 'pods/a/volumes/kubernetes.io~csi/v/vol_data.json'))).isFile(), true);
  });

  it('may stand in the pod, with a handle of the pod and a secret of its namespace', async (t) => {
    const { volumes, order, requests, published, root } = await setUp(
      t,
      { capabilities: ['stageUnstage'] },
      { attachRequired: true, podInfoOnMount: true, volumeLifecycleModes: ['Persistent', 'Ephemeral'] },
    );
    const source = { volumeAttributes: { size: '1' }, nodePublishSecretRef: { name: 's' } };
    const { path } = await volumes.mount(inline(podOf('a'), source));
    assert.equal(path, join(root, 'pods/a/volumes/kubernetes.io~csi/data/mount'));
    const [publish] = requests('nodePublishVolume');
    assert.match(String(publish?.['volumeId']), /^csi-[0-9a-f]{64}$/);
    assert.deepEqual(publish?.['secrets'], { from: 'ns/s' });
    assert.equal(published<Record<string, string>>('volumeContext')['csi.storage.k8s.io/ephemeral'], 'true');
    await volumes.unmountPod('a');
    assert.deepEqual(order(), ['nodePublishVolume', 'nodeUnpublishVolume']);
  });

  it('are refused in a pod where the driver does not offer it', async (t) => {
    const { volumes } = await setUp(t);
    await assert.rejects(volumes.mount(inline(podOf('a'))), {
      name: 'VolumeStepError',
      step: 'MountVolume.SetUp',
      volume: 'data',
      message:
        'kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode "Ephemeral" not supported by driver csi.example.com (only supports ["Persistent"])',
    });
  });

  it('report a driver that is not registered in the step and the words of the kubelet', async (t) => {
    const { client } = await setUp(t);
    const volumes = new CsiVolumes({
      rootDirectory: temporaryFolder(),
      nodeName: 'n1',
      client,
      clock: new FakeClock(),
      logger: silentLogger,
      drivers: new CsiDrivers({ node: undefined, logger: silentLogger }),
      sources: { secret: async () => ({}), token: async () => ({ token: '', expirationTimestamp: '' }) },
      reportedInUse: () => [],
      onInUseChange: () => undefined,
    });
    const missing = 'driver name csi.example.com not found in the list of registered CSI drivers';
    await assert.rejects(volumes.mount(inline(podOf('a'))), {
      step: 'MountVolume.SetUp',
      message: `kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: ${missing}`,
    });
    await assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf('v'))), {
      step: 'MountVolume.MountDevice',
      message: `kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: ${missing}`,
    });
    await assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf('v', {}, { volumeMode: 'Block' }))), {
      step: 'MapVolume.SetUpDevice',
      message: `kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: ${missing}`,
    });
  });

  it('wait until they are attached, after the node has reported that it uses them', async (t) => {
    const { volumes, clock, client, requests, reported } = await setUp(t, {}, { attachRequired: true });
    const mounting = volumes.mount(persistent(podOf('a'), volumeOf('v')));
    await clock.advance(10_000);
    assert.deepEqual(reported, [`kubernetes.io/csi/${NAME}^handle-v`]);
    assert.deepEqual(requests('nodePublishVolume'), []);
    client.seed(volumeAttachments, {
      metadata: { name: attachmentName('handle-v', NAME, 'n1') },
      spec: { attacher: NAME, nodeName: 'n1', source: { persistentVolumeName: 'v' } },
      status: { attached: true, attachmentMetadata: { device: '/dev/x' } },
    } as unknown as KubeObject);
    const advancing = clock.advance(10_000);
    await mounting;
    await advancing;
    assert.deepEqual(requests('nodePublishVolume')[0]?.['publishContext'], { device: '/dev/x' });
    await volumes.unmountPod('a');
    assert.deepEqual(reported, []);
  });

  it('report why they could not be attached', async (t) => {
    const { volumes, clock, client } = await setUp(t, {}, { attachRequired: true });
    client.seed(volumeAttachments, {
      metadata: { name: attachmentName('handle-v', NAME, 'n1') },
      status: { attached: false, attachError: { message: 'no such disk' } },
    } as unknown as KubeObject);
    const failed = assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf('v'))), {
      step: 'MountVolume.WaitForAttach',
      volume: 'v',
      message: 'no such disk',
    });
    await clock.advance(1_000);
    await failed;
  });

  it('report a node without room to drivers that update their number of volumes, after they were asked for it', async (t) => {
    for (const [nodeAllocatableUpdatePeriodSeconds, name, infos] of [
      [10, 'VolumeLimitError', 2],
      [undefined, 'Error', 1],
    ] as const) {
      const { volumes, clock, client, driver } = await setUp(
        t,
        {},
        { attachRequired: true, nodeAllocatableUpdatePeriodSeconds },
      );
      client.seed(volumeAttachments, {
        metadata: { name: attachmentName('handle-v', NAME, 'n1') },
        status: { attached: false, attachError: { message: 'no room', errorCode: 8 } },
      } as unknown as KubeObject);
      const failed = assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf('v'))), (error: Error) => {
        assert.deepEqual([error.message, (error.cause as Error).name], ['no room', name]);
        return true;
      });
      await clock.advance(1_000);
      await failed;
      assert.equal(driver.calls.filter(({ method }) => method === 'nodeGetInfo').length, infos);
    }
  });

  it('are devices where the volume is one', async (t) => {
    const { volumes, requests, order, root } = await setUp(t, { capabilities: ['stageUnstage'] });
    const volume = volumeOf('v', {}, { volumeMode: 'Block' });
    const mounted = await volumes.mount(persistent(podOf('a'), volume));
    const device = join(root, 'plugins/kubernetes.io/csi/volumeDevices/publish/v/a');
    assert.deepEqual([mounted.path, mounted.isBlock, mounted.setsGroup], [device, true, false]);
    assert.equal(await readlink(join(root, 'pods/a/volumeDevices/kubernetes.io~csi/v')), device);
    const capability = requests('nodePublishVolume')[0]?.['volumeCapability'] as { block: object; mount: object };
    assert.deepEqual([capability.block, capability.mount], [{}, null]);
    await volumes.unmountPod('a');
    assert.deepEqual(order(), ['nodeStageVolume', 'nodePublishVolume', 'nodeUnpublishVolume', 'nodeUnstageVolume']);
    await assert.rejects(stat(device), /ENOENT/);
  });

  const groups: [string, object, object, boolean][] = [
    ['a single writer with a type of file system', {}, { fsType: 'ext4' }, true],
    ['no type of file system', {}, {}, false],
    ['the policy None', { fsGroupPolicy: 'None' }, { fsType: 'ext4' }, false],
    ['the policy File', { fsGroupPolicy: 'File' }, {}, true],
  ];
  for (const [what, spec, csi, expected] of groups) {
    it(`${expected ? 'get' : 'do not get'} the pod's group with ${what}`, async (t) => {
      const { volumes } = await setUp(t, {}, { attachRequired: false, ...spec });
      const pod = podOf('a', { securityContext: { fsGroup: 1234 } });
      assert.equal((await volumes.mount(persistent(pod, volumeOf('v', csi)))).setsGroup, expected);
    });
  }

  it('leave the group to a driver that sets it', async (t) => {
    const { volumes, requests } = await setUp(t, { capabilities: ['mountGroup'] });
    const pod = podOf('a', { securityContext: { fsGroup: 1234 } });
    const { setsGroup } = await volumes.mount(persistent(pod, volumeOf('v', { fsType: 'ext4' })));
    assert.equal(setsGroup, false);
    const capability = requests('nodePublishVolume')[0]?.['volumeCapability'] as {
      mount: { volumeMountGroup: string };
    };
    assert.equal(capability.mount.volumeMountGroup, '1234');
  });

  it('are grown where the volume has become larger', async (t) => {
    const { volumes, requests } = await setUp(t, { capabilities: ['expand'] });
    const source = { kind: 'persistent', volume: volumeOf('v'), growBytes: 2048 } as const;
    const request = persistent(podOf('a'), volumeOf('v'));
    assert.deepEqual(
      [(await volumes.mount(request)).grown, (await volumes.mount({ ...request, source })).grown],
      [false, true],
    );
    assert.deepEqual(requests('nodeExpandVolume')[0]?.['capacityRange'], { requiredBytes: 2048, limitBytes: 0 });
    assert.equal(requests('nodePublishVolume').length, 1);
  });

  it('are measured by a driver that can', async (t) => {
    const { volumes } = await setUp(t, { capabilities: ['volumeStats'] });
    const { path } = await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    assert.deepEqual(await volumes.usage('a', path), {
      capacityBytes: 1000,
      availableBytes: 600,
      driver: NAME,
      usedBytes: 400,
      inodes: 100,
      inodesFree: 90,
      inodesUsed: 10,
    });
  });

  it('leave nothing behind when the driver is sure that it failed', async (t) => {
    const { volumes, driver, root, order } = await setUp(t);
    driver.behave.set('nodePublishVolume', () => Promise.reject(internal('no disk')));
    await assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf('v'))), {
      step: 'MountVolume.SetUp',
      volume: 'v',
      message: 'rpc error: code = Internal desc = no disk',
    });
    await assert.rejects(stat(join(root, 'pods/a/volumes/kubernetes.io~csi/v')), /ENOENT/);
    await volumes.unmountPod('a');
    assert.deepEqual(order(), ['nodePublishVolume']);
  });

  it('are removed with the pod if the outcome of a call is unknown', async (t) => {
    const { volumes, driver, order } = await setUp(t);
    driver.behave.set('nodePublishVolume', () => Promise.reject(deadlineExceeded()));
    await assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf('v'))), /DeadlineExceeded/);
    await volumes.unmountPod('a');
    assert.deepEqual(order(), ['nodePublishVolume', 'nodeUnpublishVolume']);
  });

  it('of one name wait for each other, and for no other volume', async (t) => {
    const { volumes, driver, order } = await setUp(t);
    const release = Promise.withResolvers<void>();
    let isFirst = true;
    driver.behave.set('nodePublishVolume', () => {
      if (!isFirst) return;
      isFirst = false;
      return release.promise;
    });
    const hung = volumes.mount(persistent(podOf('a'), volumeOf('v')));
    while (isFirst) await new Promise((resolve) => setImmediate(resolve));
    const next = volumes.mount(persistent(podOf('c'), volumeOf('v')));
    await volumes.mount(persistent(podOf('b'), volumeOf('other')));
    assert.equal(order().filter((call) => call === 'nodePublishVolume').length, 2);
    release.resolve();
    await Promise.all([hung, next]);
    assert.equal(order().filter((call) => call === 'nodePublishVolume').length, 3);
  });

  it('of pods from before a restart are found on the disk, and taken down', async (t) => {
    const { volumes, make, order, root } = await setUp(t, { capabilities: ['stageUnstage'] });
    await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    await volumes.mount(persistent(podOf('a'), volumeOf('b', {}, { volumeMode: 'Block' })));
    const data = await readFile(join(root, 'pods/a/volumes/kubernetes.io~csi/v/vol_data.json'), 'utf8');
    assert.deepEqual(JSON.parse(data), {
      specVolID: 'v',
      volumeHandle: 'handle-v',
      driverName: NAME,
      nodeName: 'n1',
      volumeLifecycleMode: 'Persistent',
    });
    const restarted = await make();
    await restarted.unmountPod('a');
    assert.deepEqual(order().slice(4).toSorted(), [
      'nodeUnpublishVolume',
      'nodeUnpublishVolume',
      'nodeUnstageVolume',
      'nodeUnstageVolume',
    ]);
  });

  it('that were staged for a pod that never got them are unstaged', async (t) => {
    const { volumes, driver, make, order, root } = await setUp(t, { capabilities: ['stageUnstage'] });
    driver.behave.set('nodePublishVolume', () => Promise.reject(internal('no')));
    await assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf('v'))));
    const restarted = await make();
    await restarted.cleanUnused();
    assert.deepEqual(order(), ['nodeStageVolume', 'nodePublishVolume', 'nodeUnstageVolume']);
    await mkdir(join(root, 'pods/b'), { recursive: true });
    await restarted.cleanUnused();
    assert.equal(order().length, 3);
  });

  it('whose record is damaged keep neither the agent nor other volumes from going on, and are not removed', async (t) => {
    const { volumes, driver, make, order, root } = await setUp(t, { capabilities: ['stageUnstage'] });
    driver.behave.set('nodePublishVolume', () => Promise.reject(internal('no')));
    for (const name of ['v', 'w']) await assert.rejects(volumes.mount(persistent(podOf('a'), volumeOf(name))));
    const staged = join(root, 'plugins/kubernetes.io/csi', NAME);
    const [first = ''] = await readdir(staged);
    await writeFile(join(staged, first, 'vol_data.json'), '{');
    const restarted = await make();
    await restarted.cleanUnused();
    assert.deepEqual(order().slice(4), ['nodeUnstageVolume']);
    assert.deepEqual(await readdir(staged), [first]);
  });

  it('that are attached stay in use over a restart', async (t) => {
    const { volumes, make, client } = await setUp(t, {}, {});
    client.seed(volumeAttachments, {
      metadata: { name: attachmentName('handle-v', NAME, 'n1') },
      status: { attached: true },
    } as unknown as KubeObject);
    await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    assert.deepEqual((await make()).volumesInUse(), [`kubernetes.io/csi/${NAME}^handle-v`]);
  });

  it('of a missing driver make their pod wait for the driver', async (t) => {
    const { volumes, root } = await setUp(t);
    await volumes.mount(persistent(podOf('a'), volumeOf('v')));
    const drivers = new CsiDrivers({ node: undefined, logger: silentLogger });
    const others = new CsiVolumes({
      rootDirectory: root,
      nodeName: 'n1',
      client: undefined,
      clock: new FakeClock(),
      logger: silentLogger,
      drivers,
      sources: { secret: async () => ({}), token: async () => ({ token: '', expirationTimestamp: '' }) },
      reportedInUse: () => [],
      onInUseChange: () => undefined,
    });
    await assert.rejects(others.unmountPod('a'), {
      message: 'driver name csi.example.com not found in the list of registered CSI drivers',
    });
  });
});
