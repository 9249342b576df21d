/** `orchlet promote` and `orchlet demote` decide which of two control planes on SQLite is the first. */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { flag } from '../../api/component/flags.ts';
import { formatTime } from '../../api/machinery/clock.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { isStatusError } from '../../api/meta/status-error.ts';
import { STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { peerClient, readClusterKeys } from '../../controlplane/standby/identity.ts';
import { FIRST_PATH, type FirstReport, PROMOTE_PATH, STANDBY_PATH } from '../../controlplane/standby/peer-paths.ts';
import { lossOf, type Promotion } from '../../controlplane/standby/promotion.ts';
import { readRole, type Role, writeRole } from '../../controlplane/standby/role.ts';
import type { StandbyReport } from '../../controlplane/standby/standby.ts';
import { LogCopy } from '../../controlplane/storage/sqlite/log-copy.ts';
import { isStorageError } from '../../controlplane/storage/storage.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { dataDirectoryFlag } from '../host/data-directory.ts';
import type { CommandIo } from '../command-line/io.ts';
import { withRightsOfOwner } from '../host/owner-rights.ts';
import { runningProcess } from '../host/processes.ts';

const dataDir = dataDirectoryFlag('Host');

const promoteFlags = {
  dataDir,
  force: flag({
    name: 'force',
    type: 'boolean',
    default: false,
    group: 'Promotion',
    help: 'Promote although the first control plane does not confirm that it has stopped writing: what it wrote last is lost, and it must not run.',
  }),
  dryRun: flag({
    name: 'dry-run',
    type: 'boolean',
    default: false,
    group: 'Promotion',
    help: 'Only print how far the copy goes, and what would be lost.',
  }),
} as const;

export const promote: Command = {
  description:
    'Makes the standby of this host the first control plane. The former first is asked to take no more writes; then nothing is lost. If it does not answer, the command prints what may be lost, and does nothing without --force.',
  flags: promoteFlags,
  examples: ['orchlet promote', 'orchlet promote --dry-run', 'orchlet promote --force'],
  async run(parsed, io) {
    const directory = resolve(String(parsed.values['dataDir']));
    const wanted = { force: parsed.values['force'] === true, dryRun: parsed.values['dryRun'] === true };
    await withRightsOfOwner(directory, io, () => promoteIn(directory, wanted, io));
    return 0;
  },
};

async function promoteIn(directory: string, wanted: Wanted, io: CommandIo): Promise<void> {
  const role = readRole(directory);
  if (role.role === 'first' || role.role === 'promoted')
    throw new CommandError(`${directory} has no copy of a standby: it is that of a first control plane, or empty`);
  const pid = await runningProcess(join(directory, `${STORAGE_FILE}.pid`));
  if (role.role === 'standby' && pid !== undefined) await promoteRunning(directory, role, wanted, io);
  else await promoteStopped(directory, role, wanted, io);
}

interface Wanted {
  readonly force: boolean;
  readonly dryRun: boolean;
}

/**
 * The maximum time of a promotion. The standby answers when the first control plane has stopped, which may take 10 s, and when
 * the last writes are copied, which may take 30 s.
 */
const ANSWER_MS = 60_000;

/**
 * Sends a request to a control plane with the keys of the cluster, and resolves to its answer. Rejects with `CommandError` if
 * it refuses, with its message, and if it does not answer.
 */
async function ask<T>(
  { directory, server }: { readonly directory: string; readonly server: string },
  method: string,
  path: string,
  io: CommandIo,
): Promise<T> {
  const client = peerClient(server, await readClusterKeys(directory), io.clock, { timeoutMs: ANSWER_MS });
  try {
    return (await client.json({ method, path })) as T;
  } catch (error) {
    if (isStatusError(error)) throw new CommandError(error.message, { cause: error });
    throw new CommandError(`${server} does not answer: ${errorMessage(error)}`, {
      cause: error,
    });
  } finally {
    client.close();
  }
}

async function promoteRunning(
  directory: string,
  { url }: Extract<Role, { role: 'standby' }>,
  { force, dryRun }: Wanted,
  io: CommandIo,
): Promise<void> {
  const report = await ask<StandbyReport>({ directory, server: url }, 'GET', STANDBY_PATH, io);
  if (report.warning !== undefined) io.stderr.write(`orchlet: warning: ${report.warning}\n`);
  if (dryRun) {
    const state = report.isConnected ? 'connected' : `not connected (${report.problem ?? 'unknown'})`;
    const copy = report.completeAtMs === 0 ? 'The copy is not complete yet.' : lossOf(report, io.clock.now());
    io.stdout.write(`Standby of ${report.of}, ${state}. ${copy}\n`);
    return;
  }
  const path = force ? `${PROMOTE_PATH}?force=true` : PROMOTE_PATH;
  const { revision, isComplete } = await ask<Promotion>({ directory, server: url }, 'POST', path, io);
  const lost = isComplete ? 'Nothing is lost.' : lossOf({ ...report, revision }, io.clock.now());
  io.stdout.write(`This host has the first control plane now. ${lost}\n`);
}

/**
 * Promotes a copy that no process has open, or prints what would be lost. Promoting needs `force`, because the other control
 * plane cannot be asked to stop.
 */
async function promoteStopped(
  directory: string,
  role: Extract<Role, { role: 'standby' | 'fenced' }>,
  { force, dryRun }: Wanted,
  io: CommandIo,
): Promise<void> {
  const copy = await openCopy(directory);
  try {
    const nowMs = io.clock.now();
    const other = role.role === 'standby' ? role.of : role.by;
    const { lastRevision } = copy;
    const state = { revision: lastRevision, newestRevision: lastRevision };
    const loss =
      role.role === 'standby'
        ? lossOf({ ...state, completeAtMs: role.completeAtMs }, nowMs)
        : `${other} took its place at ${formatTime(role.atMs)}; what was written there is lost.`;
    if (dryRun) io.stdout.write(`No standby runs here. ${loss}\n`);
    else if (!force)
      throw new CommandError(
        `no standby runs here, so ${other} cannot be asked to stop. ${loss} Start the standby first, or make sure that ${other} does not run, and repeat the command with --force`,
      );
    else if (role.role === 'standby' && role.completeAtMs === 0)
      throw new CommandError('the copy was never complete: there is nothing to promote');
    else {
      // The control plane that took the place of this one has leapt once, so this one leaps beyond its revisions.
      if (role.role === 'fenced') await copy.leap();
      const { lastRevision: revision } = copy;
      await copy.leap();
      await writeRole(directory, {
        role: 'promoted',
        from: other,
        revision,
        atMs: nowMs,
        isFenced: false,
      });
      io.stdout.write(`${directory} is that of the first control plane now: start it. ${loss}\n`);
    }
  } finally {
    await copy.close();
  }
}

async function openCopy(directory: string): Promise<LogCopy> {
  if (!existsSync(join(directory, STORAGE_FILE)))
    throw new CommandError(`${directory} has no database: give the --data-dir of the control plane`);
  try {
    return await LogCopy.open(join(directory, 'storage'));
  } catch (error) {
    if (isStorageError(error)) throw new CommandError(error.message, { cause: error });
    throw error;
  }
}

const demoteFlags = {
  dataDir,
  force: flag({
    name: 'force',
    type: 'boolean',
    default: false,
    group: 'Demotion',
    help: 'Give up writes of this database that the other control plane has not copied.',
  }),
} as const;

export const demote: Command = {
  arguments: { usage: 'https://FIRST:PORT', least: 1, most: 1 },
  description:
    'Marks the database of the stopped control plane of this host as that of a former first, after another one was promoted: it takes no more writes, and can be started with --standby-of. The command prints what the other control plane has not copied, and does nothing then without --force. The database is kept aside when the standby starts.',
  flags: demoteFlags,
  examples: ['orchlet demote https://10.0.0.2:6443'],
  async run(parsed, io) {
    const directory = resolve(String(parsed.values['dataDir']));
    const [by = ''] = parsed.arguments;
    const wanted = { by, force: parsed.values['force'] === true };
    await withRightsOfOwner(directory, io, () => demoteIn(directory, wanted, io));
    return 0;
  },
};

async function demoteIn(
  directory: string,
  { by, force }: { readonly by: string; readonly force: boolean },
  io: CommandIo,
): Promise<void> {
  const role = readRole(directory);
  if (role.role === 'standby' || role.role === 'fenced')
    throw new CommandError(`${directory} is not that of a first control plane: start it with --standby-of`);
  const copy = await openCopy(directory);
  const ownRevision = copy.lastRevision;
  await copy.close();
  const { promotion } = await ask<FirstReport>({ directory, server: by }, 'GET', FIRST_PATH, io);
  if (promotion === undefined) throw new CommandError(`${by} was not promoted: run 'orchlet promote' there first`);
  const lost = ownRevision - promotion.revision;
  if (lost > 0 && !force)
    throw new CommandError(
      `the database ends at revision ${ownRevision}, and ${by} had copied ${promotion.revision} when it was promoted at ${formatTime(promotion.atMs)}: ${lost} revisions are only here. Repeat the command with --force to give them up`,
    );
  await writeRole(directory, { role: 'fenced', by, atMs: io.clock.now() });
  io.stdout.write(`${directory} takes no more writes. Start the standby with --standby-of ${by}\n`);
}
