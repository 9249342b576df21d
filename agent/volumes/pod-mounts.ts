/** Mounts and unmounts what pods need. */
import { rm, rmdir } from 'node:fs/promises';
import type { Mounter } from './mounter.ts';

/** Owns the set of targets that are known to be mounted. */
export class PodMounts {
  readonly #mounter: Mounter;
  readonly #mounted = new Set<string>();

  constructor(mounter: Mounter) {
    this.#mounter = mounter;
  }

  /**
   * Mounts if nothing is mounted at the target yet, and returns whether it did. Uses the first set of options that the kernel
   * accepts. Throws the first error if the kernel accepts none.
   */
  async ensure(
    target: string,
    mount: { readonly source: string; readonly type: string },
    ...optionSets: readonly (readonly string[])[]
  ): Promise<boolean> {
    if (this.#mounted.has(target)) return false;
    const isMissing = !(await this.#mounter.list()).some((point) => point.path === target);
    if (isMissing) {
      let problem: unknown;
      for (const options of optionSets) {
        try {
          await this.#mounter.mount({ ...mount, target, options });
          problem = undefined;
          break;
        } catch (error) {
          problem ??= error;
        }
      }
      if (problem !== undefined) throw problem;
    }
    this.#mounted.add(target);
    return isMissing;
  }

  /** Returns the mount points below a directory, as the kernel lists them. */
  async #mountPointsBelow(directory: string): Promise<string[]> {
    const points = await this.#mounter.list();
    return points.map((point) => point.path).filter((path) => path.startsWith(`${directory}/`));
  }

  /** Unmounts the path, and removes its mount point. */
  async takeDown(path: string): Promise<void> {
    await this.#mounter.unmount(path);
    this.#mounted.delete(path);
    // A volume of a file is mounted on a file. A mount point that stays is removed with the directory of the pod.
    await rmdir(path).catch(() => rm(path, { force: true }).catch(() => undefined));
  }

  /** Unmounts everything below, the innermost first. Throws if a mount stays, because files must not be removed through it. */
  async takeDownAll(directory: string): Promise<void> {
    const points = await this.#mountPointsBelow(directory);
    if (points.length === 0) return;
    for (const point of points.toReversed()) await this.takeDown(point);
    const remaining = await this.#mountPointsBelow(directory);
    if (remaining.length > 0) throw new Error(`still mounted: ${remaining.join(', ')}`);
  }
}
