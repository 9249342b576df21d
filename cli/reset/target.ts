/** Finds what `orchlet reset` works on: the directories of one installation, and what its agent has recorded of the host. */
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { hostName } from '../../agent/host/host-facts.ts';
import { HOST_RECORD_FILE, type HostRecord, readHostRecord } from '../../agent/host/host-record.ts';
import { instanceOf } from '../../agent/runtime/instance.ts';
import type { Leftover } from '../../agent/runtime/leftovers.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { CommandError } from '../command-line/command.ts';
import { refuseForeign } from '../host/owner-rights.ts';

/** What the steps read. It is computed once, before anything is removed. */
export interface ResetTarget {
  readonly dataDirectory: string;
  /** The root directory of the agent. */
  readonly rootDirectory: string;
  readonly record: HostRecord;
  /** Whether an agent seems to have used the directory. If not, cgroups of pods stay, because they may be those of others. */
  readonly isKnown: boolean;
  /** The agent's name in container runtimes. */
  readonly instance: string;
  /** The uids of pods of this agent. Steps that find more add them. */
  readonly podUids: Set<string>;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/** A part of the reset. `find` changes nothing; it rejects if it cannot know what is left. */
export interface ResetStep {
  /** The name for messages, such as `pods`. */
  readonly name: string;
  find(target: ResetTarget): Promise<readonly Leftover[]>;
}

/**
 * Reads what is to be reset. Without a record of the agent, its defaults apply. Rejects with `CommandError` for a directory of
 * another user.
 */
export async function resetTarget(options: {
  readonly dataDirectory: string;
  readonly rootDirectory: string;
  readonly timeoutMs: number;
  readonly clock: Clock;
}): Promise<ResetTarget> {
  const { rootDirectory } = options;
  for (const path of [rootDirectory, join(rootDirectory, HOST_RECORD_FILE)]) await refuseOthers(path);
  refuseForeign(rootDirectory, 'reset');
  const found = await readHostRecord(rootDirectory);
  const record = found ?? {
    nodeName: hostName().trim().toLowerCase(),
    dockerEndpoint: '',
    criEndpoint: '',
    podLogsDirectory: '/var/log/pods',
    cgroupRoot: '',
    cgroupDriver: '',
  };
  return {
    ...options,
    record,
    isKnown: found !== undefined || (await namesIn(rootDirectory)).length > 0,
    instance: instanceOf({ nodeName: record.nodeName, rootDirectory }),
    podUids: new Set(await namesIn(join(rootDirectory, 'pods'))),
  };
}

/**
 * Rejects with `CommandError` if another user owns the path. What that user recorded could name files of others, which root
 * would then remove.
 */
async function refuseOthers(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined || [0, process.geteuid?.()].includes(found.uid)) return;
  throw new CommandError(`${path} belongs to another user: the directory of an agent belongs to root`);
}

/** Returns the names in a directory, and none if it does not exist or is no directory. */
export async function namesIn(directory: string): Promise<readonly string[]> {
  return await readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
}
