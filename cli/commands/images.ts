/** `orchlet images import` loads image archives into the container runtime of this host, for hosts without a registry. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { agentFlags } from '../../agent/options/agent-options.ts';
import { rememberImported } from '../../agent/runtime/images/imported-images.ts';
import { selectRuntime } from '../../agent/runtime/select-runtime.ts';
import { flag } from '../../api/component/flags.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { agentDirectory } from '../host/agent-process.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { refuseForeign } from '../host/owner-rights.ts';
import { inOneLine } from '../process/start-failure.ts';

const { containerRuntime, containerRuntimeEndpoint, dockerEndpoint } = agentFlags;
const rootDir = flag({
  ...agentFlags.rootDir,
  default: '',
  help: "The agent's root directory; that of the running agent otherwise.",
});

export const imagesImport: Command = {
  arguments: { usage: 'FILE', least: 1, most: 1 },
  description:
    'Loads the images of an archive (as docker save, ctr images export and scripts/airgap-images write them) into the container runtime that the agent of this host uses, and prints their names. The agent never collects them.',
  flags: { containerRuntime, containerRuntimeEndpoint, dockerEndpoint, rootDir },
  examples: ['orchlet images import orchlet-images.tar'],
  async run(parsed, io) {
    const [file = ''] = parsed.arguments;
    if (!existsSync(file)) throw new CommandError(`${file} does not exist`);
    const { values } = parsed;
    const rootDirectory = parsed.given.has('rootDir') ? resolve(String(values['rootDir'])) : await agentDirectory();
    refuseForeign(rootDirectory, 'command');
    const runtime = await inOneLine(() =>
      selectRuntime({
        kind: values['containerRuntime'] as '' | 'docker' | 'remote',
        criEndpoint: String(values['containerRuntimeEndpoint']),
        dockerEndpoint: String(values['dockerEndpoint']),
        imageEndpoint: '',
        requestTimeoutMs: 120_000,
        nodeName: 'images-import',
        rootDirectory,
        sandboxImage: '',
        awaitsPodCidr: true,
        clock: systemClock,
        logger: silentLogger,
      }),
    );
    try {
      const names = await inOneLine(() => runtime.loadImages(resolve(file)));
      await rememberImported(rootDirectory, names);
      for (const name of names) io.stdout.write(`${name}\n`);
      return 0;
    } finally {
      await runtime.close();
    }
  },
};
