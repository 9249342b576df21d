/**
 * What an agent's process tells other commands of this host: its id in the root directory, and by SIGUSR2 that its pods are to end,
 * as at a shutdown of the host (`orchlet stop --pods`).
 */
import { join } from 'node:path';
import type { Agent } from '../agent/main.ts';
import type { Logger } from '../api/component/logger.ts';
import { writePid } from './processes.ts';

export const AGENT_PID_FILE = 'orchlet-agent.pid';

export async function announceAgent(agent: Agent, rootDirectory: string, logger: Logger): Promise<void> {
  process.on('SIGUSR2', () => {
    logger.info({}, 'told to end the pods');
    agent.stopPods().catch((error: unknown) => logger.error({ err: error }, 'the pods could not be ended'));
  });
  await writePid(join(rootDirectory, AGENT_PID_FILE));
}
