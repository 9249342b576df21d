/** `orchlet reset` removes from this host what its agent and control plane have made there. */
import { resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { flag, UsageError } from '../../api/component/flags.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { chosenAgentDirectory } from '../host/agent-process.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { dataDirectoryFlag, rootDirectoryFlag } from '../host/data-directory.ts';
import type { CommandIo } from '../command-line/io.ts';
import { cgroups } from '../reset/cgroups.ts';
import { etcd } from '../reset/etcd.ts';
import { data, hostFiles, logs } from '../reset/files.ts';
import { mounts } from '../reset/mounts.ts';
import { boundAddresses, kernelParameters, links, podNetwork, policyRules, serviceRules } from '../reset/network.ts';
import { pods } from '../reset/pods.ts';
import { processes, units } from '../reset/processes.ts';
import { type ResetStep, resetTarget } from '../reset/target.ts';

const flags = {
  purge: flag({
    name: 'purge',
    type: 'boolean',
    default: false,
    group: 'Reset',
    help: "Remove the data directory as well, with the cluster's objects and the local volumes, and what orchlet join wrote.",
  }),
  dryRun: flag({
    name: 'dry-run',
    type: 'boolean',
    default: false,
    group: 'Reset',
    help: 'Print what would be removed, and change nothing.',
  }),
  force: flag({
    name: 'force',
    short: 'f',
    type: 'boolean',
    default: false,
    group: 'Reset',
    help: 'Do not ask for confirmation.',
  }),
  timeout: flag({
    name: 'timeout',
    type: 'duration',
    default: 60_000,
    group: 'Reset',
    help: 'How long to wait for the pods to terminate, and for the processes to stop.',
  }),
  dataDir: dataDirectoryFlag('Host'),
  rootDir: rootDirectoryFlag('Host'),
} as const;

/**
 * The steps after the processes have stopped, in this order: pods go before what they use, and the mounts of volumes before
 * directories.
 */
const STEPS: readonly ResetStep[] = [
  pods,
  serviceRules,
  policyRules,
  boundAddresses,
  podNetwork,
  links,
  mounts,
  cgroups,
  kernelParameters,
  logs,
  hostFiles,
];

export const reset: Command = {
  description:
    'Restores the host to its state before orchlet: terminates the pods of this node, and removes them from the container runtime. Removes rules and links of their network, mounts, cgroups and logs, and restores kernel parameters. The data directory stays, unless --purge is given. Other agents and their pods are left alone. May be repeated, also after a part of the installation is gone. Exits with 1 if something could not be removed.',
  flags,
  examples: ['orchlet reset --dry-run', 'orchlet reset --purge --force'],
  async run(parsed, io) {
    const dataDirectory = resolve(String(parsed.values['dataDir']));
    const isNamed = parsed.given.has('dataDir') || parsed.values['rootDir'] !== '';
    const target = await resetTarget({
      dataDirectory,
      rootDirectory: await chosenAgentDirectory(parsed),
      timeoutMs: Number(parsed.values['timeout']),
      clock: io.clock,
    });
    const isDry = parsed.values['dryRun'] === true;
    if (!isDry && process.getuid?.() !== 0) throw new CommandError("run as root: rules, mounts and cgroups are root's");
    const isPurge = parsed.values['purge'] === true;
    // The units start orchlet with its usual directories, so they stay if another directory is given.
    const steps = [processes, ...(isNamed ? [] : [units]), etcd, ...STEPS, ...(isPurge ? [data] : [])];
    if (!isDry && parsed.values['force'] !== true) await confirm(io, isPurge ? dataDirectory : undefined);
    let removed = 0;
    let failed = 0;
    const fail = (text: string, error: unknown): void => {
      failed++;
      io.stdout.write(`✗ ${text}: ${errorMessage(error)}\n`);
    };
    for (const step of steps) {
      const found = await step.find(target).catch((error: unknown) => {
        fail(step.name, error);
        return [];
      });
      for (const { text, remove } of found) {
        if (isDry) {
          io.stdout.write(`- ${text}\n`);
          removed++;
          continue;
        }
        try {
          await remove();
          removed++;
          io.stdout.write(`✓ ${text}\n`);
        } catch (error) {
          fail(text, error);
        }
      }
    }
    io.stdout.write(summary({ isDry, removed, failed, keptDirectory: isPurge ? undefined : dataDirectory }));
    return failed === 0 ? 0 : 1;
  },
};

function summary({
  isDry,
  removed,
  failed,
  keptDirectory,
}: {
  readonly isDry: boolean;
  readonly removed: number;
  readonly failed: number;
  readonly keptDirectory: string | undefined;
}): string {
  const keptText = keptDirectory === undefined ? '' : `; ${keptDirectory} stays (--purge removes it)`;
  if (isDry) return `${removed === 0 ? 'nothing' : `${removed} of these`} would be removed${keptText}\n`;
  if (failed > 0) return `${failed} could not be removed; solve the problems above, then repeat the reset${keptText}\n`;
  return `${removed === 0 ? 'nothing was left' : 'this host is as it was before orchlet'}${keptText}\n`;
}

async function confirm(io: CommandIo, purged: string | undefined): Promise<void> {
  if (!io.isInteractive)
    throw new UsageError('this terminates the pods of this node: give --force, or --dry-run to see what is removed');
  const what = purged === undefined ? '' : `, and remove ${purged} with all objects and volumes`;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await terminal.question(`Terminate the pods of this node${what}? [y/N] `);
    if (!/^y(es)?$/i.test(answer.trim())) throw new CommandError('nothing was changed');
  } finally {
    terminal.close();
  }
}
