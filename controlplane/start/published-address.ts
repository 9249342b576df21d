/**
 * Finds the address under which other hosts and pods reach this server. It may come after the start and change while the server
 * runs. Like kube-apiserver, the server publishes the address of the interface with the default route.
 */
import { readFileSync } from 'node:fs';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';

/** The interfaces of a host with the routes that decide between them. */
export interface HostNetwork {
  readonly interfaces: Readonly<Record<string, readonly NetworkInterfaceInfo[] | undefined>>;
  /** The interfaces with a default route. */
  readonly routed: ReadonlySet<string>;
}

/** Networks of containers on this host, which other hosts do not reach; `orc` and ten digits is the agent's in Docker. */
const CONTAINERS = /^(docker|br-|veth|cni|cbr|orch|orc[0-9a-f]{10}$)/;

/** Keeps an address for as long as the host has it, unless another one has the default route. */
export class PublishedAddress {
  readonly #advertised: string;
  readonly #read: () => HostNetwork;
  #last: string | undefined;

  /** `advertised`: `--advertise-address`, or an empty text. */
  constructor(advertised: string, read: () => HostNetwork = hostNetwork) {
    this.#advertised = advertised;
    this.#read = read;
  }

  /** Returns `undefined` if the host has never had an address that others reach. */
  current(): string | undefined {
    if (this.#advertised !== '') return this.#advertised;
    const { interfaces, routed } = this.#read();
    const on = (wanted: (name: string) => boolean): string[] =>
      Object.entries(interfaces).flatMap(([name, entries = []]) => (wanted(name) ? usable(entries) : []));
    const byRoute = on((name) => routed.has(name));
    const others = on((name) => !CONTAINERS.test(name));
    // An address of a network of containers only counts where there never was another.
    const last = this.#last === undefined ? on((name) => CONTAINERS.test(name)) : [];
    const candidates = byRoute.length > 0 ? byRoute : [...others, ...last];
    if (this.#last === undefined || !candidates.includes(this.#last)) this.#last = candidates[0] ?? this.#last;
    return this.#last;
  }
}

function usable(entries: readonly NetworkInterfaceInfo[]): string[] {
  return entries.filter(({ internal, address }) => !internal && !address.startsWith('fe80:')).map((one) => one.address);
}

/** Reads the present state of the host, from `/proc/net` for the routes. */
function hostNetwork(): HostNetwork {
  return {
    interfaces: networkInterfaces(),
    routed: new Set([...defaultsOf(read('route')), ...defaults6Of(read('ipv6_route'))]),
  };
}

function read(name: string): string {
  try {
    return readFileSync(`/proc/net/${name}`, 'utf8');
  } catch {
    // A kernel without IPv6, or another system.
    return '';
  }
}

/** Reads `/proc/net/route`: the interface, then the destination and, as the eighth column, its mask. */
export function defaultsOf(text: string): string[] {
  const rows = text.split('\n').map((line) => line.trim().split(/\s+/));
  return rows.flatMap(([name = '', to, , , , , , mask]) => (to === '00000000' && mask === '00000000' ? [name] : []));
}

/** Reads `/proc/net/ipv6_route`: the destination, the length of its prefix, and as the last column the interface. */
export function defaults6Of(text: string): string[] {
  const rows = text.split('\n').map((line) => line.trim().split(/\s+/));
  return rows.flatMap((row) => {
    const name = row[9] ?? '';
    return /^0{32}$/.test(row[0] ?? '') && row[1] === '00' && name !== 'lo' && name !== '' ? [name] : [];
  });
}
