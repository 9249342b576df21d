/** The default storage class on both runtimes: volumes are made where the pod runs, outlive it, and go with their claim. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

for (const [on, skip, cidr] of [
  ['docker', skipWithoutDocker, '10.227.0.0/16'],
  ['containerd', skipWithoutContainerd, '10.228.0.0/16'],
] as const) {
  describe(`local volumes, on ${on}`, { skip, timeout: 280_000 }, () => {
    let cluster: RunningCluster;
    const root = (): string => join(cluster.directory, 'agent/local-volumes');
    const apply = (...objects: object[]): string =>
      cluster.run(['apply', '-f', '-'], {
        input: JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects }),
      });
    const claimOf = (name: string): object => ({
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name },
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } },
    });
    const podOf = (name: string, claim: string, command: string): object => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name },
      spec: {
        terminationGracePeriodSeconds: 0,
        securityContext: { runAsUser: 1234 },
        containers: [
          {
            name: 'c',
            image: DEMO_IMAGE,
            command: ['sh', '-c', `${command}; sleep 1000`],
            volumeMounts: [{ name: 'v', mountPath: '/data' }],
          },
        ],
        volumes: [{ name: 'v', persistentVolumeClaim: { claimName: claim } }],
      },
    });
    const get = (...args: string[]): string => cluster.kubectl(['get', ...args]).stdout;
    const isRunning = (name: string): Promise<true> =>
      until(`${name} to run`, () => get('pod', name, '-o', 'jsonpath={.status.phase}') === 'Running' || undefined);
    const volumeOf = (claim: string): string => get('pvc', claim, '-o', 'jsonpath={.spec.volumeName}');
    const sh = (pod: string, command: string): string => cluster.run(['exec', pod, '--', 'sh', '-c', command]);

    before(async () => {
      cluster = await RunningCluster.start(['--service-proxy', 'none', '--cluster-cidr', cidr], on);
    });
    after(() => cluster?.remove());

    test('a claim without a class gets a folder that any user may write to and no other pod sees', async () => {
      apply(claimOf('c'), podOf('writer', 'c', 'echo kept > /data/file'));
      await isRunning('writer');
      const volume = volumeOf('c');
      await until('the file', () => existsSync(join(root(), volume, 'file')));
      assert.equal(readFileSync(join(root(), volume, 'file'), 'utf8'), 'kept\n');
      const path = get('pv', volume, '-o', 'jsonpath={.spec.local.path}');
      assert.equal(path, join(root(), volume));
    });

    test('its content outlives the pod and the agent', async () => {
      cluster.run(['delete', 'pod', 'writer']);
      await cluster.stop('SIGKILL');
      await cluster.launch();
      apply(podOf('reader', 'c', 'true'));
      await isRunning('reader');
      assert.equal(sh('reader', 'cat /data/file'), 'kept\n');
    });

    test('a claim that grows has its new size at once', async () => {
      const request = { spec: { resources: { requests: { storage: '2Gi' } } } };
      cluster.run(['patch', 'pvc', 'c', '-p', JSON.stringify(request)]);
      await until('the new size', () => get('pvc', 'c', '-o', 'jsonpath={.status.capacity.storage}') === '2Gi');
    });

    test('the usage of the volume is in the statistics of the node', async () => {
      const node = get('nodes', '-o', 'jsonpath={.items[0].metadata.name}');
      await until('the usage', () => {
        const summary = JSON.parse(get('--raw', `/api/v1/nodes/${node}/proxy/stats/summary`)) as {
          pods: { volume?: { usedBytes?: number; pvcRef?: { name: string } }[] }[];
        };
        const found = summary.pods.flatMap(({ volume = [] }) => volume).find(({ pvcRef }) => pvcRef?.name === 'c');
        return (found?.usedBytes ?? 0) > 0 || undefined;
      });
    });

    test('the folder is removed with the claim', async () => {
      const volume = volumeOf('c');
      cluster.run(['delete', 'pod', 'reader']);
      cluster.run(['delete', 'pvc', 'c']);
      await until('the volume to go', () => cluster.kubectl(['get', 'pv', volume]).code !== 0);
      await until('an empty root', () => readdirSync(root()).length === 0);
    });

    test('a volume that a user writes by hand removes nothing of the host', async () => {
      const victim = join(cluster.directory, 'victim');
      mkdirSync(victim);
      writeFileSync(join(victim, 'precious'), 'x');
      const node = get('nodes', '-o', 'jsonpath={.items[0].metadata.labels.kubernetes\\.io/hostname}');
      const nodeName = get('nodes', '-o', 'jsonpath={.items[0].metadata.name}');
      const expression = { key: 'kubernetes.io/hostname', operator: 'In', values: [node] };
      apply(
        {
          apiVersion: 'v1',
          kind: 'PersistentVolume',
          metadata: {
            name: 'by-hand',
            annotations: {
              'pv.kubernetes.io/provisioned-by': 'orchlet.local/local-volumes',
              'orchlet.local/node': nodeName,
            },
          },
          spec: {
            capacity: { storage: '1Gi' },
            accessModes: ['ReadWriteOnce'],
            persistentVolumeReclaimPolicy: 'Delete',
            storageClassName: 'local',
            local: { path: victim },
            claimRef: { namespace: 'default', name: 'taken' },
            nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [expression] }] } },
          },
        },
        claimOf('taken'),
      );
      await until('the claim to be bound', () => volumeOf('taken') === 'by-hand');
      cluster.run(['delete', 'pvc', 'taken']);
      await until('the volume to go', () => cluster.kubectl(['get', 'pv', 'by-hand']).code !== 0);
      assert.deepEqual(readdirSync(victim), ['precious']);
    });
  });
}
