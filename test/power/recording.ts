/** Records what a process changes below a folder (`recorder.c`), and reads the records. Building takes a C compiler. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** One change of the folder. Paths are absolute; `file` is the number by which the file system knows a file or folder. */
export type Change =
  | { readonly kind: 'create' | 'folder'; readonly file: number; readonly path: string }
  | { readonly kind: 'write'; readonly file: number; readonly at: number; readonly data: Buffer }
  | { readonly kind: 'truncate'; readonly file: number; readonly size: number }
  | { readonly kind: 'rename' | 'link'; readonly from: string; readonly to: string }
  | { readonly kind: 'remove'; readonly path: string }
  | { readonly kind: 'symlink'; readonly path: string; readonly target: string }
  | { readonly kind: 'sync'; readonly file: number };

/** The kinds by their numbers in `recorder.c`. */
const KINDS = ['', 'create', 'write', 'truncate', 'rename', 'remove', 'folder', 'symlink', 'link', 'sync'] as const;
const HEADER_BYTES = 32;

/** Returns whether there is a C compiler. */
export const canRecord = (): boolean => spawnSync('cc', ['--version']).status === 0;

/** The compiled recorder, with the environment of the programs that it records. */
export class Recorder {
  /** The environment of the processes that are recorded. */
  readonly environment: Readonly<Record<string, string>>;
  readonly file: string;

  /** Builds the recorder in `scratch`. There must be no link in the path of `root`. */
  constructor(scratch: string, root: string) {
    const library = join(scratch, 'recorder.so');
    const source = join(import.meta.dirname, 'recorder.c');
    const built = spawnSync('cc', ['-shared', '-fPIC', '-O1', '-o', library, source, '-ldl']);
    if (built.status !== 0) throw new Error(`cc: ${built.error?.message ?? built.stderr.toString()}`);
    this.file = join(scratch, 'records');
    this.environment = { LD_PRELOAD: library, POWER_ROOT: root, POWER_RECORD: this.file, UV_USE_IO_URING: '0' };
  }

  /** Returns the changes in their order. A process that was killed may have left a part of the last one, which is left out. */
  changes(): Change[] {
    const bytes = readFileSync(this.file);
    const found: Change[] = [];
    for (let at = 0; at + HEADER_BYTES <= bytes.length;) {
      const firstBytes = bytes.readUInt32LE(at + 4);
      const end = at + HEADER_BYTES + firstBytes + bytes.readUInt32LE(at + 8);
      if (end > bytes.length) break;
      const first = bytes.subarray(at + HEADER_BYTES, at + HEADER_BYTES + firstBytes);
      const second = bytes.subarray(at + HEADER_BYTES + firstBytes, end).toString();
      found.push(changeOf(bytes.subarray(at, at + HEADER_BYTES), first, second));
      at = end;
    }
    return found;
  }
}

function changeOf(header: Buffer, first: Buffer, second: string): Change {
  const kind = KINDS[header.readUInt32LE(0)];
  const [file, at] = [Number(header.readBigUInt64LE(16)), Number(header.readBigUInt64LE(24))];
  switch (kind) {
    case 'create':
    case 'folder':
      return { kind, file, path: first.toString() };
    case 'write':
      return { kind, file, at, data: first };
    case 'truncate':
      return { kind, file, size: at };
    case 'rename':
    case 'link':
      return { kind, from: first.toString(), to: second };
    case 'remove':
      return { kind, path: first.toString() };
    case 'symlink':
      return { kind, path: first.toString(), target: second };
    case 'sync':
      return { kind, file };
    default:
      throw new Error(`there is no kind ${header.readUInt32LE(0)} of changes`);
  }
}
