/**
 * State files of the managers in the reference's form, so that it and this agent can take over from each other: one line of
 * JSON with a checksum, FNV-1a over the value as Go's spew writes it (`%#v`). The file is replaced by a rename.
 *
 * Structs, maps and slices look alike in JSON; the checksum needs their Go types, so each state file says its own with the
 * functions below.
 */
import { mkdir, readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { replaceFile } from '../../api/machinery/replace-file.ts';

/** 32-bit FNV-1a. */
export function fnv32a(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text, 'utf8')) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

/** A struct's fields, each with its type before it: `{PolicyName:(string)none …}`. */
export function goStruct(fields: readonly (readonly [name: string, type: string, value: string])[]): string {
  return `{${fields.map(([name, type, value]) => `${name}:(${type})${value}`).join(' ')}}`;
}

/** Keys in their order: of text by code units, of numbers by value. */
export function goMap(entries: readonly (readonly [key: string | number, value: string])[]): string {
  const sorted = entries.toSorted(([left], [right]) =>
    typeof left === 'number' && typeof right === 'number' ? left - right : String(left) < String(right) ? -1 : 1,
  );
  return `map[${sorted.map(([key, value]) => `${key}:${value}`).join(' ')}]`;
}

export function goSlice(values: readonly (string | number)[]): string {
  return `[${values.join(' ')}]`;
}

/** `undefined` where there is no file. */
export async function readStateFile(path: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return JSON.parse(text) as unknown;
}

/** Whole or not at all, also after a power cut. */
async function writeStateFile(path: string, value: object): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o750 });
  await replaceFile(path, JSON.stringify(value), { mode: 0o600 });
}

/** Writes one after the other; of what waits only the newest is written. */
export class StateWriter {
  readonly #path: string;
  readonly #onError: (error: unknown) => void;
  #next: (() => object) | undefined;
  #running: Promise<void> | undefined;

  constructor(path: string, onError: (error: unknown) => void) {
    this.#path = path;
    this.#onError = onError;
  }

  /** Resolves when what `value` then says is on the disk. */
  write(value: () => object): Promise<void> {
    this.#next = value;
    this.#running ??= this.#drain().finally(() => (this.#running = undefined));
    return this.#running;
  }

  async #drain(): Promise<void> {
    for (let next = this.#next; next !== undefined; next = this.#next) {
      this.#next = undefined;
      await writeStateFile(this.#path, next()).catch(this.#onError);
    }
  }
}

/** The state cannot be used as it is; its message names the file and what to do. */
export class StateError extends Error {
  override readonly name = 'StateError';
}
