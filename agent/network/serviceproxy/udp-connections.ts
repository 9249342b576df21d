/**
 * Deletes conntrack entries of UDP clients whose translation is outdated: the kernel would keep sending their datagrams to an
 * endpoint that is gone, or to a service's own address from the time when it had no endpoints. Needs the `conntrack` tool,
 * since Node.js has no netlink. The service proxy calls it after each change.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import type { Family } from './addresses.ts';
import type { Endpoint, ServicePort } from './service-ports.ts';
import type { PortChange } from './service-table.ts';

/** Runs the tool with these arguments. */
export type Conntrack = (args: readonly string[]) => Promise<unknown>;

/** Thousands of endpoints that change at once would occupy the host for minutes; their connections expire first. */
const MOST_WAITING = 2000;
const execute = promisify(execFile);
/** Runs `conntrack` of this host, which exits with 1 if no entry matched. */
export const hostConntrack: Conntrack = (args) => execute('conntrack', args, { timeout: 10_000 });

/** Returns the arguments of the deletions that the changes require. Pure. */
export function outdatedConnections(family: Family, changes: readonly PortChange[]): string[][] {
  const deletions = new Map<string, string[]>();
  const remove = (...match: readonly string[]): void => {
    const args = ['-D', '-f', family.toLowerCase(), '-p', 'udp', ...match];
    deletions.set(args.join(' '), args);
  };
  for (const { before, after } of changes) {
    const earlier = new Map(before.filter(isUdp).map((port) => [port.id, port]));
    const now = new Map(after.filter(isUdp).map((port) => [port.id, port]));
    for (const previous of earlier.values()) {
      const left = endpointsOf(now.get(previous.id));
      for (const [name, { ip, port }] of endpointsOf(previous))
        if (!left.has(name))
          for (const match of destinationsOf(previous))
            remove(...match, '--dst-nat', ip, '--reply-port-src', `${port}`);
    }
    // Clients may have sent to a node port or an address before the service had it, or an endpoint.
    for (const port of now.values()) {
      if (endpointsOf(port).size === 0) continue;
      const translated = translatedDestinations(earlier.get(port.id));
      for (const match of destinationsOf(port)) if (!translated.has(match.join(' '))) remove(...match);
    }
  }
  return [...deletions.values()];
}

const isUdp = ({ protocol }: ServicePort): boolean => protocol === 'UDP';

/** Returns the endpoints of a port by address and port. */
function endpointsOf(port: ServicePort | undefined): Map<string, Endpoint> {
  const all = port === undefined ? [] : [...port.internal, ...port.external, ...port.cluster];
  return new Map(all.map((endpoint) => [`${endpoint.ip} ${endpoint.port}`, endpoint]));
}

/** Returns the destinations, as `destinationsOf` writes them, whose datagrams went to an endpoint. */
function translatedDestinations(port: ServicePort | undefined): Set<string> {
  if (port === undefined || endpointsOf(port).size === 0) return new Set();
  return new Set(destinationsOf(port).map((match) => match.join(' ')));
}

function destinationsOf({ clusterIp, externalIps, loadBalancerIps, port, nodePort }: ServicePort): string[][] {
  const addresses = [clusterIp, ...externalIps, ...loadBalancerIps];
  return [
    ...addresses.map((address) => ['--orig-dst', address, '--orig-port-dst', `${port}`]),
    ...(nodePort === 0 ? [] : [['--orig-port-dst', `${nodePort}`]]),
  ];
}

/** Owns the queue of deletions. It is bounded, and what does not fit is dropped: entries expire by themselves. */
export class UdpConnections {
  readonly #conntrack: Conntrack;
  readonly #logger: Logger;
  readonly #queue = new SerialQueue();
  #isMissing = false;

  constructor(conntrack: Conntrack, logger: Logger) {
    this.#conntrack = conntrack;
    this.#logger = logger;
  }

  /** Deletes in the background, one after the other. */
  forget(family: Family, changes: readonly PortChange[]): void {
    for (const args of outdatedConnections(family, changes)) {
      if (this.#isMissing || this.#queue.length >= MOST_WAITING) return;
      background(
        this.#queue.run(() => this.#delete(args)),
        { logger: this.#logger, what: 'Deleting outdated UDP connections' },
      );
    }
  }

  async #delete(args: readonly string[]): Promise<void> {
    if (this.#isMissing) return;
    try {
      await this.#conntrack(args);
    } catch (error) {
      const { code } = error as { code?: unknown };
      // No entry matched.
      if (code === 1) return;
      if (code !== 'ENOENT') throw error;
      this.#isMissing = true;
      this.#logger.warn(
        {},
        'UDP clients keep sending to endpoints that are gone until their connections expire; install conntrack to prevent that',
      );
    }
  }
}
