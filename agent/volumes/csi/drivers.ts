/**
 * The CSI drivers of this node. Each registers its socket with the plugin manager, reports its id of the node, and is then
 * found by name. The instance of a driver that registered last is in use. When it is gone, the one before it is in use again:
 * anybody who may register a plugin can take the name of another driver.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { GrpcStatus } from '../../../api/grpc/grpc-error.ts';
import { connectGrpc, type GrpcCallObserver, type GrpcClient } from '../../../api/grpc/grpc-client.ts';
import type { Plugin, PluginHandler } from '../plugins/plugin-manager.ts';
import { checkDriverName } from '../plugins/plugin-names.ts';
import type { CsiNode, DriverOnNode } from './csi-node.ts';
import { CSI_MESSAGES, CSI_METHODS, NODE_CAPABILITIES, type NodeCapability } from './schema.ts';

/**
 * The maximum length of a node id, as in the CSINode. The id is also written to an annotation of the node, and all annotations
 * may have 256 KiB together.
 */
const LONGEST_NODE_ID_BYTES = 256;
/** The maximum number of segments of a driver's topology, each of which becomes a label of the node. */
const MAX_SEGMENTS = 64;

/** The timeout of each call to a driver. */
export const CSI_TIMEOUT_MS = 120_000;

/** The errors after which the driver may have done its work nevertheless. */
const UNCERTAIN: ReadonlySet<GrpcStatus> = new Set([
  'Canceled',
  'DeadlineExceeded',
  'Unavailable',
  'ResourceExhausted',
  'Aborted',
]);

/** Whether the driver may have done its work although the call failed with this status. */
export function isUncertain(status: GrpcStatus): boolean {
  return UNCERTAIN.has(status);
}

type CsiNodeClient = GrpcClient<typeof CSI_MESSAGES, typeof CSI_METHODS>;

/** A registered driver. */
export interface CsiDriver {
  readonly name: string;
  readonly client: CsiNodeClient;
  /**
   * Resolves to whether the driver has a capability. Reads the capabilities once. Rejects if that fails; the next call reads
   * them again.
   */
  can(capability: NodeCapability): Promise<boolean>;
}

interface Registered extends CsiDriver {
  readonly endpoint: string;
  readonly onNode: DriverOnNode;
}

interface CsiDriversOptions {
  /** The CSINode of this node; `undefined` without an API server. */
  readonly node: CsiNode | undefined;
  readonly logger: Logger;
  /** Returns the observer of calls to the driver of this name. */
  readonly observe?: (driver: string) => GrpcCallObserver;
}

/** Owns the connections. `get` throws if no driver has the name. */
export class CsiDrivers implements PluginHandler {
  readonly #node: CsiNode | undefined;
  readonly #logger: Logger;
  readonly #observe: CsiDriversOptions['observe'];
  /** The instances of each driver by name, newest last. */
  readonly #drivers = new Map<string, readonly Registered[]>();

  constructor(options: CsiDriversOptions) {
    this.#node = options.node;
    this.#logger = options.logger;
    this.#observe = options.observe;
  }

  /** Throws the kubelet's error if there is no such driver. */
  get(name: string): CsiDriver {
    const driver = this.#drivers.get(name)?.at(-1);
    if (driver === undefined) throw new Error(`driver name ${name} not found in the list of registered CSI drivers`);
    return driver;
  }

  validate({ name, supportedVersions }: Plugin): void {
    if (name === '') throw new Error('CSI driver name must not be empty');
    checkDriverName(name, this.#drivers);
    if (supportedVersions.length === 0) throw new Error('CSI driver reporting empty array for supported versions');
    if (!supportedVersions.some((version) => /^v?1(\.\d+){0,2}$/.test(version)))
      throw new Error(
        `could not find a highest supported version from versions (${supportedVersions.join(' ')}) reported by this driver: this node speaks CSI 1.x`,
      );
  }

  async register({ name, endpoint }: Plugin, signal: AbortSignal): Promise<void> {
    const observe = this.#observe?.(name);
    const client: CsiNodeClient = await connectGrpc({
      socket: endpoint,
      messages: CSI_MESSAGES,
      methods: CSI_METHODS,
      ...(observe === undefined ? {} : { observe }),
    });
    let onNode: DriverOnNode;
    try {
      const info = await client.call('nodeGetInfo', {}, { timeoutMs: CSI_TIMEOUT_MS, signal });
      if (info.nodeId === '') throw new Error('the driver returned no id of this node');
      if (Buffer.byteLength(info.nodeId) > LONGEST_NODE_ID_BYTES)
        throw new Error(`the driver's id of this node has more than ${LONGEST_NODE_ID_BYTES} bytes`);
      const topology = info.accessibleTopology?.segments ?? {};
      if (Object.keys(topology).length > MAX_SEGMENTS)
        throw new Error(`the driver's topology of this node has more than ${MAX_SEGMENTS} segments`);
      onNode = {
        driver: name,
        nodeId: info.nodeId,
        maxVolumes: info.maxVolumesPerNode,
        topology,
      };
      await this.#node?.install(onNode);
    } catch (error) {
      client.close();
      throw error;
    }
    const others = this.#withdraw(name, endpoint);
    this.#drivers.set(name, [...others, { name, endpoint, client, onNode, can: capabilitiesOf(client) }]);
    this.#logger.info({ driver: name, endpoint }, 'A CSI driver is ready');
  }

  /** Reads how many volumes this node can have now, and writes it to the CSINode. Logs a failure. */
  async updateLimit(name: string, signal: AbortSignal): Promise<void> {
    try {
      const { client } = this.get(name);
      const { nodeId, maxVolumesPerNode, accessibleTopology } = await client.call(
        'nodeGetInfo',
        {},
        { timeoutMs: CSI_TIMEOUT_MS, signal },
      );
      const topology = accessibleTopology?.segments ?? {};
      await this.#node?.update({ driver: name, nodeId, maxVolumes: maxVolumesPerNode, topology });
    } catch (error) {
      this.#logger.warn({ driver: name, err: error }, 'Cannot update the number of volumes that a CSI driver allows');
    }
  }

  async deregister(name: string, endpoint: string): Promise<void> {
    const before = this.#drivers.get(name)?.at(-1);
    const left = this.#withdraw(name, endpoint);
    const now = left.at(-1);
    // The driver in use is another instance, and stays in use.
    if (now === before) return;
    if (now === undefined) await this.#node?.uninstall(name);
    else await this.#node?.install(now.onNode);
  }

  /** Closes the instance at the endpoint, if there is one. Returns the others. */
  #withdraw(name: string, endpoint: string): readonly Registered[] {
    const all = this.#drivers.get(name) ?? [];
    const left = all.filter((driver) => driver.endpoint !== endpoint);
    for (const driver of all) if (driver.endpoint === endpoint) driver.client.close();
    if (left.length > 0) this.#drivers.set(name, left);
    else this.#drivers.delete(name);
    return left;
  }

  close(): void {
    for (const driver of [...this.#drivers.values()].flat()) driver.client.close();
    this.#drivers.clear();
  }
}

function capabilitiesOf(client: CsiNodeClient): CsiDriver['can'] {
  let reading: Promise<ReadonlySet<number>> | undefined;
  const read = async (): Promise<ReadonlySet<number>> => {
    const { capabilities } = await client.call('nodeGetCapabilities', {}, { timeoutMs: CSI_TIMEOUT_MS });
    return new Set(capabilities.map(({ rpc }) => rpc?.type ?? 0));
  };
  return async (capability) => {
    reading ??= read();
    try {
      return (await reading).has(NODE_CAPABILITIES[capability]);
    } catch (error) {
      reading = undefined;
      throw error;
    }
  };
}
