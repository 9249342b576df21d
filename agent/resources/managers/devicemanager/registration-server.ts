/** Serves `<root-dir>/device-plugins/kubelet.sock`, where device plugins register themselves. */
import { join, resolve } from 'node:path';
import type { Logger } from '../../../../api/component/logger.ts';
import { GRPC_INVALID_ARGUMENT, GrpcRefusal, serveGrpc } from '../../../base/protocols/grpc/grpc-server.ts';
import type { IncomingOf } from '../../../../api/grpc/messages.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { checkPlugin, type DeviceManager } from './device-manager.ts';
import { MAX_SHOWN_CHARS } from './plugin-limits.ts';
import { DEVICE_MESSAGES, REGISTRATION_METHODS } from './schema.ts';

interface RegistrationServerOptions {
  /** The directory of the plugins' sockets: `<root-dir>/device-plugins`. */
  readonly directory: string;
  readonly devices: DeviceManager;
  readonly logger: Logger;
  /** Connections to plugins are closed when the signal aborts. */
  readonly signal: AbortSignal;
}

/** Serves the registration of device plugins. Resolves when the server listens, to a function that stops it. */
export async function serveRegistration(options: RegistrationServerOptions): Promise<() => Promise<void>> {
  const { directory, devices, logger, signal } = options;
  return serveGrpc({
    socket: join(directory, 'kubelet.sock'),
    services: [
      {
        messages: DEVICE_MESSAGES,
        methods: REGISTRATION_METHODS,
        handlers: {
          register({ version, endpoint, resourceName }: IncomingOf<typeof DEVICE_MESSAGES, 'RegisterRequest'>) {
            try {
              checkPlugin({ name: resourceName, supportedVersions: [version] });
              checkEndpoint(directory, endpoint);
            } catch (error) {
              logger.warn({ resource: resourceName.slice(0, MAX_SHOWN_CHARS), err: error }, 'Rejected a device plugin');
              throw new GrpcRefusal(GRPC_INVALID_ARGUMENT, (error as Error).message);
            }
            // Responds before it calls the plugin, because some plugins serve only after they are registered.
            devices
              .connect(resourceName, join(directory, endpoint), signal)
              .catch((error: unknown) =>
                logger.warn({ resource: resourceName, err: error }, 'A device plugin does not respond'),
              );
            return {};
          },
        },
      },
    ],
  });
}

/** Throws if the socket is not in the directory of device plugins. */
function checkEndpoint(directory: string, endpoint: string): void {
  if (endpoint.includes('\0') || !resolve(directory, `./${endpoint}`).startsWith(`${resolve(directory)}/`))
    throw new Error(
      `the endpoint ${quoteText(endpoint.slice(0, MAX_SHOWN_CHARS))} is not in the directory of device plugins`,
    );
}
