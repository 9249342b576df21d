/**
 * Notifies systemd that the service is ready and alive (Type=notify, WatchdogSec). Node.js cannot write to such a datagram
 * socket, so it runs `systemd-notify`; without systemd nothing happens.
 */
import { spawn } from 'node:child_process';
import { systemClock } from '../api/machinery/clock.ts';

function notify(state: string): void {
  const child = spawn('systemd-notify', [`--pid=${process.pid}`, state], { stdio: 'ignore' });
  child.on('error', () => undefined);
  child.unref();
}

/** Does nothing without systemd. */
export function notifyReady(): void {
  if ((process.env['NOTIFY_SOCKET'] ?? '') === '') return;
  notify('READY=1');
  const watchdogMs = Number(process.env['WATCHDOG_USEC'] ?? 0) / 1000;
  if (!(watchdogMs > 0)) return;
  const beat = (): void => {
    notify('WATCHDOG=1');
    systemClock.after(watchdogMs / 2, beat);
  };
  systemClock.after(watchdogMs / 2, beat);
}

/** Does nothing without systemd. */
export function notifyStopping(): void {
  if ((process.env['NOTIFY_SOCKET'] ?? '') !== '') notify('STOPPING=1');
}
