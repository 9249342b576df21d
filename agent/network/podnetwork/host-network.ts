/**
 * Reads and changes the host's network for the pod network with the tools `ip`, `bridge` and `wg`. `prefix` is a command that
 * runs them elsewhere, for example in a network namespace.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { errorMessage } from '../../../api/meta/error-message.ts';
import {
  canonicalIp,
  formatIp,
  type Ip,
  isLinkLocalUnicast,
  parseCidr,
  parseIp,
} from '../../../api/meta/ip-addresses.ts';
import { runWithInput } from '../run-with-input.ts';
import { LINK_PREFIX, ROUTE_PROTOCOL, type Route, type Uplink, VXLAN_LINK, WIREGUARD_LINK } from './desired-network.ts';
import type { Commands, ObservedLink, ObservedNetwork } from './network-difference.ts';

const execute = promisify(execFile);
const MAX_OUTPUT = { maxBuffer: 64 * 1024 * 1024 };
/** The longest part of an error that is logged. */
const LONGEST_ERROR = 1000;

/** Whether, and by what, this host can create links of a kind. */
export interface LinkSupport {
  /** The reason why the host cannot create such links, with a remedy in parentheses; empty if it can. */
  readonly problem: string;
  /** The program that is used in place of the kernel, as a sentence; empty if the kernel does it. */
  readonly substitute: string;
}

/** The network of the host. Operations reject with what the tools write to standard error. */
export interface HostNetwork {
  /** Checks the tools and the kernel. Creates nothing. */
  linkSupport(kind: 'vxlan' | 'wireguard'): Promise<LinkSupport>;
  /** Returns the interface that has the address; `undefined` if none has it. */
  uplink(address: Ip): Promise<Uplink | undefined>;
  observe(): Promise<ObservedNetwork>;
  /** Runs all commands, and throws if one of them failed. */
  change(commands: Commands): Promise<void>;
  /** Removes a link that may not exist. */
  removeLink(name: string): Promise<void>;
}

interface LinkJson {
  readonly ifname?: string;
  readonly mtu?: number;
  readonly flags?: readonly string[];
  readonly address?: string;
  readonly linkinfo?: {
    readonly info_kind?: string;
    readonly info_data?: Readonly<Record<'id' | 'port', number>> &
      Readonly<Record<'local' | 'local6' | 'link', string>>;
  };
  readonly addr_info?: readonly { readonly local?: string; readonly prefixlen?: number }[];
}

interface RouteJson {
  readonly dst?: string;
  readonly dev?: string;
  readonly gateway?: string;
  readonly prefsrc?: string;
  readonly flags?: readonly string[];
}

/** Returns access to the network of this host, or to the one where the command `prefix` runs the tools. */
export function hostNetwork(prefix: readonly string[] = []): HostNetwork {
  const run = async (tool: string, args: readonly string[]): Promise<string> => {
    const [command = tool, ...commandArgs] = [...prefix, tool, ...args];
    return (await execute(command, commandArgs, MAX_OUTPUT)).stdout;
  };
  const batch = async (tool: string, lines: readonly string[]): Promise<void> => {
    const [command = tool, ...args] = [...prefix, tool, '-force', '-batch', '-'];
    if (lines.length > 0) await feed(command, args, lines);
  };
  return {
    linkSupport: (kind) => linkSupport(kind, run),
    uplink: (address) => readUplink(address, run),
    observe: () => observe(run),

    async change(commands) {
      const errors: string[] = [];
      const attempt = async (work: () => Promise<unknown>): Promise<void> => {
        await work().catch((error: unknown) => errors.push(errorMessage(error)));
      };
      await attempt(() => batch('ip', commands.before));
      if (commands.createsWireguard) await attempt(() => createWireguard(run));
      if (commands.wireguard.length > 0) await attempt(() => run('wg', ['set', WIREGUARD_LINK, ...commands.wireguard]));
      await attempt(() => batch('ip', commands.ip));
      await attempt(() => batch('bridge', commands.bridge));
      if (errors.length > 0) throw new Error(errors.join('; ').slice(0, LONGEST_ERROR));
    },

    async removeLink(name) {
      await run('ip', ['link', 'delete', 'dev', name]).catch(emptyIfNotFound);
    },
  };
}

type Run = (tool: string, args: readonly string[]) => Promise<string>;

/** Reads the JSON of a tool. A tool that has found nothing prints nothing or empty objects. */
async function readItems<T>(run: Run, tool: string, args: readonly string[]): Promise<readonly T[]> {
  const output = await run(tool, ['-j', ...args]);
  const items = output.trim() === '' ? [] : (JSON.parse(output) as readonly T[]);
  return items.filter((item) => Object.keys(item as object).length > 0);
}

async function readUplink(address: Ip, run: Run): Promise<Uplink | undefined> {
  const links = await readItems<LinkJson>(run, 'ip', ['address', 'show']);
  const wanted = formatIp(address);
  const link = links.find(({ addr_info: all = [] }) => all.some(({ local = '' }) => canonical(local) === wanted));
  if (link?.ifname === undefined) return undefined;
  const networks = addressesOf(link).flatMap((one) => parseCidr(one) ?? []);
  return { name: link.ifname, mtu: link.mtu ?? 1500, address, networks };
}

async function observe(run: Run): Promise<ObservedNetwork> {
  const vxlan = (await readItems<LinkJson>(run, 'ip', ['-d', 'address', 'show', 'type', 'vxlan'])).filter(
    ({ ifname }) => ifname === VXLAN_LINK,
  );
  // A WireGuard link that another program runs in place of the kernel is a TUN device.
  const wireguard = await readItems<LinkJson>(run, 'ip', ['-d', 'address', 'show', 'dev', WIREGUARD_LINK]).catch(
    emptyIfNotFound,
  );
  // A link whose keys cannot be read counts as a link without keys: the next turn sets them again, or removes the link.
  const dump = wireguard.length > 0 ? await run('wg', ['show', WIREGUARD_LINK, 'dump']).catch(() => '') : '';
  const protocol = String(ROUTE_PROTOCOL);
  // With all tables, `ip` prints the routes of both families.
  const routes = await readItems<RouteJson>(run, 'ip', ['route', 'show', 'table', 'all', 'proto', protocol]);
  return {
    links: [...vxlan, ...wireguard].map(observedLink),
    routes: routes.map(observedRoute),
    ...(vxlan.length > 0 ? await observeVxlan(run) : { neighbors: [], forwarding: [] }),
    ...wireguardState(dump),
  };
}

async function observeVxlan(run: Run): Promise<Pick<ObservedNetwork, 'neighbors' | 'forwarding'>> {
  const show = ['neighbor', 'show', 'dev', VXLAN_LINK, 'nud', 'permanent'];
  const neighbors = await readItems<{ dst?: string; lladdr?: string }>(run, 'ip', show);
  const entries = await readItems<{ mac?: string; dst?: string }>(run, 'bridge', ['fdb', 'show', 'dev', VXLAN_LINK]);
  return {
    neighbors: neighbors.map(({ dst = '', lladdr = '' }) => ({ address: canonical(dst), mac: lladdr })),
    forwarding: entries.flatMap(({ mac = '', dst }) =>
      dst === undefined ? [] : [{ mac, destination: canonical(dst) }],
    ),
  };
}

/**
 * Returns an empty list if the tool exited with a number, as it does when it finds nothing. Rethrows other errors, such as a
 * missing tool.
 */
function emptyIfNotFound(error: unknown): [] {
  if (typeof (error as { code?: unknown }).code === 'number') return [];
  throw error;
}

async function feed(command: string, args: readonly string[], lines: readonly string[]): Promise<void> {
  const { code, stderr } = await runWithInput(command, args, `${lines.join('\n')}\n`);
  if (code === 0) return;
  // `Command failed -:3` names the line whose error the tool has printed before.
  const failed = [...stderr.matchAll(/^Command failed \S+:(\d+)$/gm)].map(
    ([, number]) => lines[Number(number) - 1] ?? '',
  );
  const reasons = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('Command failed'));
  throw new Error(`${command}: ${reasons.join('; ')} (${failed.join('; ')})`);
}

/** Creates the link in the kernel, or by the program wireguard-go where the kernel has no WireGuard. */
async function createWireguard(run: Run): Promise<void> {
  const inKernel = await run('ip', ['link', 'add', WIREGUARD_LINK, 'type', 'wireguard']).then(() => true, noSuchKind);
  if (!inKernel) await run('wireguard-go', [WIREGUARD_LINK]);
}

/** Returns false if the kernel does not know the kind of link. Throws other errors. */
function noSuchKind(error: unknown): false {
  if (/unknown device type|not supported/i.test((error as { stderr?: string }).stderr ?? '')) return false;
  throw error;
}

/** A size that no link can have: the kernel finds the kind of link first, and then refuses to create it. */
const IMPOSSIBLE_MTU = '2147483647';

async function linkSupport(kind: 'vxlan' | 'wireguard', run: Run): Promise<LinkSupport> {
  const unsupported = (problem: string): LinkSupport => ({ problem, substitute: '' });
  const probe = ['link', 'add', `${LINK_PREFIX}probe`, 'mtu', IMPOSSIBLE_MTU, 'type', kind];
  let inKernel: boolean;
  try {
    inKernel = await run('ip', probe).then(() => true, noSuchKind);
  } catch (error) {
    if (isAbsent(error)) return unsupported('the tool ip is not installed (apt-get install iproute2)');
    const { stderr = '' } = error as { stderr?: string };
    if (/not permitted/i.test(stderr)) return unsupported('the network may not be changed (CAP_NET_ADMIN)');
    inKernel = true;
  }
  if (kind === 'vxlan') return inKernel ? SUPPORTED : unsupported(NO_VXLAN);
  if (await lacks(run, 'wg', ['--version']))
    return unsupported('the tool wg is not installed (apt-get install wireguard-tools)');
  if (inKernel) return SUPPORTED;
  return (await lacks(run, 'wireguard-go', ['--version']))
    ? unsupported('the kernel has no WireGuard (modprobe wireguard), and wireguard-go is not installed')
    : { problem: '', substitute: 'the kernel has no WireGuard, so the program wireguard-go is used' };
}

const SUPPORTED: LinkSupport = { problem: '', substitute: '' };
const NO_VXLAN =
  'the kernel has no VXLAN (modprobe vxlan; or --pod-network=routes on all nodes, if they are on one link)';

const isAbsent = (error: unknown): boolean => (error as { code?: unknown }).code === 'ENOENT';

async function lacks(run: Run, tool: string, args: readonly string[]): Promise<boolean> {
  return run(tool, args).then(() => false, isAbsent);
}

const canonical = (address: string): string => canonicalIp(address) ?? address;

/** Returns the addresses of a link with their prefix lengths, without link-local ones. */
function addressesOf({ addr_info: addresses = [] }: LinkJson): string[] {
  return addresses.flatMap(({ local = '', prefixlen }) => {
    const ip = parseIp(local);
    return ip === undefined || isLinkLocalUnicast(ip) ? [] : `${formatIp(ip)}/${prefixlen ?? 0}`;
  });
}

function observedLink(link: LinkJson): ObservedLink {
  const { info_kind: kind, info_data: data } = link.linkinfo ?? {};
  const local = data?.local ?? data?.local6 ?? '';
  return {
    name: link.ifname ?? '',
    mtu: link.mtu ?? 0,
    isUp: link.flags?.includes('UP') === true,
    addresses: addressesOf(link),
    vxlan:
      kind !== 'vxlan' || data === undefined
        ? undefined
        : { id: data.id, port: data.port, local: canonical(local), device: data.link, mac: link.address ?? '' },
  };
}

function observedRoute({ dst = '', dev = '', gateway = '', prefsrc = '', flags = [] }: RouteJson): Route {
  const [address = '', length] = dst.split('/');
  const bits = length ?? (dst.includes(':') ? '128' : '32');
  return {
    destination: `${canonical(address)}/${bits}`,
    device: dev,
    gateway: canonical(gateway),
    onlink: flags.includes('onlink'),
    source: canonical(prefsrc),
  };
}

/** Parses the output of `wg show LINK dump`: a line of the link and one of each peer, with tabs. */
function wireguardState(dump: string): Pick<ObservedNetwork, 'wireguard' | 'wireguardPeers'> {
  const [link, ...peers] = dump.split('\n').filter((line) => line !== '');
  const [, publicKey = '', port = ''] = link?.split('\t') ?? [];
  return {
    wireguard: link === undefined ? undefined : { publicKey, port: Number(port) },
    wireguardPeers: peers.map((line) => {
      const [key = '', , endpoint = '', allowed = ''] = line.split('\t');
      return { publicKey: key, endpoint, allowedIps: allowed === '(none)' ? [] : allowed.split(',') };
    }),
  };
}
