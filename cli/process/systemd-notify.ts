/**
 * Notifies systemd that the service is ready and alive (Type=notify, WatchdogSec). Node.js cannot write to its Unix
 * datagram socket, so it runs `systemd-notify`; without systemd nothing happens.
 */
import { spawn } from 'node:child_process';
import { systemClock } from '../../api/machinery/clock.ts';

/** What systemd passes to the main process of a service in the environment. */
const SERVICE_VARIABLES = ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID'] as const;
const service: Partial<Record<(typeof SERVICE_VARIABLES)[number], string>> = {};

/**
 * Moves the variables of systemd out of the environment, before any child process starts. Children such as etcd would
 * otherwise report in the name of the service that it is ready.
 */
export function takeServiceVariables(): void {
  for (const name of SERVICE_VARIABLES) {
    const value = process.env[name];
    if (value !== undefined && value !== '') service[name] = value;
    delete process.env[name];
  }
}

function notify(state: string): void {
  if (service.NOTIFY_SOCKET === undefined) return;
  const child = spawn('systemd-notify', [`--pid=${process.pid}`, state], {
    stdio: 'ignore',
    env: { ...process.env, ...service },
  });
  child.on('error', () => undefined);
  child.unref();
}

/** Reports to systemd that the service is ready and, for the watchdog of its unit, that it is alive from now on. */
export function notifyReady(): void {
  notify('READY=1');
  const watchdogMs = Number(service.WATCHDOG_USEC ?? 0) / 1000;
  if (!(watchdogMs > 0)) return;
  const beat = (): void => {
    notify('WATCHDOG=1');
    systemClock.after(watchdogMs / 2, beat);
  };
  systemClock.after(watchdogMs / 2, beat);
}

/** Reports to systemd that the service stops. Does nothing without systemd. */
export function notifyStopping(): void {
  notify('STOPPING=1');
}
