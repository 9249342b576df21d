/** What every part of the agent is given. */
import type { Logger } from '../../api/component/logger.ts';
import type { Verbosity } from '../../api/component/logging.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { EffectiveOptions } from '../options/config/effective-options.ts';
import type { AgentFlags } from '../options/agent-options.ts';

export interface Base {
  readonly flags: AgentFlags;
  readonly effective: EffectiveOptions;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Of the logger, where it may be changed. */
  readonly verbosity: Verbosity | undefined;
  readonly nodeName: string;
  readonly rootDirectory: string;
  readonly signal: AbortSignal;
}

/** How the agent ends. */
export interface Closing {
  /** No pods are left on the host: what stands there for them alone goes too. */
  readonly hostCleared: boolean;
}

export type Closer = (how: Closing) => unknown;
