/** Runs the process of `orchlet controlplane`: a control plane, as a standby first if it is one, and its scheduled backups. */
import { createLogger } from '../../api/component/logging.ts';
import { background } from '../../api/machinery/background.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { startPrepared } from '../../controlplane/main.ts';
import type { ControlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import type { Preparation } from '../../controlplane/start/preparation.ts';
import { backupOptions, checkBackupSchedule, type ScheduledBackups, scheduleBackups } from '../backup/schedule.ts';
import { closePlane } from './close-plane.ts';
import { logLastResortTo } from '../process/last-resort.ts';
import { optimizeRequests } from '../process/optimize-requests.ts';
import { renewOnHangup } from '../process/renew-on-hangup.ts';
import { settleMemory } from '../process/settle-memory.ts';
import { onStorageFailure } from '../process/storage-failure.ts';
import { notifyReady, notifyStopping } from '../process/systemd-notify.ts';
import { onShutdown } from '../process/shutdown.ts';
import { standBy } from './stand-by.ts';
import { inOneLine } from '../process/start-failure.ts';

/** Runs the control plane until a signal or a failure of its storage ends it. Resolves to the exit code of the process. */
export async function runControlPlane(flags: ControlPlaneFlags, preparation: Preparation): Promise<number> {
  const logger = await createLogger({
    verbosity: flags.verbosity,
    format: flags.loggingFormat === 'json' ? 'json' : 'text',
  });
  logLastResortTo(logger);
  const backupsWanted = backupOptions(flags);
  await checkBackupSchedule(backupsWanted);
  const shutdown = onShutdown();
  const failure = onStorageFailure(logger, { closingMs: 0 });
  const after = await standBy({ flags, logger, shutdown, failure });
  if (after !== 'start') return after;
  const plane = await inOneLine(() => startPrepared({ flags, logger, onFatal: failure.onFatal }, preparation));
  let backups: ScheduledBackups | undefined;
  try {
    renewOnHangup(plane, logger);
    backups = await scheduleBackups(backupsWanted, logger);
    notifyReady();
    background(plane.loaded.then(optimizeRequests), { logger, what: 'Setting the flags of V8' });
    settleMemory(systemClock);
    const ended = await Promise.race([shutdown.asked, failure.happened]);
    if (ended instanceof Error) return failure.exitCode;
    notifyStopping();
    logger.info({ signal: ended }, 'Stopping');
    return 0;
  } finally {
    await backups?.stop();
    await closePlane(plane, { logger });
  }
}
