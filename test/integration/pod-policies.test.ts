/** Tests that an orchlet cluster enforces network policies on the pods of both runtimes, from a pod's first packet on. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { kubectls } from './kubectl.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ROOT = join(import.meta.dirname, '../..');
const hasNft = spawnSync('nft', ['list', 'tables']).status === 0;

const DENY = [
  { name: 'web', podSelector: { matchLabels: { app: 'hello' } }, policyTypes: ['Ingress'] },
  { name: 'jail', podSelector: { matchLabels: { role: 'prisoner' } }, policyTypes: ['Egress'] },
];
const FRIENDS = [{ from: [{ podSelector: { matchLabels: { role: 'friend' } } }], ports: [{ port: 'http' }] }];

for (const [runtime, without] of [
  ['docker', skipWithoutDocker],
  ['containerd', skipWithoutContainerd],
] as const) {
  const skip =
    without !== false ? without : !hasNft ? 'nft cannot be used here' : kubectls().length === 0 ? 'no kubectl' : false;
  describe(`network policies for pods of ${runtime}`, { skip, timeout: 250_000 }, () => {
    let cluster: RunningCluster;
    let address = '';

    before(async () => {
      cluster = await RunningCluster.start(
        ['--cluster-cidr', '10.216.0.0/16', '--service-cluster-ip-range', '10.217.0.0/16'],
        runtime,
      );
      apply(
        DENY.map(({ name, ...spec }) => ({
          apiVersion: 'networking.k8s.io/v1',
          kind: 'NetworkPolicy',
          metadata: { name, namespace: 'default' },
          spec: name === 'web' ? { ...spec, ingress: FRIENDS } : spec,
        })),
      );
      cluster.run(['apply', '-f', join(ROOT, 'examples/hello.yaml')]);
      cluster.run(['rollout', 'status', 'deploy/hello', '--timeout=90s']);
      address = cluster.run(['get', 'pods', '-l', 'app=hello', '-o', 'jsonpath={.items[0].status.podIP}']);
    });
    after(async () => {
      await cluster?.remove();
    });

    function apply(items: readonly object[]): void {
      const file = join(cluster.directory, 'objects.json');
      writeFileSync(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
      cluster.run(['apply', '-f', file]);
    }

    /** Runs a pod whose first act is a request, and returns what it says of it. */
    async function firstRequest(name: string, labels: Record<string, string>, url: string): Promise<string> {
      const command = `timeout 5 wget -qO- ${url} || echo blocked; sleep 600`;
      const container = {
        ...{ name: 'main', image: DEMO_IMAGE, imagePullPolicy: 'IfNotPresent' },
        command: ['/bin/sh', '-c', command],
      };
      const spec = { terminationGracePeriodSeconds: 0, containers: [container] };
      apply([{ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: 'default', labels }, spec }]);
      return until(
        `the request of ${name}`,
        () => /hello from|blocked/.exec(cluster.kubectl(['logs', name]).stdout)?.[0],
        60_000,
      );
    }

    test('let in whom they allow, by address and by service, and the probes of the node', async () => {
      assert.equal(await firstRequest('friend', { role: 'friend' }, `http://${address}:8080/`), 'hello from');
      assert.equal(await firstRequest('client', { role: 'friend' }, 'http://hello/'), 'hello from');
    });

    test('keep out all others', async () => {
      assert.equal(await firstRequest('stranger', {}, `http://${address}:8080/`), 'blocked');
      assert.equal(await firstRequest('caller', {}, 'http://hello/'), 'blocked');
    });

    test('apply to the first packet of a pod', async () => {
      const labels = { role: 'prisoner' };
      apply([
        {
          apiVersion: 'networking.k8s.io/v1',
          kind: 'NetworkPolicy',
          metadata: { name: 'web', namespace: 'default' },
          spec: { podSelector: { matchLabels: { app: 'hello' } }, policyTypes: ['Ingress'], ingress: [{}] },
        },
      ]);
      assert.equal(await firstRequest('free', {}, `http://${address}:8080/`), 'hello from');
      assert.equal(await firstRequest('prisoner', labels, `http://${address}:8080/`), 'blocked');
    });

    test('leave no rules behind', async () => {
      assert.match(spawnSync('nft', ['list', 'tables'], { encoding: 'utf8' }).stdout, /orchlet_policy_/);
      await cluster.stop('SIGINT');
      assert.doesNotMatch(spawnSync('nft', ['list', 'tables'], { encoding: 'utf8' }).stdout, /orchlet_policy_/);
    });
  });
}
