/** `orchlet version` prints the versions of the program, of its API and of Node.js. */
import { stringifyJson } from '../../api/codec/json.ts';
import about from '../../package.json' with { type: 'json' };
import { flag } from '../../api/component/flags.ts';
import { API_VERSION } from '../../controlplane/start/api-server.ts';
import type { Command } from '../command-line/command.ts';

const flags = {
  output: flag({
    name: 'output',
    short: 'o',
    type: 'string',
    default: 'text',
    choices: ['text', 'json'],
    group: 'Output',
    help: 'Form of the answer.',
  }),
} as const;

export const version: Command = {
  description: 'Shows the version of orchlet, of the API that it speaks and of its runtime.',
  flags,
  examples: ['orchlet version', 'orchlet version -o json'],
  run(parsed, io) {
    const facts = {
      orchlet: about.version,
      api: API_VERSION.gitVersion,
      node: process.version,
      platform: API_VERSION.platform,
    };
    const text = Object.entries(facts)
      .map(([name, value]) => `${name} ${value}`)
      .join('\n');
    io.stdout.write(parsed.values['output'] === 'json' ? `${stringifyJson(facts, 2)}\n` : `${text}\n`);
    return Promise.resolve(0);
  },
};
