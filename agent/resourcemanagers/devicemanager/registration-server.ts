/** Where device plugins register by themselves: `<root-dir>/device-plugins/kubelet.sock`. */
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { GRPC_INVALID_ARGUMENT, GrpcRefusal, serveGrpc } from '../../grpc/grpc-server.ts';
import type { IncomingOf } from '../../grpc/messages.ts';
import { checkPlugin, type DeviceManager } from './device-manager.ts';
import { DEVICE_MESSAGES, REGISTRATION_METHODS } from './schema.ts';

export interface RegistrationServerOptions {
  /** `<root-dir>/device-plugins`. */
  readonly directory: string;
  readonly devices: DeviceManager;
  readonly logger: Logger;
  /** Plugins are let go when it aborts. */
  readonly signal: AbortSignal;
}

/** Resolves when it listens, to what ends it. */
export async function serveRegistration(options: RegistrationServerOptions): Promise<() => Promise<void>> {
  const { directory, devices, logger, signal } = options;
  return serveGrpc({
    socket: join(directory, 'kubelet.sock'),
    services: [
      {
        packageName: 'v1beta1',
        messages: DEVICE_MESSAGES,
        methods: REGISTRATION_METHODS,
        handlers: {
          register({ version, endpoint, resourceName }: IncomingOf<typeof DEVICE_MESSAGES, 'RegisterRequest'>) {
            try {
              checkPlugin({ name: resourceName, supportedVersions: [version] });
            } catch (error) {
              logger.warn({ resource: resourceName, error }, 'A device plugin is refused');
              throw new GrpcRefusal(GRPC_INVALID_ARGUMENT, (error as Error).message);
            }
            // Answered before the plugin is called: some serve only when they know that they are registered.
            devices
              .connect(resourceName, join(directory, endpoint), signal)
              .catch((error: unknown) =>
                logger.warn({ resource: resourceName, error }, 'A device plugin does not answer'),
              );
            return {};
          },
        },
      },
    ],
  });
}
