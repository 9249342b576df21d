/** `orchlet secrets reencrypt`: what is kept encrypted is written anew with the first provider of the configuration. */
import { json } from 'node:stream/consumers';
import { flag } from '../../api/component/flags.ts';
import { type Command, CommandError } from '../command.ts';
import { access, withClient } from './token.ts';

/** Where the control plane listens for it. */
const PATH = '/orchlet/reencrypt';

const quiet = flag({
  name: 'quiet',
  type: 'boolean',
  default: false,
  group: 'Output',
  help: 'Say nothing when all went well.',
});

export const secretsReencrypt: Command = {
  name: 'secrets reencrypt',
  summary: 'encrypt all objects anew, after keys changed',
  description:
    'Writes all objects that are to be encrypted at rest once more, so that the first provider of --encryption-provider-config holds them. Run it after keys have changed, before old keys are taken out of the file.',
  flags: { ...access, quiet },
  examples: ['orchlet secrets reencrypt'],
  run: (parsed) =>
    withClient(parsed, async ({ client }) => {
      const { body } = await client.raw({ method: 'POST', path: PATH });
      const answer = (await json(body)) as { rewritten?: number; configured?: boolean };
      if (answer.configured !== true)
        throw new CommandError('the control plane runs without --encryption-provider-config: nothing is encrypted');
      if (parsed.values['quiet'] !== true) process.stdout.write(`${answer.rewritten ?? 0} objects written anew\n`);
    }),
};
