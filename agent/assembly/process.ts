/** Prepares the agent's process and host: the lock file, process settings, checks of the host, kernel parameters. */
import { resolve } from 'node:path';
import { acquireLockFile } from '../host/process/lock-file.ts';
import { applyProcessSettings, checkHost, setKernelParameters } from '../host/process/host-demands.ts';
import type { Base } from './base.ts';
import type { Part } from './lifecycle.ts';

/**
 * Waits until it has locked the lock file, and then applies the settings of the process. Closing the part unlocks the file.
 */
export async function takeProcess({ flags, clock, logger, signal }: Base, onContention: () => void): Promise<Part> {
  const release =
    flags.lockFile === ''
      ? undefined
      : await acquireLockFile({
          path: resolve(flags.lockFile),
          clock,
          logger,
          signal,
          onContention: flags.exitOnLockContention ? onContention : undefined,
        });
  await applyProcessSettings({ oomScoreAdj: flags.oomScoreAdj, maxOpenFiles: flags.maxOpenFiles, logger });
  return { close: () => release?.() };
}

/** Returns the checks and settings of the host that `--fail-swap-on` and other flags request. */
export function hostDemands({ flags, logger }: Base): {
  check(): Promise<void>;
  setKernelParameters(): Promise<void>;
} {
  const demands = {
    failSwapOn: flags.failSwapOn,
    failCgroupV1: flags.failCgroupV1,
    protectKernelDefaults: flags.protectKernelDefaults,
    logger,
  };
  return { check: () => checkHost(demands), setKernelParameters: () => setKernelParameters(demands) };
}
