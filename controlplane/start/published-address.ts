/**
 * Finds the address under which other hosts and pods reach this server. It may come after the start and change while the server
 * runs. Like kube-apiserver, the server publishes the address of the interface with the default route.
 */
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { defaultRouteInterfaces, isContainerInterface } from '../../api/machinery/default-routes.ts';

/** The interfaces of a host with the routes that decide between them. */
export interface HostNetwork {
  readonly interfaces: Readonly<Record<string, readonly NetworkInterfaceInfo[] | undefined>>;
  /** The interfaces with a default route, the preferred one first. */
  readonly routed: readonly string[];
}

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

  /** Returns the address to publish. Returns `undefined` if the host has never had an address that others reach. */
  current(): string | undefined {
    if (this.#advertised !== '') return this.#advertised;
    const { interfaces, routed } = this.#read();
    const on = (wanted: (name: string) => boolean): string[] =>
      Object.entries(interfaces).flatMap(([name, entries = []]) => (wanted(name) ? usable(entries) : []));
    const byRoute = routed.flatMap((name) => usable(interfaces[name] ?? []));
    const others = on((name) => !isContainerInterface(name));
    // An address of a network of containers only counts where there never was another.
    const last = this.#last === undefined ? on(isContainerInterface) : [];
    const candidates = byRoute.length > 0 ? byRoute : [...others, ...last];
    if (this.#last === undefined || !candidates.includes(this.#last)) this.#last = candidates[0] ?? this.#last;
    return this.#last;
  }
}

function usable(entries: readonly NetworkInterfaceInfo[]): string[] {
  return entries.filter(({ internal, address }) => !internal && !address.startsWith('fe80:')).map((one) => one.address);
}

/** Reads the present state of the host. */
function hostNetwork(): HostNetwork {
  return { interfaces: networkInterfaces(), routed: defaultRouteInterfaces() };
}
