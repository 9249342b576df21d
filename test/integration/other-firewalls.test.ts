/**
 * Tests the network of pods and services on hosts with a firewall of their own: ufw and firewalld, with the commands of
 * `docs/install.md`. Each host is a network namespace, in which the firewall has its own copy of its configuration.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { temporaryFolder } from '../temporary-folder.ts';
import { until } from '../until.ts';
import { type NamespacedNode, skipWithoutNamespaces } from './namespaced-nodes.ts';
import { PodsOfHosts } from './pods-of-hosts.ts';

const has = (tool: string): boolean => spawnSync('sh', ['-c', `command -v ${tool}`]).status === 0;

/** The firewall of one host, in its network namespace. Its programs see a copy of the folder with its configuration. */
abstract class Firewall {
  protected readonly node: NamespacedNode;
  protected readonly directory: string;
  readonly #configuration: string;

  constructor(node: NamespacedNode, directory: string, configuration: string) {
    this.node = node;
    this.directory = join(directory, node.name);
    this.#configuration = configuration;
    cpSync(configuration, this.#copy, { recursive: true });
  }

  get #copy(): string {
    return join(this.directory, 'configuration');
  }

  /** The network of the nodes, as a CIDR. */
  protected get network(): string {
    return this.node.address.replace(/\d+$/, '0/24');
  }

  /** The arguments with which nsenter runs a command of the firewall. */
  protected within(...command: readonly string[]): string[] {
    const script = `mount --bind ${this.#copy} ${this.#configuration} && exec "$@"`;
    const mounted = ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', script, 'sh'];
    return [`--net=/run/netns/${this.node.namespace}`, ...mounted, ...command];
  }

  protected command(...command: readonly string[]): void {
    const done = spawnSync('nsenter', this.within(...command), { encoding: 'utf8' });
    assert.equal(done.status, 0, `${command.join(' ')}: ${done.stdout}${done.stderr}`);
  }

  abstract start(): Promise<void>;
  abstract stop(): Promise<void>;
}

class Ufw extends Firewall {
  constructor(node: NamespacedNode, directory: string) {
    super(node, directory, '/etc/ufw');
  }

  async start(): Promise<void> {
    this.command('ufw', 'allow', '6443/tcp');
    const allow = (port: string, protocol: string): void =>
      this.command('ufw', 'allow', 'from', this.network, 'to', 'any', 'port', port, 'proto', protocol);
    allow('10250', 'tcp');
    allow('8472', 'udp');
    this.command('ufw', '--force', 'enable');
  }

  async stop(): Promise<void> {
    this.command('ufw', 'disable');
  }
}

/** Returns a message bus on which everybody may do everything, for one firewalld. */
const busConfiguration = (socket: string): string => `<!DOCTYPE busconfig PUBLIC
 "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=${socket}</listen>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
  </policy>
</busconfig>
`;

class Firewalld extends Firewall {
  readonly #processes: ChildProcess[] = [];

  constructor(node: NamespacedNode, directory: string) {
    super(node, directory, '/etc/firewalld');
  }

  #client(...words: readonly string[]): string[] {
    return ['env', `DBUS_SYSTEM_BUS_ADDRESS=unix:path=${join(this.directory, 'bus')}`, ...words];
  }

  #run(program: string, args: readonly string[]): void {
    this.#processes.push(spawn(program, args, { stdio: 'ignore' }));
  }

  async start(): Promise<void> {
    const [configuration, socket] = [join(this.directory, 'bus.conf'), join(this.directory, 'bus')];
    writeFileSync(configuration, busConfiguration(socket));
    this.#run('dbus-daemon', [`--config-file=${configuration}`, '--nofork']);
    await until('the message bus', () => existsSync(socket));
    const log = `--log-file=${join(this.directory, 'log')}`;
    this.#run('nsenter', this.within(...this.#client('firewalld', '--nofork', '--nopid', log)));
    const ask = (...words: readonly string[]): string[] => this.within(...this.#client('firewall-cmd', ...words));
    await until('firewalld', () => spawnSync('nsenter', ask('--state')).status === 0);
    const rule = (port: string, protocol: string): string =>
      `rule family=ipv4 source address=${this.network} port port=${port} protocol=${protocol} accept`;
    for (const words of [
      ['--add-port=6443/tcp'],
      [`--add-rich-rule=${rule('10250', 'tcp')}`],
      [`--add-rich-rule=${rule('8472', 'udp')}`],
      ['--zone=trusted', '--add-source=10.196.0.0/16'],
      ['--zone=trusted', '--add-source=fd96::/48'],
    ])
      this.command(...this.#client('firewall-cmd', '--permanent', ...words));
    this.command(...this.#client('firewall-cmd', '--reload'));
  }

  async stop(): Promise<void> {
    for (const child of this.#processes.toReversed()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
      child.kill('SIGTERM');
      await ended;
    }
  }
}

const FIREWALLS = [
  { name: 'ufw', tools: ['ufw'], open: (node: NamespacedNode, directory: string) => new Ufw(node, directory) },
  {
    name: 'firewalld',
    tools: ['firewalld', 'firewall-cmd', 'dbus-daemon'],
    open: (node: NamespacedNode, directory: string) => new Firewalld(node, directory),
  },
] as const;
const NODE_PORT = 30_082;

const RUNTIMES = ['containerd', 'docker'] as const;

for (const [{ name, tools, open }, runtime] of FIREWALLS.flatMap((one) =>
  RUNTIMES.map((other) => [one, other] as const),
)) {
  const missing = tools.filter((tool) => !has(tool));
  const skip = missing.length > 0 ? `${missing.join(', ')} are not installed` : skipWithoutNamespaces;
  describe(
    `the network of pods and services on hosts with ${name} and ${runtime}`,
    { skip, timeout: 1_200_000 },
    () => {
      let cluster: PodsOfHosts;
      const firewalls: Firewall[] = [];

      before(async () => {
        cluster = await PodsOfHosts.start(['a', 'b'], { runtime, isDualStack: true });
        await cluster.run(['x', 'y']);
        await cluster.connected();
        const directory = temporaryFolder('orcfw');
        for (const node of cluster.host.nodes) firewalls.push(open(node, directory));
      });
      after(async () => {
        for (const firewall of firewalls) await firewall.stop();
        await cluster?.remove();
      });

      const nodePortsRespond = async (): Promise<void> => {
        const [pod] = cluster.pods;
        assert.ok(pod);
        const port = { port: 8082, targetPort: 82, nodePort: NODE_PORT };
        const spec = { type: 'NodePort', selector: { pod: pod.labels['pod'] }, ports: [port] };
        cluster.apply([
          { apiVersion: 'v1', kind: 'Service', metadata: { name: 'outside', namespace: pod.namespace }, spec },
        ]);
        for (const { address } of cluster.host.nodes)
          await cluster.withLogs(`the node port of ${address}`, () => connects(address, NODE_PORT));
      };

      /** Runs a command in a pod of each host, through the port of its agent, that asks the name server of the host. */
      const namesResolve = async (): Promise<void> => {
        for (const { name: host } of cluster.host.nodes) {
          const pod = cluster.podOn(host);
          const command = [
            'exec',
            '-n',
            pod.namespace,
            pod.name,
            '--',
            'nslookup',
            'kubernetes.default.svc.cluster.local',
          ];
          await cluster.withLogs(`a name in a pod on ${host}`, () => cluster.kubectl(command).includes('10.195.0.1'));
        }
      };

      test('a firewall that starts later cuts nothing', { timeout: 600_000 }, async () => {
        for (const firewall of firewalls) await firewall.start();
        await cluster.connected();
        await nodePortsRespond();
        await namesResolve();
        assert.ok(await cluster.outsideSource(cluster.podOn('a')));
      });

      for (const mode of ['iptables', 'nftables'] as const)
        test(`an agent that starts beside the firewall has its network, with --proxy-mode=${mode}`, async () => {
          await Promise.all(cluster.host.nodes.map((node) => node.stopAgent()));
          for (const node of cluster.host.nodes) node.startAgent(['--proxy-mode', mode]);
          for (const node of cluster.host.nodes)
            await cluster.withLogs(`the rules of ${node.name}`, () => modeOf(node) === mode);
          await cluster.connected();
          await nodePortsRespond();
          await namesResolve();
        });

      test('the ports of the host that the firewall does not open stay closed, and the open one of the agent responds', async () => {
        const [node] = cluster.host.nodes;
        assert.ok(node);
        await cluster.withLogs('the port of the agent', () => connects(node.address, 10_250, 'connect'));
        const server =
          "require('node:net').createServer((socket) => socket.end('x')).listen(9099, () => console.log('-'))";
        const inside = [`--net=/run/netns/${node.namespace}`, process.execPath, '-e', server];
        const listening = spawn('nsenter', inside);
        try {
          await new Promise((resolve) => listening.stdout.once('data', resolve));
          assert.equal(await connects(node.address, 9099), false);
        } finally {
          listening.kill();
        }
      });
    },
  );
}

/** Returns the mode of the rules of services that the host has, or `undefined` if it has those of both or of none. */
function modeOf(node: NamespacedNode): 'iptables' | 'nftables' | undefined {
  const hasTable = node.exec('nft', ['list', 'tables']).includes('orchlet-services');
  const hasChains = node.exec('iptables-save', ['-t', 'nat']).includes('-A ORC-');
  if (hasTable === hasChains) return undefined;
  return hasTable ? 'nftables' : 'iptables';
}

/** Whether a TCP connection from outside of the cluster is accepted (`connect`) or receives data, within a second. */
function connects(host: string, port: number, event: 'connect' | 'data' = 'data'): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: 1000 });
    const end = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.once(event, () => end(true));
    for (const failure of ['error', 'timeout', 'end'] as const) socket.once(failure, () => end(false));
  });
}
