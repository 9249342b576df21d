/** A critical pod is bound to a full node without the scheduler, and another pod is evicted for it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { skipWithoutContainerd } from './container-runtimes.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const CGROUP = '/orchlet-critical';
const LIMITS = [
  '--max-pods',
  '2',
  '--cgroup-root',
  '/orchlet-critical',
  '--cluster-cidr',
  '10.111.0.0/17',
  '--service-proxy',
  'none',
];

test(
  'a full node ends its least important pod for a critical one',
  { skip: skipWithoutContainerd, timeout: 180_000 },
  async () => {
    const cluster = await RunningCluster.start(LIMITS, 'containerd');
    try {
      const node = cluster.run(['get', 'nodes', '-o', 'jsonpath={.items[0].metadata.name}']);
      const pod = (name: string, spec: object, namespace = 'default'): object => ({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name, namespace },
        spec: {
          nodeName: node,
          terminationGracePeriodSeconds: 0,
          containers: [{ name: 'c', image: DEMO_IMAGE, command: ['sleep', '1000'], ...spec }],
          ...(namespace === 'default' ? {} : { priorityClassName: 'system-node-critical' }),
        },
      });
      const apply = (...items: object[]): string =>
        cluster.run(['apply', '-f', '-'], { input: JSON.stringify({ apiVersion: 'v1', kind: 'List', items }) });
      const get = (args: string, path: string): string =>
        cluster.run(['get', ...args.split(' '), '-o', `jsonpath=${path}`]);
      const running = (name: string): Promise<true> =>
        until(`${name} to run`, () => get(`pod ${name}`, '{.status.phase}') === 'Running' || undefined);
      const requests = { cpu: '10m' };
      apply(pod('burstable', { resources: { requests } }), pod('best-effort', {}));
      await running('burstable');
      await running('best-effort');
      apply(pod('refused', {}));
      await until('the refusal', () => get('pod refused', '{.status.reason}') === 'OutOfpods' || undefined);
      apply(pod('critical', {}, 'kube-system'));
      await until(
        'the critical pod to run',
        () => get('pod critical -n kube-system', '{.status.phase}') === 'Running' || undefined,
      );
      assert.deepEqual(
        ['{.status.phase}', '{.status.reason}', '{.status.message}'].map((path) => get('pod best-effort', path)),
        ['Failed', 'Preempting', 'Preempted in order to admit critical pod'],
      );
      assert.equal(
        get('pod best-effort', '{.status.conditions[?(@.type=="DisruptionTarget")].reason}'),
        'TerminationByKubelet',
      );
      assert.equal(get('pod burstable', '{.status.phase}'), 'Running');
      await until(
        'the event',
        () => get('events', '{.items[*].reason}').split(' ').includes('Preempting') || undefined,
      );
      const reasons = get('events', '{.items[?(@.involvedObject.kind=="Node")].reason}').split(' ');
      for (const reason of ['Starting', 'NodeAllocatableEnforced', 'NodeReady'])
        assert.ok(reasons.includes(reason), reasons.join());
    } finally {
      await cluster.remove();
      // Only empty cgroups are removed, because a pod's cgroup may be in use for another moment.
      for (const left of globSync(join('/sys/fs/cgroup', '{.,*}', CGROUP)))
        spawnSync('find', [left, '-depth', '-type', 'd', '-exec', 'rmdir', '{}', ';']);
    }
  },
);
