/** Compresses large values that were overwritten or deleted. Only the history keeps them, and few clients read them again. */
import { constants, deflateRaw } from 'node:zlib';
import { ownBytes } from '../../api/machinery/own-bytes.ts';
import type { StoredVersion } from './resource-versions.ts';

/** The size from which on a value is compressed. */
const LARGE_BYTES = 16 * 1024;
/** A value stays as it is if its compressed form is not below this share of its size, such as a release of Helm. */
const WORTHWHILE_SHARE = 0.75;

/** Compresses one value at a time, in a thread of the pool. */
export class HistoryCompression {
  readonly #waiting: StoredVersion[] = [];
  #isRunning = false;

  /** Compresses the value soon, if it is large. It must no longer be the current one of its key. */
  add(version: StoredVersion): void {
    if (version.sizeBytes < LARGE_BYTES) return;
    this.#waiting.push(version);
    if (!this.#isRunning) this.#next();
  }

  #next(): void {
    const version = this.#waiting.shift();
    this.#isRunning = version !== undefined;
    if (version === undefined) return;
    deflateRaw(version.value, { level: constants.Z_BEST_SPEED }, (error, deflated) => {
      // After an error, which means that there is no memory for the compressed form, the value stays as it is.
      if (error === null && deflated.length < version.sizeBytes * WORTHWHILE_SHARE)
        version.replaceByDeflated(ownBytes(deflated));
      this.#next();
    });
  }
}
