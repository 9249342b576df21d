/**
 * Compares the pod network between two hosts with a plain veth pair: throughput of one TCP connection, for each second of
 * processor time of both ends as well, and the round trip of ICMP echoes. Hosts are network namespaces of this machine. iperf3,
 * ping (iputils-ping) and the images of `scripts/airgap-images` (ORCHLET_TEST_IMAGES) are needed.
 *
 *     bin/node test/bench/pod-network.ts [seconds] [mode…]     modes: vxlan, routes, wireguard
 */
import { spawn, spawnSync } from 'node:child_process';
import { PodsOfHosts } from '../integration/pods-of-hosts.ts';
import { systemClock } from '../../api/machinery/clock.ts';

const seconds = Number(process.argv[2] ?? 5);
const modes = process.argv.length > 3 ? process.argv.slice(3) : ['vxlan', 'routes'];
const PORT = '5201';

type Place = readonly string[];

function run(place: Place, ...command: readonly string[]): string {
  const [program = '', ...args] = [...place, ...command];
  const done = spawnSync(program, args, { encoding: 'utf8' });
  if (done.status !== 0) throw new Error(`${command.join(' ')}: ${done.stderr}${done.stdout}`);
  return done.stdout;
}

interface Report {
  readonly end: {
    readonly sum_received: { readonly bits_per_second: number };
    readonly cpu_utilization_percent: { readonly host_total: number; readonly remote_total: number };
  };
}

async function measure(title: string, from: Place, to: Place, address: string): Promise<void> {
  const [program = '', ...args] = [...to, 'iperf3', '-s', '-1', '-p', PORT];
  const server = spawn(program, args, { stdio: 'ignore' });
  await systemClock.sleep(1000);
  const client = ['iperf3', '-J', '-c', address, '-p', PORT, '-t', String(seconds)];
  const { end } = JSON.parse(run(from, ...client)) as Report;
  server.kill();
  const bits = end.sum_received.bits_per_second;
  const { host_total: sender, remote_total: receiver } = end.cpu_utilization_percent;
  console.log(
    `${title}: ${(bits / 1e9).toFixed(2)} Gbit/s, ${((bits / 1e9 / (sender + receiver)) * 100).toFixed(2)} Gbit for a second of processor time, round trip ${roundTrip(from, address)}`,
  );
}

/** Sends a thousand echo requests. Returns the shortest and the mean time. */
function roundTrip(from: Place, address: string): string {
  const [, shortest, mean] =
    /= ([\d.]+)\/([\d.]+)\//.exec(run(from, 'ping', '-q', '-c', '1000', '-i', '0.002', address)) ?? [];
  return `${shortest} ms, mean ${mean} ms`;
}

async function plain(): Promise<void> {
  const names = ['1', '2'].map((end) => `orcp${process.pid}${end}`);
  const [one = '', two = ''] = names;
  try {
    for (const name of names) run([], 'ip', 'netns', 'add', name);
    run([], 'ip', '-n', one, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', two);
    for (const [at, name] of names.entries()) {
      run([], 'ip', '-n', name, 'address', 'add', `192.0.2.${at + 1}/24`, 'dev', 'eth0');
      run([], 'ip', '-n', name, 'link', 'set', 'eth0', 'up');
    }
    const place = (name: string): Place => ['ip', 'netns', 'exec', name];
    await measure('plain veth', place(one), place(two), '192.0.2.2');
  } finally {
    for (const name of names) spawnSync('ip', ['netns', 'delete', name]);
  }
}

async function between(): Promise<void> {
  const cluster = await PodsOfHosts.start(['a', 'b'], { runtime: 'containerd', isDualStack: false });
  try {
    await cluster.run(['x']);
    const [a, b] = cluster.host.nodes;
    if (a === undefined || b === undefined) return;
    const place = (node: typeof a): Place => {
      const item = cluster.list('pods').find(({ spec }) => spec.nodeName === node.name);
      return [
        'nsenter',
        `--net=/proc/${node.processOf(item?.status.containerStatuses?.[0]?.containerID ?? '')}/ns/net`,
      ];
    };
    const address = cluster.podOn(b.name).ips[0] ?? '';
    for (const mode of modes) {
      await Promise.all([a, b].map((node) => node.stopAgent()));
      for (const node of [a, b]) node.startAgent(['--pod-network', mode]);
      await cluster.connected();
      await measure(`pod to pod on another node, ${mode}`, place(a), place(b), address);
    }
  } finally {
    await cluster.remove();
  }
}

await plain();
await between();
