/**
 * `orchlet controlplane` runs a control plane, and its scheduled backups, until a signal or a failure of the storage ends it.
 */
import { resolve } from 'node:path';
import { createLogger } from '../../api/component/logging.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { type ControlPlaneFlags, controlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import { prepareStart } from '../../controlplane/start/preparation.ts';
import { backupOptions, checkBackupSchedule, type ScheduledBackups, scheduleBackups } from '../backup/schedule.ts';
import { closePlane } from '../close-plane.ts';
import type { Command } from '../command.ts';
import { logLastResortTo } from '../last-resort.ts';
import { refuseForeign } from '../owner-rights.ts';
import { renewOnHangup } from '../renew-on-hangup.ts';
import { optimizeRequests } from '../optimize-requests.ts';
import { settleMemory } from '../settle-memory.ts';
import { onStorageFailure } from '../storage-failure.ts';
import { notifyReady, notifyStopping } from '../systemd-notify.ts';
import { onShutdown } from '../shutdown.ts';
import { standBy } from '../stand-by.ts';
import { inOneLine } from '../start-failure.ts';

export const controlplane: Command = {
  description:
    'Runs the API server, its storage, the controllers and the scheduler. The first start creates certificates and the admin kubeconfig in the data directory.',
  flags: controlPlaneFlags,
  examples: [
    'orchlet controlplane --data-dir ./data --secure-port 6443',
    'orchlet controlplane --storage-backend memory --token-auth-file tokens.csv',
  ],
  async run(parsed) {
    const flags = parsed.values as unknown as ControlPlaneFlags;
    refuseForeign(resolve(flags.dataDir), 'control plane');
    const preparation = prepareStart(flags);
    const { startPrepared } = await import('../../controlplane/main.ts');
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
      optimizeRequests(systemClock);
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
  },
};
