/**
 * Unmounts the volumes of pods below the agent's directory, in its folders of pods and of volume plugins, and the mount that
 * makes the directory shared. Mounts elsewhere, such as a disk that the administrator has put below the data directory, stay.
 */
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { hostMounter } from '../../agent/volumes/mounter.ts';
import { isBoundToItself } from '../../agent/volumes/shared-root.ts';
import type { ResetStep, ResetTarget } from './target.ts';

const FOLDERS = ['pods', 'plugins'] as const;

/** The mounts of pods and of volume plugins and that of the directory, the newest first. */
export const mounts: ResetStep = {
  name: 'mounts',
  async find({ rootDirectory }: ResetTarget) {
    // The table of the kernel has no links.
    const root = await realpath(rootDirectory).catch(() => rootDirectory);
    const below = FOLDERS.map((folder) => `${join(root, folder)}/`);
    const all = await hostMounter.list();
    const points = all.map(({ path }) => path).filter((path) => path !== root || isBoundToItself(root, all));
    const agentMounts = points.filter((path) => path === root || below.some((folder) => path.startsWith(folder)));
    // The newest mount comes first, so that mounts on one mount point are unmounted one by one.
    return agentMounts.toReversed().map((path) => ({ text: `mount ${path}`, remove: () => hostMounter.unmount(path) }));
  },
};
