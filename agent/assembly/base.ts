/** Defines what every part of the agent receives. */
import type { Logger } from '../../api/component/logger.ts';
import type { Verbosity } from '../../api/component/logging.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { EffectiveOptions } from '../options/config/effective-options.ts';
import type { AgentFlags } from '../options/agent-options.ts';

/** The options and services that every part of the agent receives. `signal` aborts when the agent stops. */
export interface Base {
  readonly flags: AgentFlags;
  readonly effective: EffectiveOptions;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The level of the logger, if it can be changed. */
  readonly verbosity: Verbosity | undefined;
  readonly nodeName: string;
  readonly rootDirectory: string;
  readonly podLogsDirectory: string;
  readonly signal: AbortSignal;
}
