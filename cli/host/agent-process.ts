/**
 * Publishes and reads what other commands of this host need to know about a running agent: its process id in the root
 * directory, and that directory in a record below `/run`. SIGUSR2 requests that it terminates its pods like at a shutdown of
 * the host (`orchlet stop --pods`).
 */
import { mkdir } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import { readOwnFile } from '../../agent/base/files/regular-file.ts';
import type { Agent } from '../../agent/main.ts';
import type { FlagTable, ParsedFlags } from '../../api/component/flags.ts';
import type { Logger } from '../../api/component/logger.ts';
import { isDiskFull } from '../../api/machinery/disk-full.ts';
import { replaceFile } from '../../api/machinery/replace-file.ts';
import { runningProcess, writePid } from './processes.ts';

/** The name of the file in the root directory of the agent. */
export const AGENT_PID_FILE = 'orchlet-agent.pid';
/** The directory in which the units and `orchlet up` keep the agent's state. */
export const AGENT_DIRECTORY = '/var/lib/orchlet/agent';
/** The directory that names the root directory of the running agent. It is empty after a restart of the host. */
export const RECORD_DIRECTORY = '/run/orchlet';
const RECORD = 'agent-directory';

/**
 * Writes the process id and the record, and handles SIGUSR2. Rejects if the process id cannot be written, except on a full
 * disk. A record that cannot be written is logged only.
 */
export async function announceAgent(agent: Agent, rootDirectory: string, logger: Logger): Promise<void> {
  process.on('SIGUSR2', () => {
    logger.info({}, 'Stopping the pods on request');
    agent.stopPods().catch((error: unknown) => logger.error({ err: error }, 'The pods could not be stopped'));
  });
  await writeAgentPid(rootDirectory, logger);
  await recordAgentDirectory(rootDirectory).catch((error: unknown) =>
    logger.debug({ err: error }, 'The directory of the agent could not be recorded; other commands need --root-dir'),
  );
}

/**
 * Writes the process id of the agent to its file. A full disk does not prevent the start: the agent is needed there, because
 * it evicts pods.
 */
export async function writeAgentPid(rootDirectory: string, logger: Logger): Promise<void> {
  try {
    await writePid(join(rootDirectory, AGENT_PID_FILE));
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    logger.warn({ err: error }, 'The process id of the agent could not be written; other commands do not find it');
  }
}

/** Replaces the record; the last agent that has started counts. */
export async function recordAgentDirectory(rootDirectory: string, recordDirectory = RECORD_DIRECTORY): Promise<void> {
  await mkdir(recordDirectory, { recursive: true, mode: 0o700 });
  await replaceFile(join(recordDirectory, RECORD), `${rootDirectory}\n`, { mode: 0o600, sync: 'none' });
}

/** Returns the root directory of the agent that runs on this host, or by default that of the units. */
export async function agentDirectory(recordDirectory = RECORD_DIRECTORY): Promise<string> {
  const recorded = (await readOwnFile(join(recordDirectory, RECORD)).catch(() => '')).trim();
  const isRunning = isAbsolute(recorded) && (await runningProcess(join(recorded, AGENT_PID_FILE))) !== undefined;
  return isRunning ? recorded : AGENT_DIRECTORY;
}

/** Returns the root directory of the agent that a command is for, by its flags, or else that of the running agent. */
export async function chosenAgentDirectory({ values, given }: ParsedFlags<FlagTable>): Promise<string> {
  const rootDirectory = String(values['rootDir']);
  if (rootDirectory !== '') return resolve(rootDirectory);
  return given.has('dataDir') ? join(resolve(String(values['dataDir'])), 'agent') : agentDirectory();
}
