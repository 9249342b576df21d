/** Creates the manager of the host's cgroups, by the cgroup driver of the runtime. */
import type { Logger } from '../../../api/component/logger.ts';
import type { CgroupNaming } from './cgroup-path.ts';
import type { CgroupManager } from './cgroup-resources.ts';
import { FileCgroups, readCgroupMount } from './file-cgroups.ts';
import { type Busctl, hostBusctl, SystemdCgroups } from './systemd-cgroups.ts';

interface CgroupManagerOptions extends CgroupNaming {
  /** The mount point of cgroups, usually `/sys/fs/cgroup`. */
  readonly mountPoint: string;
  readonly logger: Logger;
  /** Replaces the host's `busctl`. */
  readonly busctl?: Busctl;
}

/** Creates the manager, and reads the cgroup version once. `driver` must be the one that the runtime reports. */
export async function createCgroupManager(options: CgroupManagerOptions): Promise<CgroupManager> {
  const { driver, root, logger, busctl = hostBusctl } = options;
  const mount = await readCgroupMount(options.mountPoint);
  const files = new FileCgroups(mount, { root, logger });
  return driver === 'systemd' ? new SystemdCgroups({ root, version: mount.version, files, busctl, logger }) : files;
}
