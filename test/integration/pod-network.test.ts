/**
 * Tests the network between pods of different hosts: agents in network namespaces, each with its own container runtime, and a
 * process in the network namespace of each pod that probes the others.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { until } from '../until.ts';
import { NodesOfOneHost, skipWithoutNamespaces } from './namespaced-nodes.ts';
import { PodProbes } from './pod-probes.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');

interface Item {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly nodeName?: string; readonly clusterIPs?: readonly string[] };
  readonly status: {
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly { readonly containerID?: string }[];
  };
}

const isTrue = (item: Item, type: string): boolean =>
  item.status.conditions?.some((condition) => condition.type === type && condition.status === 'True') === true;

function podOn(node: string, name: string): object {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: { app: 'net', pod: name } },
    spec: {
      nodeName: node,
      terminationGracePeriodSeconds: 0,
      automountServiceAccountToken: false,
      tolerations: [{ operator: 'Exists' }],
      containers: [
        {
          name: 'main',
          image: 'orchlet.local/demo:1',
          imagePullPolicy: 'IfNotPresent',
          command: ['sleep', '100000'],
        },
      ],
    },
  };
}

/** The cluster of a suite, its pods and what they probe with. */
class PodsOfHosts {
  readonly host: NodesOfOneHost;
  readonly probes = new Map<string, PodProbes>();
  readonly ips = new Map<string, readonly string[]>();

  constructor(host: NodesOfOneHost) {
    this.host = host;
  }

  kubectl(args: readonly string[], input?: string): string {
    const done = this.host.plane.kubectl(args, input === undefined ? {} : { input });
    if (done.code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${done.stderr}`);
    return done.stdout;
  }

  list(kind: string): readonly Item[] {
    return (JSON.parse(this.kubectl(['get', kind, '-o', 'json'])) as { items: Item[] }).items;
  }

  async join(): Promise<void> {
    const { plane, nodes } = this.host;
    const made = spawnSync(ORCHLET, ['token', 'create', '--print-join-command', '--kubeconfig', plane.kubeconfig], {
      encoding: 'utf8',
    });
    assert.equal(made.status, 0, made.stderr);
    await Promise.all(nodes.map((node) => node.join(made.stdout)));
    for (const node of nodes) node.startAgent();
    await this.#withLogs('Ready nodes', () => {
      const found = this.list('nodes');
      return found.length === nodes.length && found.every((item) => isTrue(item, 'Ready')) ? true : undefined;
    });
  }

  /** Creates pods, by name and node, and starts their processes. */
  async run(pods: Readonly<Record<string, string>>): Promise<void> {
    const items = Object.entries(pods).map(([name, node]) => podOn(node, name));
    this.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
    const running = await this.#withLogs('running pods', () => {
      const found = this.list('pods').filter((pod) => Object.hasOwn(pods, pod.metadata.name));
      return found.length === items.length && found.every((pod) => isTrue(pod, 'Ready')) ? found : undefined;
    });
    for (const { metadata, spec, status } of running) {
      const node = this.host.nodes.find(({ name }) => name === spec.nodeName);
      const pid = node?.processOf(status.containerStatuses?.[0]?.containerID ?? '') ?? '';
      this.probes.set(metadata.name, new PodProbes(['nsenter', `--net=/proc/${pid}/ns/net`]));
      this.ips.set(
        metadata.name,
        (status.podIPs ?? []).map(({ ip }) => ip),
      );
    }
    for (const name of Object.keys(pods)) {
      const [own = ''] = this.ips.get(name) ?? [];
      await until(`the process of ${name}`, async () =>
        (await this.probes.get(name)?.source(own)) === own ? true : undefined,
      );
    }
  }

  /** Every pair of pods, and each family that both have, with the address that the other one saw. */
  async seen(timeoutMs: number): Promise<Readonly<Record<string, string>>> {
    const names = [...this.ips.keys()].sort();
    const pairs = names.flatMap((from) => names.flatMap((to) => (from === to ? [] : [[from, to] as const])));
    const results = pairs.flatMap(([from, to]) =>
      (this.ips.get(to) ?? []).map(async (address) => [
        `${from} to ${to} ${address}`,
        await this.probes.get(from)?.source(address, { timeoutMs }),
      ]),
    );
    return Object.fromEntries(await Promise.all(results)) as Record<string, string>;
  }

  /** What `seen` returns where every pod reaches every other one with its own address. */
  expected(): Readonly<Record<string, string>> {
    const names = [...this.ips.keys()].sort();
    return Object.fromEntries(
      names.flatMap((from) =>
        names.flatMap((to) =>
          from === to
            ? []
            : (this.ips.get(to) ?? []).map((address) => [
                `${from} to ${to} ${address}`,
                this.ips.get(from)?.find((ip) => ip.includes(':') === address.includes(':')),
              ]),
        ),
      ),
    ) as Record<string, string>;
  }

  async #withLogs<T>(what: string, attempt: () => T | undefined): Promise<T> {
    return until(what, attempt, 90_000).catch((error: unknown) => {
      const logs = this.host.nodes.map((node) => `${node.name}:\n${node.lastWords()}`);
      throw new Error(logs.join('\n'), { cause: error });
    });
  }

  async remove(): Promise<void> {
    for (const probes of this.probes.values()) await probes.close();
    await this.host.remove();
  }
}

describe('a pod network of VXLAN with containerd', { skip: skipWithoutNamespaces, timeout: 280_000 }, () => {
  let pods: PodsOfHosts;

  before(async () => {
    pods = new PodsOfHosts(
      await NodesOfOneHost.start(['a', 'b', 'c'], ['--node-services'], { runtime: 'containerd', flags: [] }),
    );
    await pods.join();
    await pods.run({ a1: 'a', a2: 'a', b1: 'b', c1: 'c' });
  });

  after(async () => {
    await pods?.remove();
  });

  test('every pod reaches every other one, in both directions, with its own address', async () => {
    assert.deepEqual(await pods.seen(20_000), pods.expected());
  });
});
