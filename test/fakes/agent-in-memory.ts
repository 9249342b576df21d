/**
 * Starts the whole agent on a runtime in memory. It is the node `n1`, has its own ports, and does not touch the machine's
 * cgroups.
 */
import { join } from 'node:path';
import { type Agent, type AgentOptions, startAgent } from '../../agent/main.ts';
import type { AgentFlags } from '../../agent/options/agent-options.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { unmountBelow } from '../mounts.ts';
import { createFakeHost, FakeRuntime } from './fake-runtime.ts';

/** Starts the agent with directories below `directory`. `flags` replace the values below; `undefined` is a flag's default. */
export async function startAgentInMemory(
  directory: string,
  flags: { readonly [Key in keyof AgentFlags]?: AgentFlags[Key] | undefined },
  more: Omit<AgentOptions, 'flags'> = {},
): Promise<Agent> {
  const own = {
    hostnameOverride: 'n1',
    rootDir: join(directory, 'root'),
    podLogsDir: join(directory, 'logs'),
    port: 0,
    readOnlyPort: 0,
    healthzPort: 0,
    cgroupsPerQos: false,
    enforceNodeAllocatable: [],
    failSwapOn: false,
    ...flags,
  };
  const agent = await startAgent({
    // An option without a value has its default.
    flags: own as Partial<AgentFlags>,
    runtime: new FakeRuntime(systemClock, createFakeHost(['shell:1'])),
    ...more,
  });
  return {
    ...agent,
    // An agent leaves the mount of its directory to its next start. There is none here, and the test removes the directory.
    async close(how) {
      await agent.close(how);
      unmountBelow(directory);
    },
  };
}
