/**
 * Removes the files of the agent outside of its directory, and with `--purge` the directories of the installation. Nothing is
 * followed out of a directory: links are removed themselves, and what is mounted below stays and is reported.
 */
import { lstat, readFile, readlink, realpath, rmdir, unlink } from 'node:fs/promises';
import { join, resolve, sep } from 'node:path';
import { inDirectory, removeTree } from '../../agent/base/files/beneath.ts';
import { HOST_RECORD_FILE } from '../../agent/host/host-record.ts';
import { LOGIND_FILE, LOGIND_FIRST_LINE } from '../../agent/node/shutdown/logind.ts';
import type { Leftover } from '../../agent/runtime/leftovers.ts';
import { hostMounter } from '../../agent/volumes/mounter.ts';
import { systemdHost } from '../../api/component/systemd.ts';
import { STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { AGENT_PID_FILE, RECORD_DIRECTORY } from '../host/agent-process.ts';
import { namesIn, type ResetStep, type ResetTarget } from './target.ts';

const POD_LOGS = '/var/log/pods';
const CONTAINER_LOGS = '/var/log/containers';
/** What `orchlet join` writes. Files of the administrator stay beside it. */
const JOIN_FILES = ['bootstrap.kubeconfig', 'agent.kubeconfig', 'ca.crt', 'join.env'] as const;
const CONFIGURATION = '/etc/orchlet';

/** The logs of this agent's pods. Those of other agents stay. */
export const logs: ResetStep = {
  name: 'logs of pods',
  async find({ record: { podLogsDirectory }, podUids }: ResetTarget) {
    const names = await namesIn(podLogsDirectory);
    const podLogNames = names.filter((name) => podUids.has(name.slice(name.lastIndexOf('_') + 1)));
    const found: Leftover[] = podLogNames.map((name) => join(podLogsDirectory, name)).map(treeLeftover);
    if (podLogsDirectory !== POD_LOGS) return found;
    for (const name of await namesIn(CONTAINER_LOGS)) {
      const path = join(CONTAINER_LOGS, name);
      // The agent creates links only, so an entry of another kind belongs to another program.
      const target = await readlink(path).catch(() => '');
      if (podLogNames.some((directory) => target.startsWith(`${join(POD_LOGS, directory)}/`)))
        found.push({ text: `link ${path}`, remove: () => unlinkIfThere(path) });
    }
    return found;
  },
};

/** The configuration of the login manager, and the record of the agent's directory. */
export const hostFiles: ResetStep = {
  name: 'files',
  async find() {
    const found: Leftover[] = [];
    // A kubelet writes the same file with another text.
    if ((await readFile(LOGIND_FILE, 'utf8').catch(() => '')).startsWith(LOGIND_FIRST_LINE))
      found.push({
        text: LOGIND_FILE,
        async remove() {
          await unlinkIfThere(LOGIND_FILE);
          systemdHost.systemctl('kill', '--signal=HUP', 'systemd-logind.service');
        },
      });
    if ((await namesIn(RECORD_DIRECTORY)).includes('agent-directory'))
      found.push({
        text: join(RECORD_DIRECTORY, 'agent-directory'),
        remove: () => unlinkIfThere(join(RECORD_DIRECTORY, 'agent-directory')),
      });
    return found;
  },
};

/** Removes the directories of control plane and agent, and what `orchlet join` wrote. It runs with `--purge` only. */
export const data: ResetStep = {
  name: 'data',
  async find({ dataDirectory, rootDirectory }: ResetTarget) {
    const found: Leftover[] = [];
    const isInside = `${rootDirectory}${sep}`.startsWith(`${dataDirectory}${sep}`);
    for (const directory of isInside ? [dataDirectory] : [rootDirectory, dataDirectory]) {
      if ((await namesIn(directory)).length === 0) continue;
      if (!(await isOurs(directory))) {
        found.push({
          text: `${directory}, which does not look like a directory of orchlet`,
          remove: () => Promise.reject(new Error('remove it by hand if no other program uses it')),
        });
        continue;
      }
      found.push({ text: `${directory}, with all that is in it`, remove: () => emptyDirectory(directory) });
    }
    for (const name of JOIN_FILES) {
      const path = join(CONFIGURATION, name);
      if (await exists(path)) found.push({ text: path, remove: () => unlinkIfThere(path) });
    }
    return found;
  },
};

/** Files of which a directory of a control plane or an agent has at least one. */
const MARKS: readonly string[] = [
  ...[STORAGE_FILE, 'pki/ca.key', HOST_RECORD_FILE, AGENT_PID_FILE],
  ...[`agent/${HOST_RECORD_FILE}`, `agent/${AGENT_PID_FILE}`, 'agent/kubeconfig'],
];

async function isOurs(directory: string): Promise<boolean> {
  for (const mark of MARKS) if (await exists(join(directory, mark))) return true;
  return false;
}

const exists = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => true,
    () => false,
  );

const treeLeftover = (path: string): Leftover => ({ text: path, remove: () => removeTree(path) });

/**
 * Removes a directory with its content. Fails before it removes anything if something is mounted below, and otherwise after it
 * has removed everything that can be removed. A directory that is a link or a disk of its own stays, empty.
 */
async function emptyDirectory(path: string): Promise<void> {
  const top = `${await realpath(path)}${sep}`;
  const mounted = (await hostMounter.list()).map((point) => point.path).filter((point) => point.startsWith(top));
  // Nothing is begun then, so that a repeated reset still knows the directory.
  if (mounted.length > 0) throw new Error(`unmount ${mounted.join(', ')} first: nothing is removed through a mount`);
  const failures: string[] = [];
  await inDirectory(path, async (directory) => {
    for (const name of await directory.names())
      await directory
        .removeTree(name)
        .catch((error: unknown) => failures.push(`${join(path, name)}: ${String(error)}`));
  });
  if (failures.length > 0) throw new Error(failures.join('; '));
  await rmdir(resolve(path)).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EBUSY' && error.code !== 'ENOTDIR') throw error;
  });
}

async function unlinkIfThere(path: string): Promise<void> {
  await unlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
}
