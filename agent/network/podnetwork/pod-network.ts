/**
 * Keeps the network between the pods of this node and those of other nodes: the CNI configuration of the runtime, the link to
 * other nodes with its routes, and the rules for their packets. Each turn compares the host with the nodes of the cluster and
 * applies the difference, so that it repairs what other programs change.
 *
 * Everything stays when the agent stops, as pods do, unless it calls `close({ remove: true })`. One agent works in a
 * network namespace.
 */
import type { CniPlaces } from '../../base/model/cni-places.ts';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { background } from '../../../api/machinery/background.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Node } from '../../../api/kinds/kinds.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { type Cidr, type Ip, isLoopback, parseCidr, parseIp } from '../../../api/meta/ip-addresses.ts';
import type { NamespaceLock } from '../namespace-lock.ts';
import { choosePeers, type ClusterNode, clusterNode, ENDPOINT, endpointText, type Refusal } from './cluster-nodes.ts';
import {
  cniConfiguration,
  foreignConfigurations,
  missingPlugins,
  POD_BRIDGE,
  removeCniConfiguration,
  writeCniConfiguration,
} from './cni-configuration.ts';
import { desiredNetwork, NO_NETWORK, podMtu, type Uplink, type WireguardKeys } from './desired-network.ts';
import type { HostNetwork } from './host-network.ts';
import { commandsFor, isEmpty } from './network-difference.ts';
import { NodeRules, type NodeRulesOptions } from './node-rules.ts';
import { createKeys, readKeys, writeKeys } from './wireguard-keys.ts';
import { WIREGUARD_PUBLIC_KEY } from '../../../api/meta/orchlet-annotations.ts';

/** Where the last known nodes are stored. */
interface NodeMemory {
  load(): Promise<readonly ClusterNode[] | undefined>;
  save(nodes: () => readonly ClusterNode[]): void;
}

/** What the network reads of the cluster and of this node, and the tools that change the host. */
export interface PodNetworkOptions extends NodeRulesOptions {
  readonly nodeName: string;
  readonly nodes: Informer<Node>;
  readonly memory: NodeMemory;
  /** The pod ranges of this node; empty until they are assigned. */
  readonly ranges: () => readonly string[];
  /** The addresses that this node reports, the primary one first. */
  readonly nodeAddresses: () => readonly string[];
  /** All addresses of this host. */
  readonly hostAddresses: () => readonly string[];
  /** The ranges of all pods of the cluster, if they are known. */
  readonly clusterRanges: () => readonly string[];
  /** Resolves to `undefined` if the runtime uses no CNI plugins. */
  readonly cniPlaces: () => Promise<CniPlaces | undefined>;
  readonly hairpin: boolean;
  /** The directory of the allocated addresses and of the private key. */
  readonly stateDirectory: string;
  /** How long a WireGuard key is used; 0 means for ever. */
  readonly keyLifetimeMs: number;
  readonly host: HostNetwork;
  /** Sets the kernel parameters that forwarding needs. */
  readonly prepareHost: (families: ReadonlySet<4 | 6>) => Promise<void>;
  /** Writes annotations of this node. */
  readonly publish: (annotations: Readonly<Record<string, string>>) => Promise<void>;
  /** Removes everything of the pod network from this host. */
  readonly removeAll: () => Promise<void>;
  readonly clock: Clock;
  /** Called when `problem` has changed. */
  readonly onProblem: (message: string) => void;
  /** Called when the pods of another node cannot be reached, and again when the reason changes. */
  readonly onRefusal: (refusal: Refusal) => void;
  /** Resolves to `undefined` while another agent owns the pod network of this network namespace. */
  readonly takeLock: () => Promise<NamespaceLock | undefined>;
}

/** How often to compare the host with the desired state, because another process may have changed it. */
const INSPECT_MS = 30_000;
/** How long to collect changes of nodes before a turn. */
const GATHER_MS = 50;
/** The MTU of the host, in bytes, if the interface with the node's address is not known. */
const USUAL_MTU = 1500;

/** Owns link, routes, rules and CNI configuration of this node. A failed turn is logged and retried. */
export class PodNetwork {
  readonly #options: PodNetworkOptions;
  readonly #loop: WakeableLoop;
  readonly #closing = new AbortController();
  #running: Promise<void> = Promise.resolve();
  #lock: NamespaceLock | undefined;
  #problem = '';
  readonly #logged = new Set<string>();
  readonly #rules: NodeRules;
  /** The address families whose kernel parameters are set, such as `4,6`. */
  #preparedFamilies = '';
  /** The nodes of the last run, until the API server has sent them. */
  #remembered: readonly ClusterNode[] | undefined;
  #hasLoaded = false;
  /** The time at which the WireGuard key of this node is to be replaced. */
  #keysDueMs = Infinity;
  /** Whether this host can create the link of the mode. */
  #isSupported = false;
  #refusals = new Map<string, string>();

  constructor(options: PodNetworkOptions) {
    this.#options = options;
    this.#rules = new NodeRules(options);
    this.#loop = new WakeableLoop({ clock: options.clock, onError: (error) => this.#logFailure(error) });
  }

  /** Returns the known reason why pods of this node cannot be started or reached; an empty text if none is known. */
  problem(): string {
    return this.#problem;
  }

  /** Resolves to the MTU of pods, in bytes; `undefined` if it is that of the host or the interface of the node is not known. */
  async mtu(): Promise<number | undefined> {
    const uplink = await this.#uplink();
    return uplink === undefined || this.#options.mode === 'routes' ? undefined : podMtu(this.#options.mode, uplink);
  }

  /** Requests a turn, because something that the network depends on has changed. */
  changed(): void {
    this.#loop.wake();
  }

  /** Keeps the network until the signal aborts or it is closed. Never rejects. */
  run(signal: AbortSignal): Promise<void> {
    const { nodes, logger } = this.#options;
    const ending = AbortSignal.any([signal, this.#closing.signal]);
    const concerns = (before: Node, after: Node): boolean =>
      JSON.stringify(clusterNode(before)) !== JSON.stringify(clusterNode(after));
    nodes.addHandler({
      add: () => this.changed(),
      update: (before, after) => (concerns(before, after) ? this.changed() : undefined),
      delete: () => this.changed(),
    });
    background(
      nodes.synced(ending).then(() => this.changed()),
      { logger, what: 'Waiting for the nodes', signal: ending },
    );
    this.#running = this.#loop.run(ending, () => this.#turn());
    return this.#running;
  }

  /**
   * Stops the turns. `remove`, which requires that no pods remain on this host, removes the pod network if this agent owns
   * it.
   */
  async close({ remove }: { readonly remove: boolean }): Promise<void> {
    this.#closing.abort();
    await this.#running;
    if (remove && this.#lock !== undefined)
      await this.#options.removeAll().catch((error: unknown) => this.#logFailure(error));
    this.#lock?.close();
  }

  async #turn(): Promise<number> {
    const { clock, logger, takeLock } = this.#options;
    this.#lock ??= await takeLock();
    if (this.#lock === undefined) {
      this.#logOnce('lock', () =>
        logger.warn(
          {},
          'Another agent on this host owns the pod network; pods of other nodes are not reachable from here until it stops',
        ),
      );
      return INSPECT_MS;
    }
    await pause(clock, GATHER_MS, this.#closing.signal);
    const ranges = this.#options.ranges().flatMap((text) => parseCidr(text) ?? []);
    if (ranges.length === 0) {
      this.#setProblem('no pod CIDR has been assigned to this node yet');
      return INSPECT_MS;
    }
    // The next run and `orchlet reset` look for links and rules of the pod network only if this directory exists.
    const isNew = (await mkdir(this.#options.stateDirectory, { recursive: true, mode: 0o700 })) !== undefined;
    if (isNew) this.#rules.assumeNone();
    const uplink = await this.#uplink();
    const places = await this.#options.cniPlaces();
    if (places !== undefined && !(await this.#provideCni(places, ranges, uplink))) return INSPECT_MS;
    await this.#prepare(ranges);
    await this.#connect(ranges, uplink, places === undefined ? '' : POD_BRIDGE);
    return Math.max(0, Math.min(INSPECT_MS, this.#keysDueMs - clock.now()));
  }

  /** Resolves to the interface that has the first address of this node that is not loopback; `undefined` if none has. */
  async #uplink(): Promise<Uplink | undefined> {
    const { nodeAddresses, host } = this.#options;
    const address = nodeAddresses()
      .flatMap((text) => parseIp(text) ?? [])
      .find((ip) => !isLoopback(ip));
    return address === undefined ? undefined : host.uplink(address);
  }

  /** Writes the CNI configuration. Resolves to false if the runtime has another one or lacks plugins. */
  async #provideCni(places: CniPlaces, ranges: readonly Cidr[], uplink: Uplink | undefined): Promise<boolean> {
    const { mode, hairpin, stateDirectory, logger } = this.#options;
    const foreign = await foreignConfigurations(places);
    if (foreign.length > 0) {
      this.#logOnce(`foreign ${foreign.join()}`, () =>
        logger.warn(
          { files: foreign, directory: places.configurationDirectory },
          'Another CNI configuration provides the network of pods, so the agent sets up none; remove it, or set --pod-network=none',
        ),
      );
      await removeCniConfiguration(places);
      if (!this.#rules.hasCleared) await this.#clear();
      this.#setProblem('');
      return false;
    }
    const missing = await missingPlugins(places);
    if (missing.length > 0) {
      this.#setProblem(
        `the CNI plugins ${missing.join(', ')} are not in ${places.pluginDirectories.join(' or ')} (apt-get install containernetworking-plugins)`,
      );
      return false;
    }
    const mtu =
      uplink === undefined ? podMtu(mode, { mtu: USUAL_MTU, address: UNSPECIFIED_IPV4 }) : podMtu(mode, uplink);
    const addressDirectory = join(stateDirectory, 'addresses');
    await writeCniConfiguration(places, stateDirectory, cniConfiguration({ ranges, mtu, hairpin, addressDirectory }));
    return true;
  }

  async #prepare(ranges: readonly Cidr[]): Promise<void> {
    const families = new Set(ranges.map(({ family }) => family));
    const key = [...families].join();
    if (this.#preparedFamilies === key) return;
    await this.#options.prepareHost(families);
    this.#preparedFamilies = key;
  }

  /**
   * Connects this node to the pods of the known nodes by rules, a link and routes, or sets the problem that prevents it.
   */
  async #connect(ranges: readonly Cidr[], uplink: Uplink | undefined, bridge: string): Promise<void> {
    const { mode, port, host, hostAddresses, clusterRanges, nodeName } = this.#options;
    const nodes = await this.#knownNodes();
    const { peers, refusals } = choosePeers(nodes ?? [], {
      name: nodeName,
      ranges,
      hostAddresses: hostAddresses().flatMap((text) => parseIp(text) ?? []),
      clusterRanges: clusterRanges().flatMap((text) => parseCidr(text) ?? []),
    });
    if (nodes === undefined) {
      // Other nodes are not known yet, so the link and routes of the last run stay.
      await this.#rules.apply(ranges, [], { bridge, uplink });
      return;
    }
    if (uplink === undefined && peers.length > 0) {
      this.#setProblem(`no interface of this host has the node's address ${this.#options.nodeAddresses()[0] ?? ''}`);
      return;
    }
    const problem = await this.#linkProblem();
    if (problem !== '' && peers.length > 0) {
      this.#setProblem(`the pod network ${mode} does not work on this host: ${problem}`);
      return;
    }
    const keys = mode === 'wireguard' && uplink !== undefined ? await this.#keys(uplink, nodes) : undefined;
    const desired =
      uplink === undefined
        ? { network: NO_NETWORK, refusals: [] }
        : desiredNetwork({ mode, port, ranges, uplink, peers, keys });
    await this.#rules.apply(ranges, peers, { bridge, uplink });
    await this.#rules.guard(peers);
    const commands = commandsFor(desired.network, await host.observe());
    if (!isEmpty(commands)) await host.change(commands);
    this.#report([...refusals, ...desired.refusals]);
    this.#setProblem('');
  }

  /** Returns `undefined` if the nodes are known neither from the API server nor from the last run. */
  async #knownNodes(): Promise<readonly ClusterNode[] | undefined> {
    const { nodes, memory } = this.#options;
    if (nodes.hasSynced) {
      memory.save(() => nodes.list().map(clusterNode));
      return nodes.list().map(clusterNode);
    }
    if (!this.#hasLoaded) this.#remembered = await memory.load();
    this.#hasLoaded = true;
    return this.#remembered;
  }

  /**
   * Returns the keys of this node. The successor of a key is published before it is used, so that other nodes know it as
   * soon as packets come with it.
   */
  async #keys(uplink: Uplink, nodes: readonly ClusterNode[]): Promise<WireguardKeys> {
    const { nodeName, port, stateDirectory, keyLifetimeMs, publish, clock, logger } = this.#options;
    const privateKeyFile = join(stateDirectory, 'wireguard.key');
    const stored = await readKeys(privateKeyFile);
    const isDue = stored !== undefined && keyLifetimeMs > 0 && clock.now() - stored.createdMs >= keyLifetimeMs;
    const keys = stored === undefined || (isDue && this.#options.nodes.hasSynced) ? createKeys(clock.now()) : stored;
    const endpoint = endpointText(uplink.address, port);
    const thisNode = nodes.find(({ name }) => name === nodeName);
    if (this.#options.nodes.hasSynced && (thisNode?.publicKey !== keys.publicKey || thisNode.endpoint !== endpoint))
      await publish({ [WIREGUARD_PUBLIC_KEY]: keys.publicKey, [ENDPOINT]: endpoint });
    if (keys !== stored) {
      await writeKeys(privateKeyFile, keys);
      if (isDue) logger.info({ publicKey: keys.publicKey }, 'Replaced the WireGuard key of this node');
    }
    const isRenewed = keyLifetimeMs > 0 && this.#options.nodes.hasSynced;
    this.#keysDueMs = isRenewed ? keys.createdMs + keyLifetimeMs : Infinity;
    return { publicKey: keys.publicKey, privateKeyFile };
  }

  /** Returns why this host cannot create the link; empty if it can. */
  async #linkProblem(): Promise<string> {
    const { mode, host, logger } = this.#options;
    if (mode === 'routes' || this.#isSupported) return '';
    const { problem, substitute } = await host.linkSupport(mode);
    this.#isSupported = problem === '';
    if (problem !== '')
      this.#logOnce(problem, () => logger.warn({ mode, problem }, 'This host lacks what the pod network needs'));
    if (substitute !== '') logger.info({ mode, substitute }, 'The pod network uses a program in place of the kernel');
    return problem;
  }

  /** Removes links and rules, which another network plugin would not expect. */
  async #clear(): Promise<void> {
    const { host } = this.#options;
    const commands = commandsFor(NO_NETWORK, await host.observe());
    if (!isEmpty(commands)) await host.change(commands);
    await this.#rules.clear();
  }

  #report(refusals: readonly Refusal[]): void {
    const { logger, onRefusal } = this.#options;
    const current = new Map(refusals.map(({ node, reason }) => [node, reason]));
    for (const [node, reason] of current) {
      if (this.#refusals.get(node) === reason) continue;
      logger.warn({ node, reason }, 'The pods of a node are not reachable over the pod network');
      onRefusal({ node, reason });
    }
    this.#refusals = current;
  }

  #setProblem(message: string): void {
    if (message === this.#problem) return;
    this.#problem = message;
    if (message !== '') this.#options.logger.warn({ problem: message }, 'The pod network is not ready');
    this.#options.onProblem(message);
  }

  #logOnce(state: string, log: () => void): void {
    if (!this.#logged.has(state)) log();
    this.#logged.add(state);
  }

  #logFailure(error: unknown): void {
    this.#options.logger.warn({ err: errorMessage(error) }, 'Cannot set up the pod network, retrying');
  }
}

const UNSPECIFIED_IPV4: Ip = { family: 4, value: 0n, mapped: false };
