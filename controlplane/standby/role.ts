/**
 * Defines the role of the control plane of a data directory: the first one, a standby that keeps a copy, or a former first
 * whose place another control plane has taken. A file beside the database holds the role, so that a restore, which replaces
 * both, forgets it. Without the file, the control plane is the first.
 */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseJson, stringifyJson } from '../../api/codec/json.ts';
import { formatTime } from '../../api/machinery/clock.ts';
import { makeFolder, replaceFile } from '../../api/machinery/replace-file.ts';
import { StartError } from '../model/start-error.ts';

/** The roles. Times are in wall-clock milliseconds. */
export type Role =
  | { readonly role: 'first' }
  | {
      readonly role: 'standby';
      /** The URL of the control plane whose data is copied. */
      readonly of: string;
      /** The URL at which commands of this host reach the standby. */
      readonly url: string;
      /** The last time at which the copy was complete. 0 if it never was. */
      readonly completeAtMs: number;
    }
  | { readonly role: 'fenced'; readonly by: string; readonly atMs: number }
  | {
      readonly role: 'promoted';
      /** The URL of the former first. */
      readonly from: string;
      /** The last revision that was copied from it. */
      readonly revision: number;
      readonly atMs: number;
      /** Whether the former first has confirmed that it writes no more. */
      readonly isFenced: boolean;
    };

const FIRST: Role = { role: 'first' };

/** Returns the path of the file. */
export const roleFile = (dataDirectory: string): string => join(dataDirectory, 'storage', 'role.json');

/**
 * Returns the role, which is `first` without the file. Throws a StartError if the content is invalid, and the system's error if
 * the file cannot be read: two control planes could write otherwise.
 */
export function readRole(dataDirectory: string): Role {
  const file = roleFile(dataDirectory);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return FIRST;
    throw error;
  }
  try {
    const role = roleOf(parseJson(text).value);
    if (role !== undefined) return role;
  } catch (cause) {
    throw new StartError(`${file} cannot be read`, { cause });
  }
  throw new StartError(`${file} cannot be read: a newer version may have written it`);
}

function roleOf(value: unknown): Role | undefined {
  const fields = (value ?? {}) as Record<string, unknown>;
  const { role, of, url, by, from, revision, atMs, completeAtMs, isFenced } = fields;
  if (role === 'standby' && typeof of === 'string' && typeof url === 'string' && typeof completeAtMs === 'number')
    return { role, of, url, completeAtMs };
  if (role === 'fenced' && typeof by === 'string' && typeof atMs === 'number') return { role, by, atMs };
  if (
    role === 'promoted' &&
    typeof from === 'string' &&
    typeof revision === 'number' &&
    typeof atMs === 'number' &&
    typeof isFenced === 'boolean'
  )
    return { role, from, revision, atMs, isFenced };
  return role === 'first' ? FIRST : undefined;
}

/** Writes the role of a database to its data directory. Resolves when the role is on the disk. */
export async function writeRole(dataDirectory: string, role: Role): Promise<void> {
  const file = roleFile(dataDirectory);
  await makeFolder(dirname(file), 0o700);
  await replaceFile(file, `${stringifyJson(role)}\n`, { mode: 0o600 });
}

/** Throws a StartError with the remedy if the control plane of the data directory is a standby, or is fenced. */
export function refuseOtherRole(dataDirectory: string): void {
  const role = readRole(dataDirectory);
  if (role.role === 'standby')
    throw new StartError(
      `${dataDirectory} has the copy of a standby: start it with --standby-of ${role.of}, or make it the first with 'orchlet promote'`,
    );
  if (role.role === 'fenced') throw new StartError(fencedMessage(dataDirectory, role));
}

/** Why a control plane ends that another one has replaced. The message says what to do. */
export class FencedError extends Error {
  override readonly name = 'FencedError';
  /** The URL of the other control plane. */
  readonly successor: string;

  constructor(message: string, successor: string) {
    super(message);
    this.successor = successor;
  }
}

/** Returns why a former first does not write, and what to do. */
export function fencedMessage(dataDirectory: string, { by, atMs }: Extract<Role, { role: 'fenced' }>): string {
  return `the control plane ${by} took the place of this one at ${formatTime(atMs)}, so ${dataDirectory} takes no more writes: start it with --standby-of ${by} to make it the standby`;
}
