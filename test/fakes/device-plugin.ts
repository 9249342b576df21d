/** Implements a device plugin: a real gRPC server on a real socket, with the devices that a test sets. */
import { join } from 'node:path';
import { connectGrpc } from '../../api/grpc/grpc-client.ts';
import { serveGrpc } from '../../agent/base/protocols/grpc/grpc-server.ts';
import type { IncomingOf, OutgoingOf } from '../../api/grpc/messages.ts';
import {
  DEVICE_MESSAGES,
  DEVICE_PLUGIN_METHODS,
  REGISTRATION_METHODS,
} from '../../agent/resources/managers/devicemanager/schema.ts';

type Messages = typeof DEVICE_MESSAGES;
export type FakeDevice = OutgoingOf<Messages, 'Device'>;

export interface FakePluginOptions {
  /** The directory of the agent's socket and the plugin's socket. */
  readonly directory: string;
  readonly socket?: string;
  readonly devices: readonly FakeDevice[];
  readonly options?: OutgoingOf<Messages, 'DevicePluginOptions'>;
  /** Allocates the ids. By default, the environment variable `DEVICES` contains them in their order. */
  readonly allocate?: (ids: readonly string[]) => OutgoingOf<Messages, 'ContainerAllocateResponse'>;
  readonly prefer?: (available: readonly string[], count: number) => readonly string[];
}

/** A device plugin for one resource. It registers when a test asks for it, and reports the devices that the test sets. */
export class FakeDevicePlugin {
  readonly socket: string;
  readonly allocated: (readonly string[])[] = [];
  readonly preStarted: (readonly string[])[] = [];
  readonly #options: FakePluginOptions;
  readonly #watchers = new Set<() => void>();
  #devices: readonly FakeDevice[];
  #close: (() => Promise<void>) | undefined;

  constructor(options: FakePluginOptions) {
    this.#options = options;
    this.#devices = options.devices;
    this.socket = join(options.directory, options.socket ?? 'fake-plugin.sock');
  }

  /** Serves the plugin's socket, without registering with the agent. */
  async serve(): Promise<void> {
    const { options = {}, allocate, prefer } = this.#options;
    this.#close = await serveGrpc({
      socket: this.socket,
      services: [
        {
          messages: DEVICE_MESSAGES,
          methods: DEVICE_PLUGIN_METHODS,
          handlers: {
            getDevicePluginOptions: () => options,
            allocate: ({ containerRequests }: IncomingOf<Messages, 'AllocateRequest'>) => ({
              containerResponses: containerRequests.map(({ devicesIds }) => {
                this.allocated.push(devicesIds);
                return allocate?.(devicesIds) ?? { envs: { DEVICES: devicesIds.join(',') } };
              }),
            }),
            getPreferredAllocation: ({ containerRequests }: IncomingOf<Messages, 'PreferredAllocationRequest'>) => ({
              containerResponses: containerRequests.map(({ availableDeviceIds, allocationSize }) => ({
                deviceIds: prefer?.(availableDeviceIds, allocationSize) ?? [],
              })),
            }),
            preStartContainer: ({ devicesIds }: IncomingOf<Messages, 'PreStartContainerRequest'>) => {
              this.preStarted.push(devicesIds);
              return {};
            },
          },
          streams: {
            listAndWatch: async (_request, send, signal) => {
              const notify = (): void => send({ devices: this.#devices });
              this.#watchers.add(notify);
              notify();
              await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
              this.#watchers.delete(notify);
            },
          },
        },
      ],
    });
  }

  /** Registers the plugin with the agent. Throws the error with which the agent refuses the registration. */
  async register(resourceName: string, version = 'v1beta1'): Promise<void> {
    const client = await connectGrpc({
      socket: join(this.#options.directory, 'kubelet.sock'),
      messages: DEVICE_MESSAGES,
      methods: REGISTRATION_METHODS,
    });
    try {
      const endpoint = this.socket.slice(this.#options.directory.length + 1);
      await client.call('register', { version, endpoint, resourceName }, { timeoutMs: 20_000 });
    } finally {
      client.close();
    }
  }

  /** Reports other devices to all watches. */
  change(devices: readonly FakeDevice[]): void {
    this.#devices = devices;
    for (const notify of this.#watchers) notify();
  }

  async close(): Promise<void> {
    await this.#close?.();
  }
}

/** Returns healthy devices by name, with the NUMA node of each if it has one. */
export function healthy(devices: Readonly<Record<string, number | undefined>>): FakeDevice[] {
  return Object.entries(devices).map(([id, node]) => ({
    id,
    health: 'Healthy',
    ...(node === undefined ? {} : { topology: { nodes: [{ id: node }] } }),
  }));
}
