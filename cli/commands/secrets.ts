/** `orchlet secrets reencrypt` rewrites encrypted objects with the first provider of the configuration. */
import { json } from 'node:stream/consumers';
import { flag } from '../../api/component/flags.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { accessFlags, withCluster } from '../cluster/cluster-access.ts';
import { REENCRYPT_PATH } from '../../controlplane/server/endpoints/reencrypt-endpoint.ts';

const quiet = flag({
  name: 'quiet',
  type: 'boolean',
  default: false,
  group: 'Output',
  help: 'Print nothing on success.',
});

export const secretsReencrypt: Command = {
  description:
    'Rewrites all objects that are encrypted at rest, so that the first provider of --encryption-provider-config encrypts them. Run it after keys have changed, before you remove old keys from the file.',
  flags: { ...accessFlags, quiet },
  examples: ['orchlet secrets reencrypt'],
  run: (parsed, io) =>
    withCluster(parsed, io, async ({ client }) => {
      const { body } = await client.raw({ method: 'POST', path: REENCRYPT_PATH });
      const answer = (await json(body)) as { rewritten?: number; configured?: boolean };
      if (answer.configured !== true)
        throw new CommandError('the control plane runs without --encryption-provider-config: nothing is encrypted');
      if (parsed.values['quiet'] !== true) io.stdout.write(`${answer.rewritten ?? 0} objects rewritten\n`);
      return 0;
    }),
};
