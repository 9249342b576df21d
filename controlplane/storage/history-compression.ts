/**
 * Compresses large values that were overwritten or deleted. Only the history keeps them, for five minutes, and few clients read
 * them again. Without it, 450 definitions of 54 KB, whose status is written twice, take three times their size.
 */
import { promisify } from 'node:util';
import { constants, deflateRaw } from 'node:zlib';
import type { StoredVersion } from './resource-versions.ts';

/** The size from which on a value is compressed. Most objects are smaller, and would save little. */
const LARGE_BYTES = 16 * 1024;
/** Values that do not become this much smaller, such as releases of Helm, stay as they are. */
const WORTHWHILE_SHARE = 0.75;

const deflate = promisify<Buffer, { readonly level: number }, Buffer>(deflateRaw);

/** Compresses one value at a time, in a thread of the pool. */
export class HistoryCompression {
  #waiting: StoredVersion[] = [];
  #isRunning = false;

  /** Compresses the value soon, if it is large. It must no longer be the current one of its key. */
  add(version: StoredVersion): void {
    if (version.sizeBytes < LARGE_BYTES) return;
    this.#waiting.push(version);
    if (!this.#isRunning) void this.#run();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      const versions = this.#waiting;
      this.#waiting = [];
      for (const version of versions) await compress(version);
    }
    this.#isRunning = false;
  }
}

async function compress(version: StoredVersion): Promise<void> {
  try {
    const deflated = await deflate(version.value, { level: constants.Z_BEST_SPEED });
    if (deflated.length < version.sizeBytes * WORTHWHILE_SHARE) version.replaceByDeflated(deflated);
  } catch {
    // Without memory for the compressed form, the value stays as it is.
  }
}
