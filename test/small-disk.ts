/** Mounts a small tmpfs for tests of a full disk. Needs the permission to mount. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './temporary-folder.ts';

const mount = (...args: readonly string[]): boolean => spawnSync('mount', args, { stdio: 'ignore' }).status === 0;

/** A mounted tmpfs of a given size. */
export class SmallDisk {
  readonly directory: string;
  readonly isMounted: boolean;

  constructor(size: string) {
    this.directory = temporaryFolder();
    this.isMounted = mount('-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', this.directory);
  }

  /** Changes the size of the mounted disk. `size` has the form of tmpfs options, such as `8m`. */
  resize(size: string): void {
    assert.ok(mount('-o', `remount,size=${size}`, this.directory));
  }

  get #filler(): string {
    return join(this.directory, 'filler');
  }

  /** Fills the disk up to its last byte. */
  fill(): void {
    for (const size of [65_536, 4096, 1]) {
      for (;;) {
        try {
          writeFileSync(this.#filler, Buffer.alloc(size), { flag: 'a' });
        } catch (error) {
          assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
          break;
        }
      }
    }
  }

  /** Uses this number of bytes. */
  take(bytes: number): void {
    writeFileSync(this.#filler, Buffer.alloc(bytes));
  }

  /** Removes what `fill` has written. */
  empty(): void {
    rmSync(this.#filler, { force: true });
  }

  remove(): void {
    // The unmount is lazy, because a process that failed on the full disk may still have a file open.
    if (this.isMounted) spawnSync('umount', ['--lazy', this.directory], { stdio: 'ignore' });
    rmSync(this.directory, { recursive: true, force: true });
  }
}
