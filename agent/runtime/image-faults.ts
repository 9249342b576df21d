/**
 * Bounds what an image states about itself. Runtimes accept images whose configuration has hundreds of megabytes, and
 * return parts of it with every list of images and containers: one such image would keep an agent from its work.
 */
import { RuntimeError } from './runtime.ts';

/** The maximum size of an image's configuration. */
const MAX_CONFIG_BYTES = 1 << 20;
/** The maximum number of characters of the user that an image names. */
const LONGEST_USER = 4096;
/** The maximum number of characters of its command, which Docker returns with each list of containers. */
const LONGEST_COMMAND = 128 * 1024;
/**
 * The maximum number of volumes that an image declares. Docker creates a volume for each, also for a container that it cannot
 * create in the end.
 */
const MAX_VOLUMES = 128;

/** What a runtime reports of an image. */
interface ImageFacts {
  readonly user: string;
  /** The size of its configuration, and the number of volumes that it declares. Absent if the runtime reports neither. */
  readonly configBytes?: number;
  readonly volumes?: number;
  /** The number of characters of its command. Absent if the runtime does not report it. */
  readonly command?: number;
}

/** Returns an empty string if an image may be used, else the reason why not. */
export function imageFault({ user, configBytes = 0, volumes = 0, command = 0 }: ImageFacts): string {
  if (configBytes > MAX_CONFIG_BYTES)
    return `its configuration has ${configBytes} bytes, more than ${MAX_CONFIG_BYTES}`;
  if (volumes > MAX_VOLUMES) return `it declares ${volumes} volumes, more than ${MAX_VOLUMES}`;
  if (command > LONGEST_COMMAND) return `its command has ${command} characters, more than ${LONGEST_COMMAND}`;
  return user.length > LONGEST_USER ? `its user has ${user.length} characters, more than ${LONGEST_USER}` : '';
}

/** Returns the error for an image with this fault. */
export const faultyImage = (reference: string, fault: string): RuntimeError =>
  new RuntimeError('invalid', `image "${reference}" is not used: ${fault}`);
