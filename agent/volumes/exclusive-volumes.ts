/**
 * Ensures that a persistent volume with the access mode ReadWriteOncePod belongs to one pod of the node at a time. The
 * scheduler ensures it too, but does not see a pod that names its node itself.
 *
 * A directory of the pod, `exclusive-volumes/<volume>`, records it, so that an agent that was restarted knows which of two pods
 * has the volume, whichever comes first.
 */
import { mkdir, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { SerialQueue } from '../../api/machinery/serial-queue.ts';
import { removeTree } from '../base/files/beneath.ts';

const DIRECTORY = 'exclusive-volumes';

/** Owns the records. `take` rejects while another pod has the volume. */
export class ExclusiveVolumes {
  readonly #pods: string;
  /** Lets one pod at a time check which other pods have the volume. */
  readonly #queue = new SerialQueue();

  /** `rootDirectory` is the value of `--root-dir`. */
  constructor(rootDirectory: string) {
    this.#pods = join(rootDirectory, 'pods');
  }

  /** Gives the volume to the pod until `release`. Throws the kubelet's error if another pod has it. */
  take(podUid: string, volume: string): Promise<void> {
    return this.#queue.run(async () => {
      for (const uid of await readdir(this.#pods)) {
        if (uid !== podUid && (await exists(this.#recordOf(uid, volume))))
          throw new Error('volume uses the ReadWriteOncePod access mode and is already in use by another pod');
      }
      await mkdir(this.#recordOf(podUid, volume), { recursive: true, mode: 0o750 });
    });
  }

  /** Gives back all volumes of the pod. To be called when they are unmounted. */
  async release(podUid: string): Promise<void> {
    await removeTree(join(this.#pods, podUid, DIRECTORY));
  }

  #recordOf(podUid: string, volume: string): string {
    return join(this.#pods, podUid, DIRECTORY, volume);
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return false;
    throw error;
  }
}
