/**
 * Tests several nodes: three agents in network namespaces, each with its own container runtime, join a control plane with
 * `orchlet join`. Pods are spread over them, and one node is disconnected and returns.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { NodesOfOneHost, skipWithoutNamespaces } from './namespaced-nodes.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

interface Item {
  readonly metadata: { readonly name: string; readonly uid: string; readonly deletionTimestamp?: string };
  readonly spec: { readonly nodeName?: string; readonly taints?: readonly { key: string; effect: string }[] };
  readonly status: {
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly { readonly containerID?: string; readonly restartCount: number }[];
  };
}

const isTrue = (item: Item, type: string): boolean =>
  item.status.conditions?.some((condition) => condition.type === type && condition.status === 'True') === true;

const TOLERATIONS = ['not-ready', 'unreachable'].map((problem) => ({
  key: `node.kubernetes.io/${problem}`,
  operator: 'Exists',
  effect: 'NoExecute',
  tolerationSeconds: 1,
}));

function template(app: string, more: object): object {
  const container = {
    name: 'main',
    image: DEMO_IMAGE,
    imagePullPolicy: 'IfNotPresent',
    command: ['sh', '-c', 'echo "this is $HOSTNAME"; exec sleep 10000'],
  };
  return {
    metadata: { labels: { app } },
    spec: { containers: [container], terminationGracePeriodSeconds: 1, ...more },
  };
}

const selector = (app: string): object => ({ matchLabels: { app } });

const MANIFESTS = {
  apiVersion: 'v1',
  kind: 'List',
  items: [
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'web' },
      spec: { replicas: 6, selector: selector('web'), template: template('web', { tolerations: TOLERATIONS }) },
    },
    {
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: { name: 'each' },
      spec: { selector: selector('each'), template: template('each', {}) },
    },
  ],
};

describe('three nodes', { skip: skipWithoutNamespaces, timeout: 280_000 }, () => {
  let host: NodesOfOneHost;

  const kubectl = (args: readonly string[], input?: string): string => {
    const done = host.plane.kubectl(args, input === undefined ? {} : { input });
    if (done.code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${done.stderr}`);
    return done.stdout;
  };
  const list = (kind: string, ...more: readonly string[]): readonly Item[] =>
    (JSON.parse(kubectl(['get', kind, '-o', 'json', ...more])) as { items: Item[] }).items;
  const pods = (app: string): readonly Item[] => list('pods', '-l', `app=${app}`);
  const node = (name: string): Item => {
    const found = list('nodes').find(({ metadata }) => metadata.name === name);
    assert.ok(found, `node ${name}`);
    return found;
  };
  const nodesOf = (items: readonly Item[]): string[] =>
    [...new Set(items.map(({ spec }) => spec.nodeName ?? ''))].sort();
  const ready = (app: string, count: number): readonly Item[] | undefined => {
    const living = pods(app).filter((pod) => pod.metadata.deletionTimestamp === undefined);
    return living.length === count && living.every((pod) => isTrue(pod, 'Ready')) ? living : undefined;
  };

  before(async () => {
    host = await NodesOfOneHost.start(
      ['a', 'b', 'c'],
      // The grace period exceeds the lease duration by so much that no node is lost only because the machine is busy.
      ['--node-monitor-grace-period', '12s', '--node-monitor-period', '1s'],
    );
  });

  after(async () => {
    await host?.remove();
  });

  test('join with the command that token create prints, each with its own name, address and pod range', async () => {
    const orchlet = join(import.meta.dirname, '../../bin/orchlet');
    const made = spawnSync(
      orchlet,
      ['token', 'create', '--print-join-command', '--kubeconfig', host.plane.kubeconfig],
      { encoding: 'utf8' },
    );
    assert.equal(made.status, 0, made.stderr);
    // The administrator's kubeconfig contains loopback. Nodes use the address in `cluster-info`.
    await Promise.all(host.nodes.map((each) => each.join(made.stdout)));
    for (const each of host.nodes) each.startAgent();
    await until('three Ready nodes', () => {
      const found = list('nodes');
      return found.length === 3 && found.every((item) => isTrue(item, 'Ready')) ? true : undefined;
    }).catch((error: unknown) => {
      throw new Error(host.nodes.map((each) => `${each.name}:\n${each.logTail()}`).join('\n'), { cause: error });
    });
    const facts = kubectl([
      'get',
      'nodes',
      '-o',
      'jsonpath={range .items[*]}{.metadata.labels.kubernetes\\.io/hostname} {.status.addresses[0].address}{"\\n"}{end}',
    ]);
    assert.deepEqual(
      facts.trim().split('\n').sort(),
      host.nodes.map((each) => `${each.name} ${each.address}`),
    );
    const ranges = kubectl(['get', 'nodes', '-o', 'jsonpath={.items[*].spec.podCIDR}']).split(' ');
    assert.equal(new Set(ranges).size, 3, ranges.join(' '));
  });

  test('pods spread over all of them, and each agent serves logs and exec', async () => {
    kubectl(['apply', '-f', '-'], JSON.stringify(MANIFESTS));
    const spread = await until('six pods', () => ready('web', 6));
    assert.deepEqual(nodesOf(spread), ['a', 'b', 'c']);
    assert.deepEqual(nodesOf(await until('a pod of the daemon set each', () => ready('each', 3))), ['a', 'b', 'c']);
    for (const name of ['a', 'b', 'c']) {
      const pod = spread.find(({ spec }) => spec.nodeName === name)?.metadata.name ?? '';
      const logged = await until('the log of the pod', () => {
        const text = kubectl(['logs', pod]);
        return text === '' ? undefined : text;
      });
      assert.equal(logged, `this is ${pod}\n`);
      assert.equal(kubectl(['exec', pod, '--', 'hostname']), `${pod}\n`);
    }
  });

  test('a disconnected node is tainted, and its pods run elsewhere; it returns with the pods that it should run', async () => {
    const [, , third] = host.nodes;
    assert.ok(third);
    const lost = pods('web').filter(({ spec }) => spec.nodeName === 'c');
    const kept = pods('each').find(({ spec }) => spec.nodeName === 'c');
    assert.ok(lost.length > 0 && kept);
    third.cut(true);
    await until('the taints', () => {
      const { spec, status } = node('c');
      const unreachable = (spec.taints ?? []).filter(({ key }) => key === 'node.kubernetes.io/unreachable');
      const state = status.conditions?.find(({ type }) => type === 'Ready')?.status;
      return state === 'Unknown' && unreachable.length === 2 ? true : undefined;
    });
    const moved = await until('six pods without it', () => ready('web', 6));
    assert.deepEqual(nodesOf(moved), ['a', 'b']);
    // It is unknown whether the pods have terminated, so they stay terminating until their node reports.
    const waiting = pods('web').filter(({ spec }) => spec.nodeName === 'c');
    assert.deepEqual(
      waiting.map(({ metadata }) => metadata.uid).sort(),
      lost.map(({ metadata }) => metadata.uid).sort(),
    );
    assert.equal(third.docker(['ps', '-q', '--filter', 'name=k8s_main_web']).trim().split('\n').length, lost.length);

    third.cut(false);
    await until('the node Ready, without taints', () => {
      const back = node('c');
      return isTrue(back, 'Ready') && (back.spec.taints ?? []).length === 0 ? true : undefined;
    });
    await until('the end of its old pods', () =>
      pods('web').some(({ spec }) => spec.nodeName === 'c') ? undefined : true,
    );
    assert.equal(third.docker(['ps', '-q', '--filter', 'name=k8s_main_web']), '');
    const same = (await until('the daemon set', () => ready('each', 3))).find(({ spec }) => spec.nodeName === 'c');
    assert.equal(same?.metadata.uid, kept.metadata.uid);
    assert.deepEqual(
      same?.status.containerStatuses?.map(({ containerID, restartCount }) => [containerID, restartCount]),
      kept.status.containerStatuses?.map(({ containerID, restartCount }) => [containerID, restartCount]),
    );
  });
});
