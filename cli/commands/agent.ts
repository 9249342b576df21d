/** `orchlet agent`. */
import type { Command } from '../command.ts';
import { CommandError } from '../command.ts';

export const agent: Command = {
  name: 'agent',
  summary: 'run the node agent alone',
  description: 'Runs the node agent.',
  flags: {},
  examples: [],
  run: () => Promise.reject(new CommandError('the agent is not wired yet')),
};
