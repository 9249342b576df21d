/** Runs a command as a standby until it is promoted; the command then continues as a control plane. */
import type { Logger } from '../../api/component/logger.ts';
import { parseFlags } from '../../api/component/flags.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { type ControlPlaneFlags, controlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import { renewOnHangup } from '../process/renew-on-hangup.ts';
import type { Shutdown } from '../process/shutdown.ts';
import { inOneLine } from '../process/start-failure.ts';
import type { onStorageFailure } from '../process/storage-failure.ts';
import { notifyReady, notifyStopping } from '../process/systemd-notify.ts';

interface StandByOptions {
  readonly flags: Partial<ControlPlaneFlags>;
  readonly logger: Logger;
  readonly shutdown: Shutdown;
  readonly failure: ReturnType<typeof onStorageFailure>;
}

/** What follows: the control plane is to be started, or the process exits with this code. */
type AfterStandBy = 'start' | number;

/**
 * Runs the standby of `--standby-of`. Resolves when the standby is promoted or the process is to exit. Resolves to `start` at
 * once without `--standby-of`, and if this host is the first control plane already, for example since an earlier promotion.
 */
export async function standBy({ flags, logger, shutdown, failure }: StandByOptions): Promise<AfterStandBy> {
  if (flags.standbyOf === undefined || flags.standbyOf === '') return 'start';
  // A control plane that is no standby does not load it.
  const { openStandby } = await import('../../controlplane/start/standby.ts');
  const all = { ...parseFlags(controlPlaneFlags, []).values, ...flags };
  const standby = await inOneLine(() =>
    openStandby({ flags: all, clock: systemClock, logger, onFatal: failure.onFatal }),
  );
  if (standby === undefined) return 'start';
  const ignoreHangup = renewOnHangup(standby, logger);
  notifyReady();
  const ended = await Promise.race([standby.promoted, shutdown.asked, failure.happened]);
  if (typeof ended === 'string') notifyStopping();
  await standby.close();
  ignoreHangup();
  if (ended === undefined) return 'start';
  if (ended instanceof Error) return failure.exitCode;
  logger.info({ signal: ended }, 'Stopping');
  return 0;
}
