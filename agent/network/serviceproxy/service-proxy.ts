/**
 * Keeps the host's netfilter rules in sync with the cluster's services and endpoints, as kube-proxy does. One proxy
 * works in a network namespace; a second one waits until the first has exited. The rules remain after the agent stops,
 * as pods do, unless it calls `close({ remove: true })`.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { EndpointSlice, Service } from '../../../api/kinds/kinds.ts';
import { inSlices, TimeSlice } from '../../../api/machinery/time-slice.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { setKernelParameters } from '../kernel-parameters.ts';
import type { NamespaceLock } from '../namespace-lock.ts';
import type { Family } from './addresses.ts';
import { HealthCheckPorts } from './health-check-ports.ts';
import type { ProxyObserver } from './proxy-metrics.ts';
import type { NameServer, RuleSettings, RuleWriter } from './rule-writer.ts';
import { healthCheckPort, type HealthCheckPort, isProxiedSlice, type Place } from './service-ports.ts';
import { ServiceTable } from './service-table.ts';
import { type Conntrack, UdpConnections } from './udp-connections.ts';
import { SERVICE_NAME_LABEL } from '../../../api/meta/well-known-labels.ts';

interface ServiceProxyOptions {
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  /** The writers of the modes that may be used, the preferred one first. */
  readonly writers: readonly RuleWriter[];
  /** The writers of the other modes, whose rules of an earlier process are removed. */
  readonly otherWriters: readonly RuleWriter[];
  readonly conntrack: Conntrack;
  readonly observer?: ProxyObserver;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly masqueradeBit: number;
  readonly place: () => Place;
  readonly podCidrs: () => readonly string[];
  /** The ranges of the addresses of this host that have node ports, of either family. Empty for all. */
  readonly nodePortRanges?: () => readonly string[];
  readonly localhostNodePorts?: boolean;
  /** The agent's name server and the addresses that pods send queries to. */
  readonly nameServer?: () => NameServer | undefined;
  /** Called when the rules of a family are in effect. */
  readonly onWritten?: (family: Family) => void;
  /** Sets the kernel parameters that the rules need. */
  readonly prepareHost?: (settings: RuleSettings) => Promise<void>;
  /** Sets how long the kernel tracks connections, when the first rules are in effect. */
  readonly setTimeouts?: () => Promise<void>;
  /** Resolves to `undefined` while another agent owns the rules of this network namespace. */
  readonly takeLock: () => Promise<NamespaceLock | undefined>;
}

/** The lock of the agent that owns the rules of this network namespace. */
export const PROXY_LOCK = 'orchlet-service-proxy';
/** How long to collect changes before a sync. */
const GATHER_MS = 20;
/** The delay after a failed turn, which doubles up to `MAX_RETRY_MS`: a missing kernel module rarely appears by itself. */
const RETRY_MS = 5000;
const MAX_RETRY_MS = 60_000;
/** How often to check the rules, because another process may have flushed the tables, and the settings. */
const INSPECT_MS = 60_000;
const FAMILIES: readonly Family[] = ['IPv4', 'IPv6'];

/** Owns the rules of services of this network namespace. */
export class ServiceProxy {
  readonly #options: ServiceProxyOptions;
  readonly #health: HealthCheckPorts;
  readonly #udp: UdpConnections;
  readonly #tables: ReadonlyMap<Family, ServiceTable>;
  /** The services, by namespace and name, whose rules may be outdated. */
  readonly #dirty = new Set<string>();
  readonly #healthChecks = new Map<string, HealthCheckPort>();
  /** The families that have rules, perhaps of a write that failed. */
  readonly #active = new Set<Family>();
  /** The families whose rules were written without a failure. */
  readonly #written = new Set<Family>();
  #writer: RuleWriter | undefined;
  /** The place for which the rules of all services were computed. */
  #place = '';
  /** Another agent owns the rules. */
  #isWaiting = false;
  #lock: NamespaceLock | undefined;
  /** The time of the first change that is not applied yet; `undefined` if there is none. */
  #changedMs: number | undefined = -Infinity;
  #lastApplyMs = -Infinity;
  #inspectAtMs = Infinity;
  /** Whether the informers are synced and report changes to this proxy. */
  #isFollowing = false;
  readonly #loop: WakeableLoop;
  readonly #closing = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor(options: ServiceProxyOptions) {
    this.#options = options;
    this.#health = new HealthCheckPorts(options);
    this.#udp = new UdpConnections(options);
    const { services, place } = options;
    const service = (key: string): Service | undefined => services.get(...namesOf(key));
    const slicesOf = (namespace: string, name: string): readonly EndpointSlice[] =>
      this.#slicesOf(`${namespace}/${name}`);
    this.#tables = new Map(FAMILIES.map((family) => [family, new ServiceTable({ family, service, slicesOf, place })]));
    this.#loop = new WakeableLoop({
      clock: options.clock,
      backoff: new Backoff({ firstMs: RETRY_MS, longestMs: MAX_RETRY_MS }),
      onError: this.#logFailure,
    });
    options.slices.addIndex('service', serviceKeysOf);
  }

  /** Keeps the rules until the signal aborts or the proxy is closed. A failed turn is retried. Never rejects. */
  run(signal: AbortSignal): Promise<void> {
    this.#running = this.#loop.run(AbortSignal.any([signal, this.#closing.signal]), (ending) => this.#turn(ending));
    return this.#running;
  }

  /** Requests a sync of the rules. */
  changed(): void {
    // A turn for an earlier change is due already.
    if (this.#changedMs !== undefined) return;
    this.#changedMs = this.#options.clock.monotonic();
    this.#loop.wake();
  }

  /**
   * Takes the lock, follows the informers, applies changes and inspects the rules, as far as each is due. Resolves to the
   * milliseconds until the next turn; `Infinity` if this host can have no rules.
   */
  async #turn(signal: AbortSignal): Promise<number> {
    const { clock } = this.#options;
    if (this.#writer === undefined && !(await this.#chooseWriter())) return Infinity;
    if (!(await this.#takeLock())) return INSPECT_MS;
    await this.#follow(signal);
    if (clock.monotonic() >= this.#inspectAtMs) await this.#inspect();
    if (clock.monotonic() >= this.#dueMs()) await this.#apply(signal);
    return Math.max(0, Math.min(this.#dueMs(), this.#inspectAtMs) - clock.monotonic());
  }

  /** Selects the first mode that this host supports. Resolves to whether there is one. */
  async #chooseWriter(): Promise<boolean> {
    const { writers, logger } = this.#options;
    const problems: Record<string, string> = {};
    for (const writer of writers) {
      const problem = await writer.problem();
      if (problem === '') {
        logger.info({ mode: writer.mode, ...problems }, 'Writing the rules of services');
        this.#writer = writer;
        return true;
      }
      problems[writer.mode] = problem;
    }
    logger.warn(
      { problems },
      'Services are not reachable on this node; install nftables or iptables, or set --service-proxy=none',
    );
    return false;
  }

  async #follow(signal: AbortSignal): Promise<void> {
    if (this.#isFollowing) return;
    const { services, slices } = this.#options;
    await Promise.all([services.synced(signal), slices.synced(signal)]);
    this.#isFollowing = true;
    const service = ({ metadata }: Service): void => this.#touch([keyOf(metadata)]);
    services.addHandler({ add: service, update: (_, current) => service(current), delete: service });
    const slice = (object: EndpointSlice): void => this.#touch(serviceKeysOf(object));
    slices.addHandler({
      add: slice,
      update: (previous, current) => {
        slice(previous);
        slice(current);
      },
      delete: slice,
    });
  }

  #touch(services: readonly string[]): void {
    for (const key of services) this.#dirty.add(key);
    this.changed();
  }

  /** Returns the time of the next sync; `Infinity` without a change. */
  #dueMs(): number {
    return this.#changedMs === undefined
      ? Infinity
      : Math.max(this.#changedMs + GATHER_MS, this.#lastApplyMs + (this.#writer?.leastIntervalMs ?? 0));
  }

  /** Stops the proxy. Without `remove` the rules stay in the kernel, so that services work until the next start. */
  async close({ remove }: { readonly remove: boolean }): Promise<void> {
    this.#closing.abort();
    await this.#running;
    await this.#health.close();
    if (remove && this.#lock !== undefined) {
      for (const writer of [...this.#options.writers, ...this.#options.otherWriters]) await this.#removeRules(writer);
    }
    this.#lock?.close();
  }

  async #takeLock(): Promise<boolean> {
    if (this.#lock !== undefined) return true;
    const { logger, takeLock } = this.#options;
    this.#lock = await takeLock();
    if (this.#lock === undefined && !this.#isWaiting)
      logger.warn(
        {},
        'Another agent on this host owns the service rules; services of this cluster are not reachable here until it stops (or set --service-proxy=none)',
      );
    this.#isWaiting = this.#lock === undefined;
    return !this.#isWaiting;
  }

  async #removeRules(writer: RuleWriter): Promise<void> {
    for (const family of FAMILIES)
      await writer.remove(family).catch((error: unknown) => {
        // A tool that is not installed has written nothing.
        if ((error as { code?: unknown }).code !== 'ENOENT') this.#logFailure(error);
      });
  }

  async #apply(signal: AbortSignal): Promise<void> {
    const { clock, services, place } = this.#options;
    this.#lastApplyMs = clock.monotonic();
    this.#changedMs = undefined;
    const placeText = JSON.stringify(place());
    if (placeText !== this.#place) for (const { metadata } of services.list()) this.#dirty.add(keyOf(metadata));
    this.#place = placeText;
    const keys = [...this.#dirty];
    this.#dirty.clear();
    try {
      for (const family of FAMILIES) await this.#applyFamily(family, keys, signal);
      this.#updateHealthChecks(keys);
      await this.#health.keep([...this.#healthChecks.values()]);
    } catch (error) {
      // The state of the tables is unknown, so the retry writes all rules.
      for (const family of this.#active) this.#writer?.forget(family);
      for (const key of keys) this.#dirty.add(key);
      this.#changedMs ??= clock.monotonic();
      throw error;
    }
    if (this.#inspectAtMs !== Infinity) return;
    this.#inspectAtMs = clock.monotonic() + INSPECT_MS;
    await this.#removeOtherModes();
  }

  /**
   * Removes the rules of the other modes. It runs once the rules of this mode are written, so that services are always
   * reachable.
   */
  async #removeOtherModes(): Promise<void> {
    const { writers, otherWriters } = this.#options;
    for (const writer of [...writers, ...otherWriters]) if (writer !== this.#writer) await this.#removeRules(writer);
    // Removing the rules of iptables also removes those that accept translated connections. `intact` restores them.
    for (const family of this.#active) await this.#writer?.intact(family);
  }

  async #applyFamily(family: Family, keys: readonly string[], signal: AbortSignal): Promise<void> {
    const { clock, prepareHost, setTimeouts, observer, onWritten } = this.#options;
    const writer = this.#writer;
    const table = this.#tables.get(family);
    if (writer === undefined || table === undefined) return;
    const changes = await inSlices(table.update(keys), new TimeSlice(clock), signal);
    const isFirst = !this.#written.has(family);
    // IPv6 rules are written only when the first service has an IPv6 address, so that hosts without IPv6 need no ip6tables.
    if (!this.#active.has(family) && family === 'IPv6' && changes.length === 0) return;
    const settings = this.#settings(family);
    if (isFirst) await prepareHost?.(settings);
    this.#active.add(family);
    const startMs = clock.monotonic();
    try {
      await writer.write(settings, changes);
    } catch (error) {
      observer?.failed(family, writer.mode);
      throw error;
    }
    this.#written.add(family);
    if (isFirst && family === 'IPv4') await setTimeouts?.();
    onWritten?.(family);
    observer?.synced(family, (clock.monotonic() - startMs) / 1000);
    if (isFirst || UdpConnections.concerns(changes)) this.#udp.clean(family, () => table.ports());
  }

  #settings(family: Family): RuleSettings {
    const { masqueradeBit, podCidrs, nameServer, nodePortRanges, localhostNodePorts = false } = this.#options;
    const server = nameServer?.();
    const ofFamily = (ranges: readonly string[]): string[] =>
      ranges.filter((range) => range.includes(':') === (family === 'IPv6'));
    return {
      family,
      masqueradeBit,
      podCidrs: ofFamily(podCidrs()),
      nodePortRanges: ofFamily(nodePortRanges?.() ?? []),
      localhostNodePorts: localhostNodePorts && family === 'IPv4' && this.#writer?.mode === 'iptables',
      nameServer: server && { ...server, addresses: ofFamily(server.addresses) },
    };
  }

  /** Returns the slices of a service, by its key, that the rules are computed from. */
  #slicesOf(key: string): readonly EndpointSlice[] {
    return this.#options.slices.byIndex('service', key).filter(isProxiedSlice);
  }

  #updateHealthChecks(keys: readonly string[]): void {
    const { services, place } = this.#options;
    for (const key of keys) {
      const service = services.get(...namesOf(key));
      const check = service === undefined ? undefined : healthCheckPort(service, () => this.#slicesOf(key), place());
      if (check === undefined) this.#healthChecks.delete(key);
      else this.#healthChecks.set(key, check);
    }
  }

  /**
   * Requests a sync, and forgets the rules of families whose rules another process has removed. Rejects if they cannot be
   * read.
   */
  async #inspect(): Promise<void> {
    const { clock } = this.#options;
    this.#inspectAtMs = clock.monotonic() + INSPECT_MS;
    for (const family of this.#active) if ((await this.#writer?.intact(family)) === false) this.#writer?.forget(family);
    // The address ranges of the node and the settings may have changed, too.
    this.#changedMs ??= clock.monotonic();
  }

  readonly #logFailure = (error: unknown): void => {
    this.#options.logger.warn({ err: errorMessage(error) }, 'Cannot sync the service rules, retrying');
  };
}

const keyOf = ({ namespace, name }: { readonly namespace?: string; readonly name?: string }): string =>
  `${namespace}/${name}`;

function namesOf(key: string): [namespace: string, name: string] {
  const slash = key.indexOf('/');
  return [key.slice(0, slash), key.slice(slash + 1)];
}

function serviceKeysOf({ metadata }: EndpointSlice): string[] {
  const service = metadata.labels?.[SERVICE_NAME_LABEL];
  return service === undefined ? [] : [`${metadata.namespace}/${service}`];
}

/** Returns the function that sets the kernel parameters of the rules. A parameter that cannot be set is logged. */
export function prepareHost(logger: Logger): (settings: RuleSettings) => Promise<void> {
  return async ({ family, localhostNodePorts }) => {
    await setKernelParameters(
      {
        ...(family === 'IPv4' ? KERNEL_PARAMETERS : KERNEL_PARAMETERS_OF_IPV6),
        ...(localhostNodePorts
          ? { 'net.ipv4.conf.all.route_localnet': '/proc/sys/net/ipv4/conf/all/route_localnet' }
          : {}),
      },
      logger,
      'Cannot set a kernel parameter to 1, pods may not reach services (is br_netfilter loaded?)',
    );
  };
}

const KERNEL_PARAMETERS = {
  'net.ipv4.ip_forward': '/proc/sys/net/ipv4/ip_forward',
  'net.bridge.bridge-nf-call-iptables': '/proc/sys/net/bridge/bridge-nf-call-iptables',
} as const;
const KERNEL_PARAMETERS_OF_IPV6 = {
  'net.bridge.bridge-nf-call-ip6tables': '/proc/sys/net/bridge/bridge-nf-call-ip6tables',
} as const;
