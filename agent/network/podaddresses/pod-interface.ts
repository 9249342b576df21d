/** Finds the port of the bridge that leads to a pod, and the addresses of the pod at the other end. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { canonicalIp, formatIp, isLinkLocalUnicast, parseIp } from '../../../api/meta/ip-addresses.ts';
import type { PodInterface } from './address-rules.ts';

const execute = promisify(execFile);
const TIMEOUT_MS = 10_000;
/** The name of a pod's interface in its own network namespace, with Docker and CRI. */
const POD_INTERFACE = 'eth0';

/** A link in the output of `ip -j address`: the members that are used here. */
interface Link {
  readonly ifname?: string;
  readonly ifindex?: number;
  /** The index of the other end of the veth pair. */
  readonly link_index?: number;
  readonly address?: string;
  /** The name of the bridge whose port the link is. */
  readonly master?: string;
  readonly addr_info?: readonly { readonly local?: string }[];
}

/** Reads the ports of the bridges of pods from the kernel. */
export interface BridgePorts {
  /** The names of the ports of the bridges by their indexes. */
  list(): Promise<ReadonlyMap<number, string>>;
  /**
   * Finds the interface of a pod. `pid` is a process in the network namespace of the pod that nobody but the runtime controls,
   * and `ips` are the addresses that the runtime reports. `ports` are listed after the pod got its interface. Must run before
   * the pod has a container: one with `NET_ADMIN` can change its interface. Resolves to `undefined` if the pod is at none of
   * the ports. Rejects if the pod has no interface `eth0` or it lacks one of the addresses, and with ENOENT without the tools.
   */
  find(pid: number, ips: readonly string[], ports: ReadonlyMap<number, string>): Promise<PodInterface | undefined>;
}

/** Where the tools run. */
interface Place {
  /** A command that runs the tools elsewhere, for example in a network namespace. */
  readonly prefix: readonly string[];
  /** Resolves to `/proc/net/dev` of that place, which names the interfaces. */
  readonly devices: () => Promise<string>;
}

const HERE: Place = { prefix: [], devices: () => readFile('/proc/net/dev', 'utf8') };

/** Returns a reader of the ports of these bridges. */
export function bridgePorts(bridges: readonly string[], { prefix, devices }: Place = HERE): BridgePorts {
  const read = async (...command: readonly string[]): Promise<readonly Link[]> => {
    const [program = '', ...args] = command;
    const { stdout } = await execute(program, args, { timeout: TIMEOUT_MS });
    return stdout.trim() === '' ? [] : (JSON.parse(stdout) as readonly Link[]);
  };
  const hasBridge = async (): Promise<boolean> => {
    const names = (await devices()).split('\n').map((line) => line.split(':')[0]?.trim() ?? '');
    return names.some((name) => bridges.includes(name));
  };
  const list = async (): Promise<ReadonlyMap<number, string>> => {
    // The pods of a runtime with a network of its own are at none of the bridges. They need not wait for a program.
    if (!(await hasBridge())) return new Map();
    const links = await read(...prefix, 'ip', '-j', 'link', 'show', 'type', 'veth');
    const ports = links.filter(({ master = '' }) => bridges.includes(master));
    return new Map(ports.flatMap(({ ifindex, ifname }) => (ifindex === undefined ? [] : [[ifindex, ifname ?? '']])));
  };
  return {
    list,
    async find(pid, ips, ports) {
      const inside = ['nsenter', `--net=/proc/${pid}/ns/net`];
      const [link] = await read(...inside, 'ip', '-j', 'address', 'show', 'dev', POD_INTERFACE);
      const index = link?.link_index;
      const port = index === undefined ? undefined : ports.get(index);
      if (link?.address === undefined || index === undefined || port === undefined) return undefined;
      const reported = ips.map((ip) => canonicalIp(ip) ?? ip);
      const found = (link.addr_info ?? []).flatMap(({ local = '' }) => parseIp(local) ?? []);
      const missing = reported.find((ip) => !found.some((one) => formatIp(one) === ip));
      if (missing !== undefined) throw new Error(`the interface of the pod does not have its address ${missing}`);
      // The scope in the output does not count: a running pod may have added the address of another pod with the scope link.
      const linkLocal = found.filter((ip) => ip.family === 6 && isLinkLocalUnicast(ip)).map(formatIp);
      return { port, index, mac: link.address, addresses: [...new Set([...reported, ...linkLocal])] };
    },
  };
}
