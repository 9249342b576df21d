/**
 * Keeps the host's netfilter rules in sync with the cluster's services and endpoints, as kube-proxy does. One proxy
 * works in a network namespace; a second one waits until the first has exited. The rules remain after the agent stops,
 * as pods do, unless it calls `close({ remove: true })`.
 */
import { execFile } from 'node:child_process';
import { createServer, type Server } from 'node:net';
import { promisify } from 'node:util';
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Informer } from '../../../api/machinery/informer.ts';
import type { EndpointSlice, Service } from '../../../api/machinery/kinds.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { setKernelParameters } from '../kernel-parameters.ts';
import type { Family } from './addresses.ts';
import { HealthCheckPorts } from './health-check-ports.ts';
import { type NameServer, serviceRules } from './iptables-rules.ts';
import type { PacketFilter } from './iptables.ts';
import { healthCheckPorts, type Place, SERVICE_NAME_LABEL, type ServicePort, servicePorts } from './service-ports.ts';

export interface ServiceProxyOptions {
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  readonly filter: PacketFilter;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly masqueradeBit: number;
  readonly place: () => Place;
  readonly podCidrs: () => readonly string[];
  /** The agent's name server and the addresses that pods send queries to. */
  readonly nameServer?: () => NameServer | undefined;
  /** Sets the kernel parameters that the rules need. */
  readonly prepareHost?: () => Promise<void>;
  /** The name of the abstract socket that serves as the lock of the proxy. */
  readonly lockName?: string;
}

/** The abstract socket of the agent that owns the rules of this network namespace. */
export const PROXY_LOCK = 'orchlet-service-proxy';
/** The minimum time between two transactions, because each one reads and writes whole tables. */
const LEAST_INTERVAL_MS = 1000;
/** How long to collect changes before a sync. */
const GATHER_MS = 20;
/** The delay after a failed turn, which doubles up to the longest: a kernel without the table does not get it by itself. */
const RETRY_MS = 5000;
const LONGEST_RETRY_MS = 60_000;
/** How often to check the jumps, because another process may have flushed the tables. */
const INSPECT_MS = 60_000;
const FAMILIES: readonly Family[] = ['IPv4', 'IPv6'];

const execute = promisify(execFile);

export class ServiceProxy {
  readonly #options: ServiceProxyOptions;
  readonly #health: HealthCheckPorts;
  readonly #applied = new Map<Family, { readonly text: string; readonly chains: ReadonlySet<string> }>();
  #udp = new Map<string, ServicePort>();
  /** Another agent owns the rules. This is logged once. */
  #waits = false;
  #lock: Server | undefined;
  /** The time of the first change that is not applied yet; `undefined` if there is none. */
  #changedMs: number | undefined = -Infinity;
  #lastApplyMs = -Infinity;
  #inspectAtMs = Infinity;
  #follows = false;
  readonly #loop: WakeableLoop;
  readonly #closing = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor(options: ServiceProxyOptions) {
    this.#options = options;
    this.#health = new HealthCheckPorts(options.logger);
    this.#loop = new WakeableLoop({
      clock: options.clock,
      backoff: new Backoff({ firstMs: RETRY_MS, longestMs: LONGEST_RETRY_MS }),
      onError: this.#complain,
    });
    options.slices.addIndex('service', ({ metadata }) => {
      const service = metadata.labels?.[SERVICE_NAME_LABEL];
      return service === undefined ? [] : [`${metadata.namespace}/${service}`];
    });
  }

  /** Keeps the rules until the signal aborts or the proxy is closed. A failed turn is retried. Never rejects. */
  run(signal: AbortSignal): Promise<void> {
    this.#running = this.#loop.run(AbortSignal.any([signal, this.#closing.signal]), (either) => this.#turn(either));
    return this.#running;
  }

  /** Requests a sync of the rules. */
  changed(): void {
    // A turn for an earlier change is due already.
    if (this.#changedMs !== undefined) return;
    this.#changedMs = this.#options.clock.monotonic();
    this.#loop.wake();
  }

  /** Takes the lock, follows the informers, applies changes and inspects the rules, as far as each is due. */
  async #turn(signal: AbortSignal): Promise<number> {
    const { filter, logger, clock } = this.#options;
    const problem = this.#lock === undefined ? await filter.problem('IPv4') : '';
    if (problem !== '') {
      logger.warn({ problem }, 'Services are not reachable on this node; install iptables or set --service-proxy=none');
      return Infinity;
    }
    if (!(await this.#takeLock())) return INSPECT_MS;
    await this.#follow(signal);
    if (clock.monotonic() >= this.#inspectAtMs) await this.#inspect();
    if (clock.monotonic() >= this.#dueMs()) await this.#apply();
    return Math.max(0, Math.min(this.#dueMs(), this.#inspectAtMs) - clock.monotonic());
  }

  async #follow(signal: AbortSignal): Promise<void> {
    if (this.#follows) return;
    const { services, slices } = this.#options;
    await Promise.all([services.synced(signal), slices.synced(signal)]);
    this.#follows = true;
    const changed = (): void => this.changed();
    const handler = { add: changed, update: changed, delete: changed };
    services.addHandler(handler);
    slices.addHandler(handler);
  }

  /** Returns the time of the next sync; `Infinity` without a change. */
  #dueMs(): number {
    return this.#changedMs === undefined
      ? Infinity
      : Math.max(this.#changedMs + GATHER_MS, this.#lastApplyMs + LEAST_INTERVAL_MS);
  }

  async close({ remove }: { readonly remove: boolean }): Promise<void> {
    this.#closing.abort();
    await this.#running;
    await this.#health.close();
    if (remove && this.#lock !== undefined) {
      for (const family of this.#applied.keys()) await this.#options.filter.remove(family).catch(this.#complain);
    }
    this.#lock?.close();
  }

  /**
   * Takes the lock: an abstract socket, which belongs to the network namespace like the rules, and disappears with its
   * process. Resolves to whether this proxy has it.
   */
  async #takeLock(): Promise<boolean> {
    if (this.#lock !== undefined) return true;
    const { logger, lockName = PROXY_LOCK } = this.#options;
    const server = createServer((socket) => socket.destroy());
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject).listen(`\0${lockName}`, () => resolve());
      });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      if (!this.#waits)
        logger.warn(
          {},
          'Another agent on this host owns the service rules; services of this cluster are not reachable here until it stops (or set --service-proxy=none)',
        );
      this.#waits = true;
      return false;
    }
    server.unref();
    this.#lock = server;
    return true;
  }

  async #apply(): Promise<void> {
    const { services, slices, place, clock, prepareHost } = this.#options;
    this.#lastApplyMs = clock.monotonic();
    this.#changedMs = undefined;
    const all = services.list();
    const slicesOf = (namespace: string, name: string): EndpointSlice[] =>
      slices.byIndex('service', `${namespace}/${name}`);
    try {
      if (this.#applied.size === 0) await prepareHost?.();
      const udp = new Map<string, ServicePort>();
      for (const family of FAMILIES) {
        const ports = servicePorts(all, slicesOf, family, place());
        await this.#applyFamily(family, ports);
        for (const port of ports) if (port.protocol === 'UDP') udp.set(`${family} ${port.id}`, port);
      }
      await forgetConnections(this.#udp, udp);
      this.#udp = udp;
      await this.#health.keep(healthCheckPorts(all, slicesOf, place()));
    } catch (error) {
      // The state of the tables is unknown, so the retry writes all rules.
      this.#applied.clear();
      this.#changedMs ??= clock.monotonic();
      throw error;
    }
    if (this.#inspectAtMs === Infinity) this.#inspectAtMs = clock.monotonic() + INSPECT_MS;
  }

  async #applyFamily(family: Family, ports: readonly ServicePort[]): Promise<void> {
    const { filter, masqueradeBit, podCidrs, nameServer } = this.#options;
    const before = this.#applied.get(family);
    // IPv6 rules are written only when the first service has an IPv6 address, so that hosts without IPv6 need no
    // ip6tables.
    if (before === undefined && family === 'IPv6' && ports.length === 0) return;
    const isV6 = (address: string): boolean => address.includes(':');
    // The name server listens on IPv4 only, which the host of every pod has.
    const server = nameServer?.();
    const rules = serviceRules(
      ports,
      {
        family,
        masqueradeBit,
        podCidrs: podCidrs().filter((cidr) => isV6(cidr) === (family === 'IPv6')),
        nameServer: server === undefined || family === 'IPv6' ? undefined : server,
      },
      before?.chains ?? (await filter.chains(family)),
    );
    if (before?.text === rules.text) return;
    await filter.apply(family, rules.text);
    if (before === undefined) await filter.ensureJumps(family);
    this.#applied.set(family, rules);
  }

  /** Requests a sync if another process has removed the jumps. Rules that cannot be read stay until the next inspection. */
  async #inspect(): Promise<void> {
    const { clock, filter } = this.#options;
    this.#inspectAtMs = clock.monotonic() + INSPECT_MS;
    for (const family of this.#applied.keys()) {
      if (await filter.intact(family)) continue;
      this.#applied.delete(family);
      this.#changedMs ??= clock.monotonic();
    }
  }

  readonly #complain = (error: unknown): void => {
    this.#options.logger.warn(
      { err: error instanceof Error ? error.message : error },
      'Cannot sync the service rules, retrying',
    );
  };
}

/**
 * Deletes the conntrack entries of removed UDP endpoints. Otherwise the kernel keeps sending a client's datagrams to
 * them. Needs the `conntrack` tool.
 */
async function forgetConnections(
  before: ReadonlyMap<string, ServicePort>,
  after: ReadonlyMap<string, ServicePort>,
): Promise<void> {
  for (const [key, was] of before) {
    const is = after.get(key);
    const left = new Set([...(is?.internal ?? []), ...(is?.external ?? [])].map(({ ip }) => ip));
    const gone = new Set([...was.internal, ...was.external].map(({ ip }) => ip).filter((ip) => !left.has(ip)));
    for (const ip of gone) {
      try {
        await execute('conntrack', ['-D', '-p', 'udp', '--dst-nat', ip]);
      } catch (error) {
        const { code } = error as { code?: unknown };
        // ENOENT: conntrack is not installed. Exit code 1: no entry existed.
        if (code === 'ENOENT') return;
        if (code !== 1) throw error;
      }
    }
  }
}

/**
 * Enables IP forwarding, and makes traffic between pods of one bridge pass netfilter, so that responses come from the
 * service's address.
 */
export function prepareHost(logger: Logger): () => Promise<void> {
  return async () => {
    await setKernelParameters(
      KERNEL_PARAMETERS,
      logger,
      'Cannot set a kernel parameter to 1, pods may not reach services (is br_netfilter loaded?)',
    );
  };
}

const KERNEL_PARAMETERS = {
  'net.ipv4.ip_forward': '/proc/sys/net/ipv4/ip_forward',
  'net.bridge.bridge-nf-call-iptables': '/proc/sys/net/bridge/bridge-nf-call-iptables',
} as const;
