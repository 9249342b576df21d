/** The units of systemd that run orchlet, and which of them systemd is about to start again. */
import type { SystemdHost } from '../../api/component/systemd.ts';

/** The units that come with orchlet. */
export const UNITS = ['orchlet.service', 'orchlet-agent.service', 'orchlet-controlplane.service'] as const;

/** Returns the units that systemd is about to start again after a pause, and that have no process meanwhile. */
export function restartingUnits(host: SystemdHost): readonly string[] {
  if (!host.isRunning) return [];
  return UNITS.filter(
    (unit) => host.systemctl('show', '--property=SubState', '--value', unit)?.trim() === 'auto-restart',
  );
}
