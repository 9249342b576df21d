/**
 * Owns the node's pod network in Docker: one user-defined bridge whose subnet is the pod CIDR, unless another network or
 * interface uses that. The network's name is derived from the agent's instance, so that two clusters on one host use different
 * networks.
 *
 * A network that carries pods is never recreated: a changed pod CIDR takes effect only after the last pod is gone.
 */
import { readFileSync } from 'node:fs';
import { readdir, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { BlockList } from 'node:net';
import type { Logger } from '../../../api/component/logger.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { dockerBridge, LABEL_INSTANCE } from '../instance.ts';
import { RuntimeError } from '../runtime.ts';
import { unlessGone, type DockerClient } from './docker-client.ts';

interface PodNetworkOptions {
  readonly client: DockerClient;
  readonly logger: Logger;
  readonly instance: string;
  readonly nodeName: string;
  /**
   * The API server assigns the pod CIDR. No network is created before that, because its addresses cannot be changed while it
   * carries pods.
   */
  readonly awaitsCidr: boolean;
}

interface IpamConfig {
  readonly Subnet: string;
  readonly Gateway?: string;
}

/** Owns the network. `problem` is for the condition NetworkReady. */
export class PodNetwork {
  readonly name: string;
  readonly #options: PodNetworkOptions;
  readonly #bridge: string;
  #cidrs: readonly string[] = [];
  #mtu: number | undefined;
  #ready: Promise<void> | undefined;
  /** The bridge ports that already have hairpin mode. With many pods, only the new ports are written. */
  readonly #hairpins = new Set<string>();
  #problem = '';

  constructor(options: PodNetworkOptions) {
    this.#options = options;
    this.#bridge = dockerBridge(options.instance);
    this.name = `orchlet-${options.nodeName.replaceAll(/[^a-zA-Z0-9_.-]/g, '-')}-${options.instance.slice(0, 8)}`;
  }

  /** Why the last `ensure` failed; empty if it succeeded, or before the first one has ended. */
  get problem(): string {
    return this.#problem;
  }

  /** Sets the ranges of pod addresses and the MTU. The MTU counts for a network that is created from now on. */
  setPodCidrs(cidrs: readonly string[], mtu?: number): void {
    this.#mtu = mtu;
    if (cidrs.join() === this.#cidrs.join()) return;
    this.#cidrs = cidrs;
    this.#ready = undefined;
  }

  /**
   * Ensures that the network exists, with the pod CIDR as its subnet where that is possible. Concurrent callers share one
   * attempt. Rejects with `unavailable` while the pod CIDR has to be assigned first.
   */
  async ensure(): Promise<void> {
    this.#ready ??= this.#createUnlessUsable();
    try {
      await this.#ready;
      this.#problem = '';
    } catch (error) {
      this.#ready = undefined;
      this.#problem = errorMessage(error);
      throw error;
    }
  }

  /**
   * Enables hairpin mode on the bridge ports: a frame may leave through the port on which it arrived, so that a pod reaches
   * itself through a service. To be called after a pod has joined.
   */
  async enableHairpinMode(): Promise<void> {
    const ports = `/sys/class/net/${this.#bridge}/brif`;
    try {
      const found = await readdir(ports);
      for (const port of this.#hairpins) if (!found.includes(port)) this.#hairpins.delete(port);
      for (const port of found.filter((name) => !this.#hairpins.has(name))) {
        await writeFile(`${ports}/${port}/hairpin_mode`, '1');
        this.#hairpins.add(port);
      }
    } catch (error) {
      // The pod terminated in the meantime and its port is gone, or the network does not exist.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      this.#options.logger.warn(
        { bridge: this.#bridge, err: errorMessage(error) },
        'Pods may not reach themselves through services',
      );
    }
  }

  /**
   * Forgets that the network exists, so that the next use creates it if it is missing. It may have been removed manually, or
   * the engine restarted with another data root.
   */
  forget(): void {
    this.#ready = undefined;
  }

  async #createUnlessUsable(): Promise<void> {
    const { logger } = this.#options;
    const existing = await this.#find();
    if (existing !== undefined) {
      if (this.#cidrs.length === 0 || this.#cidrs.every((cidr) => existing.subnets.includes(cidr))) return;
      if (existing.inUse) {
        logger.warn(
          { network: this.name, subnets: existing.subnets, podCidrs: this.#cidrs },
          'The pod network keeps its current subnet until its last pod terminates',
        );
        return;
      }
      if (this.#cidrs.some((cidr) => overlapsHost(cidr, this.#bridge))) return;
      await this.#remove(existing.id);
    }
    if (this.#options.awaitsCidr && this.#cidrs.length === 0) {
      throw new RuntimeError('unavailable', 'no pod CIDR has been assigned to this node yet');
    }
    const overlapping = this.#cidrs.filter((cidr) => overlapsHost(cidr, this.#bridge));
    if (overlapping.length > 0) {
      logger.warn(
        { podCidrs: overlapping },
        'The pod CIDR is in use by another interface of this host; the pod network uses a subnet that Docker chooses',
      );
    }
    await this.#create(overlapping.length > 0 ? [] : this.#cidrs);
  }

  /**
   * Removes the network unless a container is in it, so that its addresses are free for others. The next use creates it
   * again.
   */
  async release(): Promise<void> {
    this.#ready = undefined;
    const existing = await this.#find();
    if (existing === undefined || existing.inUse) return;
    await this.#remove(existing.id);
  }

  async #remove(id: string): Promise<void> {
    const { client } = this.#options;
    await unlessGone(client.call('remove network', () => client.docker.getNetwork(id).remove()));
  }

  async #create(cidrs: readonly string[]): Promise<void> {
    const { client, logger } = this.#options;
    const config: IpamConfig[] = cidrs.map((cidr) => ({
      Subnet: cidr,
      ...(firstAddress(cidr) === undefined ? {} : { Gateway: firstAddress(cidr) ?? '' }),
    }));
    try {
      await client.call('create network', () =>
        client.docker.createNetwork({
          Name: this.name,
          Driver: 'bridge',
          CheckDuplicate: true,
          EnableIPv6: cidrs.some((cidr) => cidr.includes(':')),
          Labels: { [LABEL_INSTANCE]: this.#options.instance },
          ...(config.length === 0
            ? {}
            : { IPAM: { Driver: 'default', Config: config as { Subnet: string; Gateway: string }[] } }),
          Options: {
            'com.docker.network.bridge.name': this.#bridge,
            ...(this.#mtu === undefined ? {} : { 'com.docker.network.driver.mtu': String(this.#mtu) }),
          },
        }),
      );
    } catch (error) {
      if (cidrs.length > 0 && error instanceof RuntimeError && /overlaps|conflicts/i.test(error.message)) {
        logger.warn(
          { podCidrs: cidrs, err: error.message },
          'The pod CIDR is in use by another network; the pod network uses a subnet that Docker chooses',
        );
        await this.#create([]);
        return;
      }
      if (error instanceof RuntimeError && error.code === 'already-exists') return;
      throw error;
    }
  }

  async #find(): Promise<
    { readonly id: string; readonly subnets: readonly string[]; readonly inUse: boolean } | undefined
  > {
    const { client } = this.#options;
    const found = await client.call('list networks', () =>
      client.docker.listNetworks({ filters: { name: [this.name] } }),
    );
    const exact = found.find((network) => network.Name === this.name);
    if (exact === undefined) return undefined;
    const detail = (await client.call('inspect network', () => client.docker.getNetwork(exact.Id).inspect())) as {
      Containers?: Record<string, unknown>;
      IPAM?: { Config?: { Subnet?: string }[] };
    };
    return {
      id: exact.Id,
      subnets: (detail.IPAM?.Config ?? []).map((entry) => entry.Subnet ?? ''),
      inUse: Object.keys(detail.Containers ?? {}).length > 0,
    };
  }
}

/**
 * Reports whether another network interface of the host uses addresses of the range. Bridges without members are down and
 * appear only in the routes.
 */
function overlapsHost(cidr: string, ownBridge: string): boolean {
  const [network = '', bits = ''] = cidr.split('/');
  const list = new BlockList();
  list.addSubnet(network, Number(bits), network.includes(':') ? 'ipv6' : 'ipv4');
  const isUp = Object.entries(networkInterfaces()).some(
    ([name, addresses]) =>
      name !== ownBridge &&
      (addresses ?? []).some((address) => list.check(address.address, address.family === 'IPv6' ? 'ipv6' : 'ipv4')),
  );
  return isUp || routedNetworks().some((route) => route.interface !== ownBridge && list.check(route.network, 'ipv4'));
}

/**
 * Returns the networks of the host's IPv4 routes, without the default one, from /proc/net/route. The file has hexadecimal
 * addresses in little-endian order.
 */
function routedNetworks(): { readonly interface: string; readonly network: string }[] {
  let text: string;
  try {
    text = readFileSync('/proc/net/route', 'utf8');
  } catch (error) {
    // The host has no IPv4.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
  return text
    .split('\n')
    .slice(1)
    .map((line) => line.split('\t'))
    .filter(([name = '', destination = '']) => name !== '' && destination !== '00000000')
    .map(([name = '', destination = '']) => ({
      interface: name,
      network: [6, 4, 2, 0].map((at) => Number.parseInt(destination.slice(at, at + 2), 16)).join('.'),
    }));
}

/** Returns the first host address of an IPv4 network. For IPv6 the engine chooses the gateway. */
function firstAddress(cidr: string): string | undefined {
  const parts = (cidr.split('/')[0] ?? '').split('.').map(Number);
  if (parts.length !== 4) return undefined;
  const [a = 0, b = 0, c = 0, d = 0] = parts;
  return `${a}.${b}.${c}.${d + 1}`;
}
