/** Defines what every phase of the start uses. */
import type { Logger } from '../../api/component/logger.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Dialer } from '../../api/http/dialer.ts';
import type { LoopTurns } from '../../api/machinery/loop-turns.ts';
import type { Schema } from '../../api/schema/schema.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import type { Closing } from './close-all.ts';
import type { Preparation } from './preparation.ts';
import type { OwnEndpoint } from './own-endpoint.ts';
import type { StartHooks } from './start-hooks.ts';

/** What is known before anything is opened. */
export interface Setting {
  readonly flags: ControlPlaneFlags;
  readonly preparation: Preparation;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  readonly schema: Schema;
  /** The turns of the event loop, which the clients and the loops of this process share. */
  readonly turns: LoopTurns;
  readonly dialer: Dialer;
  /** The addresses of this server, which the dialer refuses. */
  readonly ownEndpoint: OwnEndpoint;
  readonly startHooks: StartHooks;
  /** Aborts when the control plane closes. */
  readonly signal: AbortSignal;
  readonly isClosing: () => boolean;
  /** Adds a step of the closing. The steps run in reverse order. */
  readonly onClose: (close: Closing) => void;
  /** Called when the control plane can no longer use its storage: the process must exit. */
  readonly onFatal: ((error: Error) => void) | undefined;
}
