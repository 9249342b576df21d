/** `orchlet agent` runs a node agent until a signal or the agent itself ends it. */
import { stringifyJson } from '../../api/codec/json.ts';
import { resolve } from 'node:path';
import { effectiveOptions, preferFileWarnings } from '../../agent/options/config/effective-options.ts';
import { type Agent, AGENT_VERSION, startAgent } from '../../agent/main.ts';
import { type AgentFlags, agentFlags } from '../../agent/options/agent-options.ts';
import { createLogger } from '../../api/component/logging.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { announceAgent } from '../host/agent-process.ts';
import type { Command } from '../command-line/command.ts';
import { logLastResortTo } from '../process/last-resort.ts';
import { optimizeRarely } from '../process/optimize-rarely.ts';
import { refuseForeign } from '../host/owner-rights.ts';
import { settleMemory } from '../process/settle-memory.ts';
import { notifyReady, notifyStopping } from '../process/systemd-notify.ts';
import { onShutdown } from '../process/shutdown.ts';
import { inOneLine } from '../process/start-failure.ts';

export const agent: Command = {
  description:
    'Runs the node agent: as a node of a cluster with --kubeconfig (or --bootstrap-kubeconfig), or with static pods alone and no API server.',
  flags: agentFlags,
  examples: [
    'orchlet agent --pod-manifest-path /etc/orchlet/manifests',
    'orchlet agent --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf',
    'orchlet agent --bootstrap-kubeconfig bootstrap.kubeconfig --kubeconfig /var/lib/kubelet/kubeconfig',
  ],
  async run(parsed, io) {
    const values = parsed.values as unknown as AgentFlags;
    if (values.version !== 'false') {
      io.stdout.write(versionText(values.version));
      return 0;
    }
    optimizeRarely();
    for (const warning of preferFileWarnings(parsed.given)) io.stderr.write(`warning: ${warning}\n`);
    const effective = await inOneLine(() => effectiveOptions({ values, given: parsed.given }));
    const { flags } = effective;
    refuseForeign(resolve(flags.rootDir), 'agent');
    const verbosity = { level: flags.verbosity };
    const logger = await createLogger({
      verbosity,
      format: flags.loggingFormat === 'json' ? 'json' : 'text',
    });
    logLastResortTo(logger);
    const shutdown = onShutdown();
    let running: Agent;
    try {
      running = await inOneLine(() =>
        startAgent({ effective, logger, verbosity, ownsProcess: true, signal: shutdown.signal }),
      );
    } catch (error) {
      // The shutdown was requested while the agent waited for its lock or its certificate.
      if (shutdown.signal.aborted) return (await shutdown.asked) === 'SIGINT' ? 130 : 143;
      throw error;
    }
    logger.info({ node: running.nodeName, port: running.port }, 'The node agent runs');
    await announceAgent(running, resolve(flags.rootDir), logger);
    notifyReady();
    settleMemory(systemClock);
    try {
      const ended = await inOneLine(() => Promise.race([shutdown.asked, running.done]));
      notifyStopping();
      logger.info({ reason: ended }, 'Stopping; containers keep running');
      return 0;
    } finally {
      await running.close();
    }
  },
};

/** Formats the version as the kubelet prints it, or with all details for `raw`. */
function versionText(form: string): string {
  return form === 'raw'
    ? `${stringifyJson({ gitVersion: AGENT_VERSION, platform: `linux/${process.arch}`, nodeVersion: process.version })}\n`
    : `Kubernetes ${AGENT_VERSION}\n`;
}
