/**
 * Holds the connection to one device plugin. The endpoint follows the plugin's device list until the plugin disconnects,
 * and passes calls on.
 */
import type { Clock } from '../../../../api/machinery/clock.ts';
import { RateLimiter } from '../../../../api/machinery/rate-limiter.ts';
import { connectGrpc, type GrpcClient } from '../../../../api/grpc/grpc-client.ts';
import type { IncomingOf } from '../../../../api/grpc/messages.ts';
import { DEVICE_MESSAGES, DEVICE_PLUGIN_METHODS } from './schema.ts';

/** A device as the plugin lists it, with its health and its NUMA nodes. */
export type PluginDevice = IncomingOf<typeof DEVICE_MESSAGES, 'Device'>;
/** What a container needs to use its devices: environment, mounts, device nodes, annotations, CDI names. */
export type AllocateAnswer = IncomingOf<typeof DEVICE_MESSAGES, 'ContainerAllocateResponse'>;
type PluginOptions = IncomingOf<typeof DEVICE_MESSAGES, 'DevicePluginOptions'>;

type PluginClient = GrpcClient<typeof DEVICE_MESSAGES, typeof DEVICE_PLUGIN_METHODS>;

const CALL_TIMEOUT_MS = 30_000;
const CONNECT_TIMEOUT_MS = 10_000;
/** A plugin that sends lists without end waits, since each may have thousands of devices. */
const LIST_RATE = { qps: 10, burst: 10 };

/** A connected plugin. Calls reject if the plugin fails, is gone, or does not answer in time. */
export class DeviceEndpoint {
  readonly socket: string;
  readonly options: PluginOptions;
  readonly #client: PluginClient;
  readonly #abort = new AbortController();

  private constructor(socket: string, options: PluginOptions, client: PluginClient) {
    this.socket = socket;
    this.options = options;
    this.#client = client;
  }

  /** Connects to the plugin and reads its options. Throws if the socket does not respond. */
  static async connect(socket: string, signal: AbortSignal): Promise<DeviceEndpoint> {
    const client = await connectGrpc({
      socket,
      messages: DEVICE_MESSAGES,
      methods: DEVICE_PLUGIN_METHODS,
    });
    try {
      const options = await client.call('getDevicePluginOptions', {}, { timeoutMs: CONNECT_TIMEOUT_MS, signal });
      return new DeviceEndpoint(socket, options, client);
    } catch (error) {
      client.close();
      throw error;
    }
  }

  /** Resolves when the plugin ends the list or the endpoint is stopped. Throws the error that broke the stream. */
  async follow(onDevices: (devices: readonly PluginDevice[]) => void, clock: Clock): Promise<void> {
    const { signal } = this.#abort;
    const pace = new RateLimiter({ clock, ...LIST_RATE });
    const onList = ({ devices }: { readonly devices: readonly PluginDevice[] }): Promise<void> => {
      onDevices(devices);
      return pace.accept(signal);
    };
    await this.#client.stream('listAndWatch', {}, onList, { signal });
  }

  /** Has the plugin prepare devices for one container, and returns what the container needs for them. */
  async allocate(ids: readonly string[]): Promise<AllocateAnswer> {
    const { containerResponses } = await this.#client.call(
      'allocate',
      { containerRequests: [{ devicesIds: ids }] },
      { timeoutMs: CALL_TIMEOUT_MS },
    );
    const [answer] = containerResponses;
    if (answer === undefined) throw new Error('no containers in container allocate response');
    return answer;
  }

  /** Returns the available devices that the plugin prefers; empty if the plugin has no preference. */
  async preferred(request: {
    readonly available: readonly string[];
    readonly mustInclude: readonly string[];
    readonly count: number;
  }): Promise<readonly string[]> {
    if (!this.options.getPreferredAllocationAvailable) return [];
    const { containerResponses } = await this.#client.call(
      'getPreferredAllocation',
      {
        containerRequests: [
          {
            availableDeviceIds: request.available,
            mustIncludeDeviceIds: request.mustInclude,
            allocationSize: request.count,
          },
        ],
      },
      { timeoutMs: CALL_TIMEOUT_MS },
    );
    return containerResponses[0]?.deviceIds ?? [];
  }

  /** Notifies the plugin that a container with the devices starts, if the plugin requires it. */
  async preStart(ids: readonly string[]): Promise<void> {
    if (!this.options.preStartRequired) return;
    await this.#client.call('preStartContainer', { devicesIds: ids }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  stop(): void {
    this.#abort.abort();
    this.#client.close();
  }
}
