/** Terminates pods and stops processes of this host, for `orchlet stop` and `orchlet reset`. */
import { join } from 'node:path';
import { SHUTDOWN_STATE_FILE } from '../../agent/node/shutdown/node-shutdown.ts';
import { readOwnFile } from '../../agent/base/files/regular-file.ts';
import { systemdHost, unitOf } from '../../api/component/systemd.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { CommandError } from '../command-line/command.ts';
import { isOrchlet } from './processes.ts';
import { KEEP_PODS_SIGNAL } from '../process/shutdown.ts';

/** Makes the agent terminate its pods by priority, as at a shutdown of the host. Rejects if they are not terminated in time. */
export async function endPods(pid: number, rootDirectory: string, timeoutMs: number): Promise<void> {
  const state = join(rootDirectory, SHUTDOWN_STATE_FILE);
  const before = await readOwnFile(state).catch(() => '');
  process.kill(pid, 'SIGUSR2');
  await waitFor(`the pods of process ${pid}`, timeoutMs, async () => {
    const text = await readOwnFile(state).catch(() => '');
    return text !== before && text.includes('"endTime"');
  });
}

/**
 * Stops a process without its pods. Resolves to the systemd unit of the process, if there is one. Rejects with `CommandError`
 * if the process does not stop.
 */
export async function endProcess(pid: number, timeoutMs: number): Promise<string | undefined> {
  const unit = unitOf(pid, systemdHost);
  // systemd would restart a unit whose process is stopped by a signal.
  if (unit === undefined) process.kill(pid, KEEP_PODS_SIGNAL);
  else stopUnit(unit);
  await waitFor(`process ${pid}`, timeoutMs, async () => !(await isOrchlet(pid)));
  return unit;
}

/** Stops a unit of systemd, and waits until it has stopped. Throws `CommandError`. */
export function stopUnit(unit: string): void {
  if (systemdHost.systemctl('stop', unit) === undefined)
    throw new CommandError(`systemctl cannot stop ${unit}: see 'systemctl status ${unit}'`);
}

async function waitFor(what: string, timeoutMs: number, isDone: () => Promise<boolean>): Promise<void> {
  const deadline = systemClock.monotonic() + timeoutMs;
  while (!(await isDone())) {
    if (systemClock.monotonic() > deadline)
      throw new CommandError(`${what} did not stop within ${timeoutMs / 1000} s; see its log, or give --timeout`);
    await systemClock.sleep(100);
  }
}
