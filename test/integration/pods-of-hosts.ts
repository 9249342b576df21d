/**
 * Runs a cluster of hosts in network namespaces whose pods probe each other: three namespaces x, y and z with pods a, b and c,
 * as in the tests of Kubernetes for network policies, spread over the hosts.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import {
  type CASES,
  namespaces,
  pods as policyPods,
  type Probe,
  probeAddress,
} from '../unit/agent/network/policy/policy-cases.ts';
import type { PolicyPod } from '../../agent/network/policy/policy-inputs.ts';
import { until } from '../until.ts';
import { type NamespacedNode, NodesOfOneHost, type NodeSettings } from './namespaced-nodes.ts';
import { PodProbes } from './pod-probes.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');

interface Item {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: { readonly nodeName?: string; readonly clusterIPs?: readonly string[] };
  readonly status: {
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly { readonly containerID?: string }[];
  };
}

const isReady = (item: Item): boolean =>
  item.status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true;

const keyOf = ({ namespace, name }: { readonly namespace: string; readonly name: string }): string =>
  `${namespace}/${name}`;

function podObject({ namespace, name, labels, ports }: PolicyPod, nodeName: string): object {
  const container = { name: 'main', image: DEMO_IMAGE, imagePullPolicy: 'IfNotPresent' };
  return {
    ...{ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace, labels: { ...labels } } },
    spec: {
      ...{ nodeName, terminationGracePeriodSeconds: 0, automountServiceAccountToken: false },
      tolerations: [{ operator: 'Exists' }],
      containers: [
        {
          ...container,
          command: ['sleep', '100000'],
          ports: ports.map((port) => ({ name: port.name, protocol: port.protocol, containerPort: port.port })),
        },
      ],
    },
  };
}

/** Returns a service for each pod. Port 82 answers with the address of the client. */
function serviceObject({ namespace, name, labels }: PolicyPod): object {
  return {
    ...{ apiVersion: 'v1', kind: 'Service', metadata: { name, namespace } },
    spec: {
      selector: { pod: labels['pod'] ?? '' },
      ipFamilyPolicy: 'PreferDualStack',
      ports: [{ port: 8082, targetPort: 82 }],
    },
  };
}

/** The hosts with the nine pods. */
export class PodsOfHosts {
  readonly host: NodesOfOneHost;
  /** The pods with their addresses. */
  pods: readonly PolicyPod[] = [];
  readonly #probes = new Map<string, PodProbes>();

  private constructor(host: NodesOfOneHost) {
    this.host = host;
  }

  /** Starts a control plane and a node for each name, and waits for the nodes. */
  static async start(names: readonly string[], settings: NodeSettings): Promise<PodsOfHosts> {
    const cluster = new PodsOfHosts(await NodesOfOneHost.start(names, ['--node-services'], settings));
    try {
      await cluster.#join();
      return cluster;
    } catch (error) {
      await cluster.remove();
      throw error;
    }
  }

  /** Returns the output of kubectl. Throws if it fails. */
  kubectl(args: readonly string[], input?: string): string {
    const done = this.host.plane.kubectl(args, input === undefined ? {} : { input });
    if (done.code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${done.stderr}`);
    return done.stdout;
  }

  /** Applies the objects with kubectl. */
  apply(items: readonly object[]): void {
    this.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
  }

  list(kind: string): readonly Item[] {
    return (JSON.parse(this.kubectl(['get', kind, '-A', '-o', 'json'])) as { items: Item[] }).items;
  }

  async #join(): Promise<void> {
    const { plane, nodes } = this.host;
    const made = spawnSync(ORCHLET, ['token', 'create', '--print-join-command', '--kubeconfig', plane.kubeconfig], {
      encoding: 'utf8',
    });
    assert.equal(made.status, 0, made.stderr);
    await Promise.all(nodes.map((node) => node.join(made.stdout)));
    for (const node of nodes) node.startAgent();
    await this.withLogs('Ready nodes', () => {
      const found = this.list('nodes');
      return found.length === nodes.length && found.every(isReady);
    });
  }

  /** Creates the pods of the namespaces, their services, and a process in each that probes. */
  async run(inNamespaces: readonly string[]): Promise<void> {
    const chosen = policyPods.filter(({ namespace }) => inNamespaces.includes(namespace));
    const { nodes } = this.host;
    const nodeOf = (index: number): NamespacedNode =>
      nodes[(index + Math.trunc(index / 3)) % nodes.length] as NamespacedNode;
    this.apply([
      ...namespaces
        .filter(({ name }) => inNamespaces.includes(name))
        .map(({ name, labels }) => ({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } })),
      ...chosen.map((pod, index) => podObject(pod, nodeOf(index).name)),
      ...chosen.map(serviceObject),
    ]);
    const running = await this.withLogs('running pods', () => {
      const found = this.list('pods');
      return found.length === chosen.length && found.every(isReady) ? found : undefined;
    });
    const byKey = new Map(running.map((item) => [keyOf(item.metadata), item]));
    this.pods = chosen.map((pod) => ({
      ...pod,
      ips: (byKey.get(keyOf(pod))?.status.podIPs ?? []).map(({ ip }) => ip),
    }));
    for (const pod of this.pods) {
      const item = byKey.get(keyOf(pod));
      const node = nodes.find(({ name }) => name === item?.spec.nodeName);
      const pid = node?.processOf(item?.status.containerStatuses?.[0]?.containerID ?? '') ?? '';
      this.#probes.set(keyOf(pod), new PodProbes(['nsenter', `--net=/proc/${pid}/ns/net`]));
    }
    for (const pod of this.pods) {
      const [own = ''] = pod.ips;
      await until(`the process of ${keyOf(pod)}`, async () => (await this.probesOf(pod).source(own)) === own);
    }
  }

  probesOf(pod: PolicyPod): PodProbes {
    const probes = this.#probes.get(keyOf(pod));
    assert.ok(probes, keyOf(pod));
    return probes;
  }

  /** Waits for one response. */
  probe({ from, to, family, protocol, port }: Probe, timeoutMs: number): Promise<boolean> {
    assert.ok(from);
    const address = probeAddress(to, family);
    return this.probesOf(from).ask({ what: 'probe', protocol: protocol as 'TCP', address, port, timeoutMs });
  }

  /** Replaces all network policies. */
  setPolicies(policies: (typeof CASES)[number][1]): void {
    for (const { name } of namespaces) this.kubectl(['delete', 'networkpolicies', '--all', '-n', name]);
    const object = { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy' };
    if (policies.length > 0)
      this.apply(policies.map(({ namespace, name, spec }) => ({ ...object, metadata: { name, namespace }, spec })));
  }

  /** Returns the address by which a server outside of the cluster sees the pod. */
  async outsideSource(pod: PolicyPod): Promise<string> {
    const { promise, resolve } = Promise.withResolvers<string>();
    const server = createServer((socket) => {
      resolve((socket.remoteAddress ?? '').replace(/^::ffff:/, ''));
      socket.end('-');
    });
    await new Promise<void>((done) => server.listen(0, '::', () => done()));
    const { port } = server.address() as AddressInfo;
    try {
      const ask = async (): Promise<boolean> => (await this.probesOf(pod).source(this.host.outside, { port })) !== '';
      await this.withLogs('a connection to the outside', ask);
      return await promise;
    } finally {
      server.close();
    }
  }

  /** Returns a pod of the node. */
  podOn(node: string): PolicyPod {
    const item = this.list('pods').find(({ spec }) => spec.nodeName === node);
    assert.ok(item, node);
    return this.pod(keyOf(item.metadata));
  }

  /** Returns the pod of the key `namespace/name`. */
  pod(key: string): PolicyPod {
    const found = this.pods.find((pod) => keyOf(pod) === key);
    assert.ok(found, key);
    return found;
  }

  /**
   * Asks every pod for the address by which it sees every other one, at its own addresses and at those of its service. Returns
   * the pairs that did not see the pod's own address.
   */
  async wrongSources(timeoutMs = 3_000): Promise<readonly string[]> {
    const services = new Map(
      this.list('services').map(({ metadata, spec }) => [keyOf(metadata), spec.clusterIPs ?? []]),
    );
    const results = this.pods.flatMap((from) =>
      this.pods
        .filter((to) => to !== from)
        .flatMap((to) => [
          ...to.ips.map((address) => ({ from, to, address, port: 82 })),
          ...(services.get(keyOf(to)) ?? []).map((address) => ({ from, to, address, port: 8082 })),
        ])
        .map(async ({ to, address, port }) => {
          const own = from.ips.find((ip) => ip.includes(':') === address.includes(':'));
          const seen = await this.probesOf(from).source(address, { port, timeoutMs });
          return seen === own ? [] : [`${keyOf(from)} (${own}) to ${keyOf(to)} ${address}: ${seen}`];
        }),
    );
    return (await Promise.all(results)).flat();
  }

  /**
   * Asks the name server of each pod, at each address of `kube-dns`, for the names of the services of all pods. Returns what is
   * not answered with the addresses of the service.
   */
  async wrongNames(): Promise<readonly string[]> {
    const items = this.list('services');
    const addresses = (key: string): readonly string[] =>
      items.find(({ metadata }) => keyOf(metadata) === key)?.spec.clusterIPs ?? [];
    const results = this.pods.flatMap((from) =>
      this.pods.flatMap((to) =>
        addresses('kube-system/kube-dns').map(async (server) => {
          const found = await this.probesOf(from).names(server, `${to.name}.${to.namespace}.svc.cluster.local`);
          return found === addresses(keyOf(to)).toSorted().join(' ')
            ? []
            : [`${keyOf(from)} at ${server} for ${keyOf(to)}: ${found}`];
        }),
      ),
    );
    return (await Promise.all(results)).flat();
  }

  /** Waits until all pods reach each other with their own addresses. */
  async connected(): Promise<void> {
    let wrong: readonly string[] = [];
    await this.withLogs('connected pods', async () => {
      wrong = await this.wrongSources();
      return wrong.length === 0;
    }).catch((error: unknown) => {
      throw new Error(wrong.join('\n'), { cause: error });
    });
  }

  /** Waits like `until`, and reports the ends of all agents' logs if that fails. */
  async withLogs<T>(what: string, attempt: () => Promise<T | undefined | false> | T | undefined | false): Promise<T> {
    return until(what, attempt).catch((error: unknown) => {
      const logs = this.host.nodes.map((node) => `${node.name}:\n${node.logTail()}`);
      throw new Error(logs.join('\n'), { cause: error });
    });
  }

  async remove(): Promise<void> {
    for (const probes of this.#probes.values()) await probes.close();
    await this.host.remove();
  }
}
