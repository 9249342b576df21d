/**
 * The options of the node agent, merged from their groups: `agentFlags` are the flags of the command line, `agentOptions` those
 * and the fields that only the configuration file has. The parts of the agent get values from `main.ts`, never this table.
 */
import type { FlagValues } from '../api/component/flags.ts';
import { cadvisorOptions } from './options/cadvisor.ts';
import { evictionOptions } from './options/eviction.ts';
import { identityOptions } from './options/identity.ts';
import { imageOptions } from './options/images.ts';
import { logOptions } from './options/logs.ts';
import { nodeOptions } from './options/node.ts';
import { podOptions } from './options/pods.ts';
import { processOptions } from './options/process.ts';
import { resourceOptions } from './options/resources.ts';
import { runtimeOptions } from './options/runtime.ts';
import { serverOptions } from './options/server.ts';
import { serviceOptions } from './options/services.ts';
import { sourceOptions } from './options/sources.ts';

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

/** The effective value of every option, by its key. */
export type AgentFlags = FlagValues<AgentOptionTable>;

/** Every flag of `orchlet agent`. */
export const agentFlags = Object.fromEntries(
  Object.entries(agentOptions).filter(([, row]) => row.name !== ''),
) as unknown as AgentOptionTable;
