/**
 * The options of the node agent, merged from their groups: `agentFlags` are the flags of the command line, `agentOptions`
 * those and the fields that only the configuration file has.
 */
import type { FlagValues } from '../../api/component/flags.ts';
import { cadvisorOptions } from './cadvisor.ts';
import { evictionOptions } from './eviction.ts';
import { identityOptions } from './identity.ts';
import { imageOptions } from './images.ts';
import { logOptions } from './logs.ts';
import { nodeOptions } from './node.ts';
import { podOptions } from './pods.ts';
import { processOptions } from './process.ts';
import { resourceOptions } from './resources.ts';
import { runtimeOptions } from './runtime.ts';
import { serverOptions } from './server.ts';
import { serviceOptions } from './services.ts';
import { sourceOptions } from './sources.ts';

/** Every option: flags, and fields of the configuration file without a flag (their `name` is empty). */
export const agentOptions = {
  ...identityOptions,
  ...sourceOptions,
  ...runtimeOptions,
  ...serviceOptions,
  ...serverOptions,
  ...nodeOptions,
  ...podOptions,
  ...imageOptions,
  ...resourceOptions,
  ...evictionOptions,
  ...processOptions,
  ...logOptions,
  ...cadvisorOptions,
} as const;

type AgentOptionTable = typeof agentOptions;

/** The effective value of every option, by the option's key. */
export type AgentFlags = FlagValues<AgentOptionTable>;

/** Every flag of `orchlet agent`. */
export const agentFlags = Object.fromEntries(
  Object.entries(agentOptions).filter(([, row]) => row.name !== ''),
) as unknown as AgentOptionTable;
