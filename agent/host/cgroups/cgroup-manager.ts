/** The host's cgroups by the driver that the runtime uses. Called once, by `main.ts`. */
import type { Logger } from '../../../api/component/logger.ts';
import type { CgroupNaming } from './cgroup-path.ts';
import type { CgroupManager } from './cgroup-resources.ts';
import { FileCgroups, lookAtMount } from './file-cgroups.ts';
import { type Busctl, hostBusctl, SystemdCgroups } from './systemd-cgroups.ts';

export interface CgroupManagerOptions extends CgroupNaming {
  /** `/sys/fs/cgroup`, or a fixture. */
  readonly mountPoint: string;
  readonly logger: Logger;
  /** A test's. */
  readonly busctl?: Busctl;
}

export async function createCgroupManager(options: CgroupManagerOptions): Promise<CgroupManager> {
  const { driver, root, logger, busctl = hostBusctl } = options;
  const mount = await lookAtMount(options.mountPoint);
  const files = new FileCgroups(mount, { root, logger });
  return driver === 'systemd' ? new SystemdCgroups({ root, version: mount.version, files, busctl, logger }) : files;
}
