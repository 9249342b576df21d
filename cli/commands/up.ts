/** `orchlet up`. */
import type { Command } from '../command.ts';
import { CommandError } from '../command.ts';

export const up: Command = {
  name: 'agent',
  summary: 'run up',
  description: 'Runs the node agent.',
  flags: {},
  examples: [],
  run: () => Promise.reject(new CommandError('up is not wired yet')),
};
