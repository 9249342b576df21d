/**
 * Reads and writes the state files of the resource managers in the kubelet's format, so that the kubelet and this agent can
 * take over from each other. A file is one line of JSON with a checksum: that of resource claims is a CRC-32 of the text, and
 * the others are FNV-1a over the value as Go's spew prints it (`%#v`).
 *
 * Structs, maps and slices look alike in JSON, but such a checksum depends on their Go types. The managers with such files
 * therefore describe their types with the functions below.
 */
import { basename, dirname } from 'node:path';
import { ifMissing, inDirectory } from '../../base/files/beneath.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/** Returns the 32-bit FNV-1a hash of the text's UTF-8 bytes. */
export function fnv32a(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text, 'utf8')) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

/** Prints a struct's fields with their types, as spew does: `{PolicyName:(string)none …}`. */
export function goStruct(fields: readonly (readonly [name: string, type: string, value: string])[]): string {
  return `{${fields.map(([name, type, value]) => `${name}:(${type})${value}`).join(' ')}}`;
}

/** Prints a map as spew does, with text keys sorted by code units and number keys sorted by value. */
export function goMap(entries: readonly (readonly [key: string | number, value: string])[]): string {
  const sorted = entries.toSorted(([left], [right]) =>
    typeof left === 'number' && typeof right === 'number' ? left - right : String(left) < String(right) ? -1 : 1,
  );
  return `map[${sorted.map(([key, value]) => `${key}:${value}`).join(' ')}]`;
}

/** Prints values as Go prints a slice of strings or numbers. */
export function goSlice(values: readonly (string | number)[]): string {
  return `[${values.join(' ')}]`;
}

/** The largest state file of a node has some megabytes. */
const MAX_STATE_BYTES = 64 * 1024 * 1024;

/**
 * Reads the JSON of a state file. Returns `undefined` if the file does not exist. Throws if its text is not JSON, and for
 * anything but a regular file: device plugins can write to the folder of one of the files, and a read of a FIFO in its place
 * would hang.
 */
export async function readStateFile(path: string): Promise<unknown> {
  const bytes = await inDirectory(dirname(path), (directory) =>
    directory.readFile(basename(path), MAX_STATE_BYTES),
  ).catch(ifMissing);
  return bytes === undefined ? undefined : (JSON.parse(bytes.toString('utf8')) as unknown);
}

/** Replaces the file atomically and durably: after a power loss it has either the old or the new content. */
async function writeStateFile(path: string, value: object): Promise<void> {
  await makeFolder(dirname(path), 0o750);
  await replaceFile(path, JSON.stringify(value), { mode: 0o600 });
}

/**
 * Passes the content of a state file to `restore`, unless there is none. Throws a `StateError` with the kubelet's message if
 * the file cannot be read or `restore` throws.
 */
export async function restoreStateFile(path: string, manager: string, restore: (json: unknown) => void): Promise<void> {
  try {
    const json = await readStateFile(path);
    if (json !== undefined) restore(json);
  } catch (error) {
    throw new StateError(
      `could not restore state from checkpoint: ${(error as Error).message}, please drain this node and delete the ${manager} checkpoint file ${quoteText(path)} before restarting`,
      { cause: error },
    );
  }
}

/** Where a manager stores its state, and the policy to which the state belongs. */
export interface StateOptions {
  readonly directory: string;
  readonly policy: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface StateWriterOptions {
  readonly path: string;
  /** The object of the sentence in the log, such as 'the state of the CPU manager'. */
  readonly what: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

const RETRY_MS = 10_000;

/**
 * Serializes the writes of one file. Only the newest of several pending writes is executed. A write that fails, for example on
 * a full disk, is tried again until one succeeds: otherwise a restarted agent would not know what was allocated meanwhile.
 */
export class StateWriter {
  readonly #options: StateWriterOptions;
  #next: (() => object) | undefined;
  #running: Promise<void> | undefined;
  #retry: Timer | undefined;
  #isFailing = false;

  constructor(options: StateWriterOptions) {
    this.#options = options;
  }

  /** Resolves when the value, computed at the time of the write, or a newer one is on disk, or the attempt has failed. */
  write(value: () => object): Promise<void> {
    this.#next = value;
    this.#running ??= this.#drain();
    return this.#running;
  }

  async #drain(): Promise<void> {
    try {
      for (let next = this.#next; next !== undefined; next = this.#next) {
        this.#next = undefined;
        await this.#writeNow(next);
      }
    } finally {
      // The loop found no further value in this turn of the event loop. A value that comes later starts another loop.
      this.#running = undefined;
    }
  }

  async #writeNow(value: () => object): Promise<void> {
    const { path, what, clock, logger } = this.#options;
    try {
      await writeStateFile(path, value());
      this.#retry?.cancel();
      if (this.#isFailing) logger.info({ path }, `Wrote ${what} again`);
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) logger.error({ err: error, path }, `Cannot write ${what}, retrying`);
      this.#isFailing = true;
      // Any later write restarts the wait.
      this.#retry?.cancel();
      this.#retry = clock.after(RETRY_MS, () => background(this.write(value), { logger, what: `Writing ${what}` }));
    }
  }
}

/** A state file or the configuration of a manager cannot be used on this host. The message names the remedy. */
export class StateError extends Error {
  override readonly name = 'StateError';
}
