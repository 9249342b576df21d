/** What this agent has mounted for pods, by path: asked of the kernel once, remembered then, and taken down again. */
import { rm, rmdir } from 'node:fs/promises';
import type { Mounter } from './mounter.ts';

export class PodMounts {
  readonly #mounter: Mounter;
  readonly #mounted = new Set<string>();

  constructor(mounter: Mounter) {
    this.#mounter = mounter;
  }

  /** Mounts where nothing is mounted yet, and says whether it did. Of several sets of options the first that the kernel takes is used. */
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

  /** Somebody else has mounted there for the pod. */
  note(target: string): void {
    this.#mounted.add(target);
  }

  async under(directory: string): Promise<string[]> {
    const points = await this.#mounter.list();
    return points.map((point) => point.path).filter((path) => path.startsWith(`${directory}/`));
  }

  knowsUnder(directory: string): boolean {
    return [...this.#mounted].some((path) => path.startsWith(`${directory}/`));
  }

  async takeDown(path: string): Promise<void> {
    await this.#mounter.unmount(path);
    this.#mounted.delete(path);
    await rmdir(path).catch(() => rm(path, { force: true }).catch(() => undefined));
  }

  /** Everything below, the innermost first. Throws where something stays: nothing may be removed through a mount. */
  async takeDownAll(directory: string): Promise<void> {
    for (const point of (await this.under(directory)).toReversed()) await this.takeDown(point);
    const left = await this.under(directory);
    if (left.length > 0) throw new Error(`still mounted: ${left.join(', ')}`);
  }
}
