/**
 * Deletes conntrack entries of UDP clients that lead to no endpoint of their service: the kernel would keep sending their
 * datagrams to an endpoint that is gone, or to a service's own address from the time when it had no endpoints. Needs the
 * `conntrack` tool, since Node.js has no netlink.
 *
 * As in kube-proxy, all endpoints that serve count, whatever policies and topology say, so that changes of these leave existing
 * flows alone, and endpoints that terminate keep their clients.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import { assertSucceeded } from '../run-with-input.ts';
import type { Family } from './addresses.ts';
import { endpointText, type ServicePort } from './service-ports.ts';
import type { PortChange } from './service-table.ts';

/** Runs the tool with these arguments, and yields the lines of its output. Throws ENOENT if it is not installed. */
export type Conntrack = (args: readonly string[]) => AsyncIterable<string>;

/** The maximum number of deletions after a change, because each costs a run of the tool. */
const MAX_DELETIONS = 2000;
const TIMEOUT_MS = 10_000;

/** Runs `conntrack` of this host. `prefix` is a command that runs it elsewhere. */
export function hostConntrack(prefix: readonly string[] = []): Conntrack {
  return async function* (args) {
    const [command = 'conntrack', ...commandArgs] = [...prefix, 'conntrack', ...args];
    const child = spawn(command, commandArgs, { stdio: ['ignore', 'pipe', 'pipe'], timeout: TIMEOUT_MS });
    const [stderr, closed] = [text(child.stderr), once(child, 'close') as Promise<[number | null]>];
    // The end of the process is awaited below.
    closed.catch(() => undefined);
    yield* createInterface({ input: child.stdout });
    const [code] = await closed;
    // conntrack exits with 1 if no entry matched.
    if (code !== 1) assertSucceeded('conntrack', { code, stderr: await stderr });
  };
}

/** Returns the addresses of this host, which have node ports. */
const hostAddresses = (): ReadonlySet<string> =>
  new Set(Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address)));

/** The endpoints that may have connections, as `endpointText` writes them, by what clients send to. */
interface Frontends {
  /** The endpoints by address and port of the service. */
  readonly addresses: ReadonlyMap<string, ReadonlySet<string>>;
  /** The endpoints by node port. */
  readonly nodePorts: ReadonlyMap<number, ReadonlySet<string>>;
}

/** Returns the destinations of these UDP ports. A port without endpoints has none, as in kube-proxy. Pure. */
export function frontendsOf(ports: Iterable<ServicePort>): Frontends {
  const addresses = new Map<string, ReadonlySet<string>>();
  const nodePorts = new Map<number, ReadonlySet<string>>();
  for (const { protocol, serving, clusterIp, externalIps, loadBalancerIps, port, nodePort } of ports) {
    if (protocol !== 'UDP' || serving.length === 0) continue;
    const endpoints = new Set(serving.map(endpointText));
    for (const ip of [clusterIp, ...externalIps, ...loadBalancerIps])
      addresses.set(endpointText({ ip, port }), endpoints);
    if (nodePort !== 0) nodePorts.set(nodePort, endpoints);
  }
  return { addresses, nodePorts };
}

/**
 * Matches each direction of an entry. The second one is that of the responses, which come from the address that the datagrams
 * are sent to.
 */
const TUPLE = /src=([^\s=]+) dst=([^\s=]+) sport=(\d+) dport=(\d+)/g;

/**
 * Returns the arguments of the deletion that removes the entry and all others to the same destination that lead to the same
 * outdated endpoint; `undefined` if the entry leads to a current endpoint, or its destination is of no service. `line` is one
 * line of the output of `conntrack -L`. Pure.
 */
export function deletionOf(
  line: string,
  { addresses, nodePorts }: Frontends,
  isLocal: (address: string) => boolean,
): readonly string[] | undefined {
  const [forward, reverse] = line.matchAll(TUPLE);
  const [, , destination = '', , port = ''] = forward ?? [];
  const [, replySource = '', , replyPort = ''] = reverse ?? [];
  if (replySource === '') return undefined;
  const endpoints =
    addresses.get(endpointText({ ip: destination, port: Number(port) })) ??
    (isLocal(destination) ? nodePorts.get(Number(port)) : undefined);
  if (endpoints === undefined || endpoints.has(endpointText({ ip: replySource, port: Number(replyPort) })))
    return undefined;
  return [
    ...['--orig-dst', destination, '--orig-port-dst', port],
    ...['--reply-src', replySource, '--reply-port-src', replyPort],
  ];
}

interface UdpConnectionsOptions {
  readonly conntrack: Conntrack;
  readonly logger: Logger;
  readonly localAddresses?: () => ReadonlySet<string>;
}

/** Owns the queue of the work. */
export class UdpConnections {
  readonly #options: UdpConnectionsOptions;
  readonly #queue = new SerialQueue();
  readonly #waiting = new Set<Family>();
  #isMissing = false;

  constructor(options: UdpConnectionsOptions) {
    this.#options = options;
  }

  /** Whether a service with UDP ports is among the changes. */
  static concerns(changes: readonly PortChange[]): boolean {
    return changes.some(({ before, after }) => [...before, ...after].some(({ protocol }) => protocol === 'UDP'));
  }

  /** Deletes the outdated entries in the background. `ports` is read when that begins. */
  clean(family: Family, ports: () => Iterable<ServicePort>): void {
    if (this.#isMissing || this.#waiting.has(family)) return;
    this.#waiting.add(family);
    background(
      this.#queue.run(async () => {
        this.#waiting.delete(family);
        await this.#clean(family, frontendsOf(ports()));
      }),
      { logger: this.#options.logger, what: 'Deleting outdated UDP connections' },
    );
  }

  async #clean(family: Family, frontends: Frontends): Promise<void> {
    if (frontends.addresses.size === 0 || this.#isMissing) return;
    const { conntrack, logger, localAddresses = hostAddresses } = this.#options;
    const ofFamily = ['-f', family.toLowerCase(), '-p', 'udp'];
    const local = localAddresses();
    const deletions = new Map<string, readonly string[]>();
    try {
      for await (const line of conntrack(['-L', ...ofFamily])) {
        const args = deletionOf(line, frontends, (address) => local.has(address));
        if (args !== undefined && deletions.size < MAX_DELETIONS) deletions.set(args.join(' '), args);
      }
      for (const args of deletions.values()) for await (const _ of conntrack(['-D', ...ofFamily, ...args]));
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'ENOENT') throw error;
      this.#isMissing = true;
      logger.warn(
        {},
        'UDP clients keep sending to endpoints that are gone until their connections expire; install conntrack to prevent that',
      );
    }
  }
}
