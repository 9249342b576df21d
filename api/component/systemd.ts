/** Asks systemd of this host for its units, and finds the one that a process belongs to. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';

/** The interface to the host. */
export interface SystemdHost {
  readonly isRunning: boolean;
  /** Returns the output of `systemctl`, or `undefined` if it fails. */
  systemctl(...args: readonly string[]): string | undefined;
  /** Returns `/proc/PID/cgroup`, and `undefined` if the process is gone. */
  cgroupOf(pid: number): string | undefined;
}

/** systemd of this host. A command that fails counts as no answer. */
export const systemdHost: SystemdHost = {
  isRunning: existsSync('/run/systemd/system'),
  systemctl: (...args) => {
    const { status, stdout } = spawnSync('systemctl', args, { encoding: 'utf8' });
    return status === 0 ? stdout : undefined;
  },
  cgroupOf: (pid) => {
    try {
      return readFileSync(`/proc/${pid}/cgroup`, 'utf8');
    } catch {
      // The process has ended meanwhile.
      return undefined;
    }
  },
};

/**
 * Returns the unit that may restart a process when it exits: the systemd service, of any name, whose main process it is.
 * Returns `undefined` if there is none.
 */
export function unitOf(pid: number, host: SystemdHost): string | undefined {
  if (!host.isRunning) return undefined;
  const unit = host
    .cgroupOf(pid)
    ?.split('\n')
    .map((line) => line.split('/').findLast((name) => name.endsWith('.service')))
    .find((name) => name !== undefined);
  if (unit === undefined) return undefined;
  const mainPid = host.systemctl('show', '--property=MainPID', '--value', unit);
  return Number(mainPid?.trim()) === pid ? unit : undefined;
}
