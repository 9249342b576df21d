/** `orchlet agent`. */
import { startAgent } from '../../agent/main.ts';
import { type AgentFlags, agentFlags } from '../../agent/options.ts';
import { createLogger } from '../../api/component/logging.ts';
import type { Command } from '../command.ts';
import { notifyReady, notifyStopping } from '../systemd-notify.ts';
import { onShutdown } from '../shutdown.ts';
import { inOneLine } from '../start-failure.ts';

export const agent: Command = {
  name: 'agent',
  summary: 'run the node agent alone',
  description:
    'Runs the node agent: as a node of a cluster with --kubeconfig (or --bootstrap-kubeconfig), or with static pods alone and no API server.',
  flags: agentFlags,
  examples: [
    'orchlet agent --pod-manifest-path /etc/orchlet/manifests',
    'orchlet agent --bootstrap-kubeconfig bootstrap.kubeconfig --kubeconfig /var/lib/kubelet/kubeconfig',
  ],
  async run(parsed) {
    const flags = parsed.values as unknown as AgentFlags;
    const logger = createLogger({
      verbosity: flags.verbosity,
      format: flags.loggingFormat === 'json' ? 'json' : 'text',
    });
    const shutdown = onShutdown();
    const running = await inOneLine(() => startAgent({ flags, logger }));
    logger.info({ node: running.nodeName, port: running.port }, 'the node agent runs');
    notifyReady();
    const ended = await shutdown.asked;
    notifyStopping();
    logger.info({ signal: ended }, 'stopping; containers run on');
    await running.close();
    return 0;
  },
};
