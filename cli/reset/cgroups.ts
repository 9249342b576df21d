/** Removes the cgroups of pods. Those with processes belong to another agent of this host and stay. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createCgroupManager } from '../../agent/host/cgroups/cgroup-manager.ts';
import { cgroupPath } from '../../agent/host/cgroups/cgroup-path.ts';
import { readCgroupMount } from '../../agent/host/cgroups/file-cgroups.ts';
import { silentLogger } from '../../api/component/logger.ts';
import type { ResetStep, ResetTarget } from './target.ts';

const MOUNT_POINT = '/sys/fs/cgroup';

/** Finds nothing if no agent seems to have used the root directory. */
export const cgroups: ResetStep = {
  name: 'cgroups',
  async find({ isKnown, record: { cgroupDriver, cgroupRoot } }: ResetTarget) {
    if (!isKnown) return [];
    const isSystemd = cgroupDriver === '' ? existsSync(`${MOUNT_POINT}/kubepods.slice`) : cgroupDriver === 'systemd';
    const manager = await createCgroupManager({
      driver: isSystemd ? 'systemd' : 'cgroupfs',
      root: cgroupRoot,
      mountPoint: MOUNT_POINT,
      logger: silentLogger,
    });
    const name = manager.name(['kubepods']);
    const { version, controllers } = await readCgroupMount(MOUNT_POINT);
    const places = (version === 2 ? [''] : controllers).map((controller) =>
      join(MOUNT_POINT, controller, cgroupPath(name)),
    );
    if (!places.some((place) => existsSync(place))) return [];
    return [{ text: `cgroups of pods, which are ${name} and below`, remove: () => manager.remove(name) }];
  },
};
