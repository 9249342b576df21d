/**
 * Checks the network of a cluster from this host, link by link: the API server, the agents of other nodes, pods of other nodes,
 * the address of a service, a name.
 */
import { BlockList } from 'node:net';
import { errorMessage } from '../../api/meta/error-message.ts';
import { quoteText } from '../../api/meta/quote.ts';
import type { Finding } from './host-checks.ts';
import type { NetworkProbes, Outcome } from './network-probes.ts';

/** A node of the cluster. */
export interface ClusterNodeFacts {
  readonly name: string;
  /** The addresses of type InternalIP. */
  readonly addresses: readonly string[];
  /** The port of its agent. */
  readonly port: number;
  readonly podCidrs: readonly string[];
  /** The addresses of its pods, as far as they are known. */
  readonly podAddresses: readonly string[];
}

/** What this host knows of its cluster. */
export interface ClusterFacts {
  readonly server: string;
  /** The name of this host's node. Nodes with other names are other hosts. */
  readonly ownName: string;
  /** The nodes; `undefined` if the credentials of this host may not read them. */
  readonly nodes: readonly ClusterNodeFacts[] | undefined;
  /** The service `kubernetes`. */
  readonly kubernetes: { readonly address: string; readonly port: number } | undefined;
  /** The service `kube-dns`. */
  readonly nameServer: string | undefined;
  readonly domain: string;
}

/** The maximum number of other nodes that are tried. */
const MAX_NODES = 20;
/** Any port, because a refused connection is an answer too. */
const SOME_PORT = 1;

/** Probes a few nodes and pods, not all of them. Never rejects for a link that fails. */
export async function checkNetwork(cluster: ClusterFacts, probes: NetworkProbes): Promise<readonly Finding[]> {
  const { nodes, ownName } = cluster;
  const others = (nodes ?? []).filter(({ name }) => name !== ownName).slice(0, MAX_NODES);
  const pod = await probes.podProcess();
  const unknown: Finding[] =
    nodes === undefined
      ? [{ name: 'nodes', verdict: 'ok', text: "not tried: this host's credentials may not read nodes" }]
      : [];
  return [
    { name: 'API server', verdict: 'ok', text: `${cluster.server} answers` },
    ...unknown,
    ...checkRange((nodes ?? []).find(({ name }) => name === ownName)),
    ...(others.length === 0 ? [] : [await checkNodes(others, probes), await checkPods(others, pod, probes)]),
    ...(await checkService(cluster, pod, probes)),
    ...(await checkNames(cluster, pod, probes)),
  ];
}

/** Returns the finding if the API server cannot be reached. An empty `server` stands for one that is not known. */
export function apiServerFinding(server: string, error: unknown): Finding {
  return {
    name: 'API server',
    verdict: 'fail',
    text: `${server === '' ? 'it' : server} does not answer: ${errorMessage(error)}`,
    remedy: 'on its host: systemctl status orchlet.service; between the hosts: a firewall before its port (6443/tcp)',
  };
}

const isAnswer = (outcome: Outcome): boolean => outcome === 'open' || outcome === 'refused';
const textOf = (outcome: Outcome): string => (typeof outcome === 'string' ? outcome : outcome.failed);

async function checkNodes(others: readonly ClusterNodeFacts[], probes: NetworkProbes): Promise<Finding> {
  const tried = await Promise.all(
    others.map(async ({ name, addresses: [address = ''], port }) => ({
      text: `${name} (${address}:${port})`,
      outcome: await probes.connect(address, port),
    })),
  );
  const failed = tried.filter(({ outcome }) => outcome !== 'open');
  const [first] = failed;
  if (first === undefined)
    return { name: 'nodes', verdict: 'ok', text: `agents of ${tried.length} other nodes answer` };
  return {
    name: 'nodes',
    verdict: 'warn',
    text: failed.map(({ text, outcome }) => `${text}: ${textOf(outcome)}`).join('; '),
    remedy:
      first.outcome === 'refused'
        ? 'the host answers, but its agent does not: systemctl status orchlet-agent.service on that host'
        : 'a firewall between the hosts before 10250/tcp, or a host that is down',
  };
}

/**
 * Checks that pods have addresses of the node's range. A runtime whose CNI configuration has a range of its own gives pods
 * addresses that nobody routes to this node.
 */
function checkRange(ownNode: ClusterNodeFacts | undefined): readonly Finding[] {
  if (ownNode === undefined || ownNode.podCidrs.length === 0) return [];
  const ranges = new BlockList();
  for (const cidr of ownNode.podCidrs) {
    const [start = '', bits = ''] = cidr.split('/');
    ranges.addSubnet(start, Number(bits), start.includes(':') ? 'ipv6' : 'ipv4');
  }
  const outside = ownNode.podAddresses.find(
    (address) => !ranges.check(address, address.includes(':') ? 'ipv6' : 'ipv4'),
  );
  if (outside === undefined) return [];
  return [
    {
      name: 'pod range',
      verdict: 'warn',
      text: `a pod of this node has the address ${outside}, outside of ${ownNode.podCidrs.join(', ')}: other nodes cannot reach it`,
      remedy:
        "the range of the runtime's CNI configuration (/etc/cni/net.d) or Docker network must be that of the node: kubectl get node -o yaml",
    },
  ];
}

/** Connects to a pod of each other node, or to the first address of its range, which is the node's own in the pod network. */
async function checkPods(
  others: readonly ClusterNodeFacts[],
  pod: number | undefined,
  probes: NetworkProbes,
): Promise<Finding> {
  const name = 'pod network';
  const targets = others.flatMap((node) => {
    const address = node.podAddresses[0] ?? firstAddress(node.podCidrs[0]);
    return address === undefined ? [] : [{ text: `${address} of ${node.name}`, address }];
  });
  if (targets.length === 0) return { name, verdict: 'ok', text: 'not tried: no other node has a range of pods' };
  const tried = await Promise.all(
    targets.map(async ({ text, address }) => ({
      text,
      fromHost: await probes.connect(address, SOME_PORT),
      fromPod: pod === undefined ? undefined : await probes.connect(address, SOME_PORT, pod),
    })),
  );
  const cut = tried.filter(({ fromHost }) => !isAnswer(fromHost));
  if (cut.length > 0)
    return {
      name,
      verdict: 'warn',
      text: `from this host to ${cut.map(({ text, fromHost }) => `${text}: ${textOf(fromHost)}`).join('; ')}`,
      remedy:
        'a firewall between the hosts before the pod network (8472/udp for vxlan), or routes to the ranges of pods',
    };
  const fromPods = tried.filter(({ fromPod }) => fromPod !== undefined && !isAnswer(fromPod));
  if (fromPods.length > 0)
    return {
      name,
      verdict: 'warn',
      text: `this host reaches pods of other nodes, but its pods do not: ${fromPods.map(({ text }) => text).join(', ')}`,
      remedy: 'net.ipv4.ip_forward, a firewall of this host in FORWARD, or a network policy',
    };
  const who = pod === undefined ? 'this host reaches' : 'this host and its pods reach';
  return { name, verdict: 'ok', text: `${who} pods of ${tried.length} other nodes` };
}

async function checkService(
  { kubernetes }: ClusterFacts,
  pod: number | undefined,
  probes: NetworkProbes,
): Promise<readonly Finding[]> {
  if (kubernetes === undefined) return [];
  const { address, port } = kubernetes;
  const name = 'service';
  const fromHost = await probes.connect(address, port);
  const fromPod = pod === undefined ? undefined : await probes.connect(address, port, pod);
  const remedy = "the rules of services: the lines above, 'journalctl -u orchlet*', --service-proxy";
  if (fromHost !== 'open')
    return [{ name, verdict: 'warn', text: `${address}:${port} from this host: ${textOf(fromHost)}`, remedy }];
  if (fromPod !== undefined && fromPod !== 'open')
    return [
      {
        name,
        verdict: 'warn',
        text: `${address}:${port} answers this host, not its pods: ${textOf(fromPod)}`,
        remedy: 'modprobe br_netfilter, net.ipv4.ip_forward, or a network policy',
      },
    ];
  return [{ name, verdict: 'ok', text: `kubernetes (${address}:${port}) answers` }];
}

async function checkNames(
  { nameServer, domain, kubernetes }: ClusterFacts,
  pod: number | undefined,
  probes: NetworkProbes,
): Promise<readonly Finding[]> {
  if (nameServer === undefined) return [];
  const name = 'names';
  if (pod === undefined) return [{ name, verdict: 'ok', text: 'not tried: no pod with a network runs here' }];
  const wanted = `kubernetes.default.svc.${domain}`;
  const answer = await probes.resolve(nameServer, wanted, pod);
  if (!Array.isArray(answer))
    return [
      {
        name,
        verdict: 'warn',
        text: `${nameServer} has no answer for ${quoteText(wanted)}: ${(answer as { failed: string }).failed}`,
        remedy: 'the name server is in the agent of this host: its log; kubectl get service -n kube-system kube-dns',
      },
    ];
  const isRight = kubernetes === undefined || answer.includes(kubernetes.address);
  return isRight
    ? [{ name, verdict: 'ok', text: `${nameServer} knows ${wanted}` }]
    : [
        {
          name,
          verdict: 'warn',
          text: `${nameServer} returns ${answer.join(', ')} for ${quoteText(wanted)}, not ${kubernetes.address}`,
          remedy: 'another name server answers: --cluster-dns of the agent',
        },
      ];
}

/** Returns the first host address of an IPv4 range, and `undefined` for any other text. */
function firstAddress(cidr: string | undefined): string | undefined {
  const [, start = '', last = ''] = /^(\d+\.\d+\.\d+\.)(\d+)\/\d+$/.exec(cidr ?? '') ?? [];
  return start === '' ? undefined : `${start}${Number(last) + 1}`;
}
