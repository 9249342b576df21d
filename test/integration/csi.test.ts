/**
 * Tests volumes of a CSI driver in a cluster on real containers. The driver is a gRPC server in this process that bind-mounts
 * directories, with an attacher. Covers registration, attaching, staging, publishing, inline volumes, and their removal after
 * the node was killed.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { systemClock } from '../../api/machinery/clock.ts';
import { hostMounter } from '../../agent/volumes/mounter.ts';
import { type FakeCsiDriver, startCsiDriver } from '../fakes/csi-driver.ts';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const DRIVER = 'csi.example.com';

for (const [on, skip, cidr] of [
  ['docker', skipWithoutDocker, '10.221.0.0/16'],
  ['containerd', skipWithoutContainerd, '10.222.0.0/16'],
] as const) {
  describe(`a CSI driver, on ${on}`, { skip, timeout: 280_000 }, () => {
    let cluster: RunningCluster;
    let driver: FakeCsiDriver;
    let attacher: Promise<void>;
    const stop = new AbortController();

    /** Runs kubectl and resolves to its output. The call must not block, because the driver responds in this process. */
    const kubectl = async (args: readonly string[], input = ''): Promise<string> => {
      const child = cluster.spawn(args);
      let [stdout, stderr] = ['', ''];
      child.stdout?.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
      child.stderr?.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
      child.stdin?.end(input);
      const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
      if (code !== 0) throw new Error(`kubectl ${args.join(' ')} ended with ${code}: ${stderr}`);
      return stdout;
    };
    const apply = (...objects: object[]): Promise<string> =>
      kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects }));
    const podOf = (name: string, volume: object, more: object = {}): object => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name },
      spec: {
        terminationGracePeriodSeconds: 0,
        securityContext: { fsGroup: 4321 },
        containers: [
          {
            name: 'c',
            image: DEMO_IMAGE,
            command: ['sh', '-c', 'cat /data/hello; echo from-the-pod > /data/written; ls -ldn /data; sleep 1000'],
            volumeMounts: [{ name: 'data', mountPath: '/data' }],
            ...more,
          },
        ],
        volumes: [{ name: 'data', ...volume }],
      },
    });
    const get = (args: string, path: string): Promise<string> =>
      kubectl(['get', ...args.split(' '), '-o', `jsonpath=${path}`]);
    const running = (name: string): Promise<true> =>
      until(`${name} to run`, async () => (await get(`pod ${name}`, '{.status.phase}')) === 'Running' || undefined);
    const calls = (method: string): number => driver.calls.filter((call) => call.method === method).length;
    const gone = (name: string): Promise<string> => kubectl(['delete', 'pod', name, '--wait=true', '--timeout=60s']);

    /** Polls like a driver's attacher. */
    const attach = async (): Promise<void> => {
      while (!stop.signal.aborted) {
        // The server is unavailable for a while after the node is killed.
        const found = await get(
          'volumeattachments',
          '{range .items[*]}{.metadata.name} {.status.attached}{"\\n"}{end}',
        ).catch(() => '');
        for (const line of found.split('\n')) {
          const [name = '', attached = ''] = line.split(' ');
          if (name === '' || attached === 'true') continue;
          const status = JSON.stringify({ status: { attached: true, attachmentMetadata: { lun: '7' } } });
          const patch = ['patch', 'volumeattachment', name, '--subresource=status', '--type=merge', '-p', status];
          await kubectl(patch).catch(() => '');
        }
        await systemClock.sleep(500);
      }
    };

    before(async () => {
      cluster = await RunningCluster.start(['--cluster-cidr', cidr], on);
      const registry = join(cluster.directory, 'agent/plugins_registry');
      mkdirSync(join(cluster.directory, 'driver/volumes/disk-1'), { recursive: true });
      writeFileSync(join(cluster.directory, 'driver/volumes/disk-1/hello'), 'hello from the disk\n');
      driver = await startCsiDriver({
        directory: join(cluster.directory, 'driver'),
        name: DRIVER,
        nodeId: 'node-7',
        maxVolumes: 8,
        topology: { 'topology.csi.example.com/rack': 'r1' },
        capabilities: ['stageUnstage'],
        mounter: hostMounter,
        registry,
      });
      attacher = attach();
      await apply({
        apiVersion: 'storage.k8s.io/v1',
        kind: 'CSIDriver',
        metadata: { name: DRIVER },
        spec: {
          attachRequired: true,
          podInfoOnMount: true,
          fsGroupPolicy: 'File',
          volumeLifecycleModes: ['Persistent', 'Ephemeral'],
        },
      });
      await apply(
        {
          apiVersion: 'v1',
          kind: 'PersistentVolume',
          metadata: { name: 'disk-1' },
          spec: {
            capacity: { storage: '1Gi' },
            accessModes: ['ReadWriteOnce'],
            storageClassName: '',
            csi: { driver: DRIVER, volumeHandle: 'disk-1', volumeAttributes: { tier: 'fast' } },
          },
        },
        {
          apiVersion: 'v1',
          kind: 'PersistentVolumeClaim',
          metadata: { name: 'claim' },
          spec: {
            accessModes: ['ReadWriteOnce'],
            storageClassName: '',
            volumeName: 'disk-1',
            resources: { requests: { storage: '1Gi' } },
          },
        },
      );
      await until(
        'the service account',
        async () => (await get('serviceaccount default', '{.metadata.name}')) === 'default' || undefined,
      );
    });
    after(async () => {
      stop.abort();
      await attacher;
      await driver?.stop();
      await cluster?.remove();
    });

    test('is listed by the node once it has registered', async () => {
      await until(
        'the registration',
        () => driver.registrations.some((status) => status.pluginRegistered) || undefined,
      );
      const found = JSON.parse(await get('csinodes', '{.items[0].spec.drivers}')) as object;
      assert.deepEqual(found, [
        {
          name: DRIVER,
          nodeID: 'node-7',
          topologyKeys: ['topology.csi.example.com/rack'],
          allocatable: { count: 8 },
        },
      ]);
      assert.equal(await get('nodes', '{.items[0].metadata.labels.topology\\.csi\\.example\\.com/rack}'), 'r1');
    });

    test('provides an attached persistent volume with the fsGroup of the pod', async () => {
      await apply(podOf('disk', { persistentVolumeClaim: { claimName: 'claim' } }));
      await running('disk');
      const log = await until('the log', async () => {
        const text = await kubectl(['logs', 'disk']);
        return text.includes('4321') ? text : undefined;
      });
      assert.match(log, /^hello from the disk\n/);
      assert.equal(readFileSync(join(cluster.directory, 'driver/volumes/disk-1/written'), 'utf8'), 'from-the-pod\n');
      const publish = driver.calls.find(({ method }) => method === 'nodePublishVolume')?.request;
      assert.deepEqual(publish?.['publishContext'], { lun: '7' });
      const context = publish?.['volumeContext'] as Record<string, string>;
      assert.deepEqual([context['tier'], context['csi.storage.k8s.io/pod.name']], ['fast', 'disk']);
      assert.equal(await get('nodes', '{.items[0].status.volumesInUse}'), `["kubernetes.io/csi/${DRIVER}^disk-1"]`);
    });

    test('unmounts and detaches the volume, although the agent was killed in the meantime', async () => {
      await cluster.stop('SIGKILL');
      const known = driver.registrations.length;
      await cluster.launch();
      await until(
        'the registration',
        () => driver.registrations.slice(known).some((status) => status.pluginRegistered) || undefined,
      );
      assert.equal(await get('pod disk', '{.status.containerStatuses[0].restartCount}'), '0');
      await gone('disk');
      await until('the volume to leave the node', () => calls('nodeUnstageVolume') > 0 || undefined);
      assert.equal(existsSync(join(cluster.directory, 'driver/volumes/disk-1/hello')), true);
      await until('the detachment', async () => (await get('volumeattachments', '{.items}')) === '[]' || undefined);
    });

    test('provides an inline volume', async () => {
      const published = calls('nodePublishVolume');
      await apply(podOf('inline', { csi: { driver: DRIVER, volumeAttributes: { kind: 'scratch' } } }));
      await running('inline');
      const publish = driver.calls.filter(({ method }) => method === 'nodePublishVolume')[published]?.request;
      const context = publish?.['volumeContext'] as Record<string, string>;
      assert.deepEqual([context['kind'], context['csi.storage.k8s.io/ephemeral']], ['scratch', 'true']);
      const unpublished = calls('nodeUnpublishVolume');
      await gone('inline');
      await until('the volume to go', () => calls('nodeUnpublishVolume') > unpublished || undefined);
    });
  });
}
