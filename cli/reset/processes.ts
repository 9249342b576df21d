/** The first steps of a reset: the pods terminate by priority, then the processes stop, and units do not start them again. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Leftover } from '../../agent/runtime/leftovers.ts';
import { systemdHost } from '../../api/component/systemd.ts';
import { STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { AGENT_PID_FILE } from '../host/agent-process.ts';
import { isOrchlet, runningProcess } from '../host/processes.ts';
import { endPods, endProcess } from '../host/stop-processes.ts';
import { UNITS } from '../host/systemd-units.ts';
import type { ResetStep, ResetTarget } from './target.ts';

/** How long a killed process may take to disappear. */
const KILLED_WITHIN_MS = 5_000;

/** The running pods, and the agent and the control plane, of which one that does not stop in time is killed. */
export const processes: ResetStep = {
  name: 'processes',
  async find({ rootDirectory, dataDirectory, timeoutMs, clock }: ResetTarget) {
    const agent = await runningProcess(join(rootDirectory, AGENT_PID_FILE));
    const plane = await runningProcess(join(dataDirectory, `${STORAGE_FILE}.pid`));
    const found: Leftover[] = [];
    if (agent !== undefined)
      found.push({
        text: `running pods of process ${agent}, which terminate by priority`,
        remove: () => endPods(agent, rootDirectory, timeoutMs),
      });
    for (const pid of new Set([agent, plane].filter((one) => one !== undefined)))
      found.push({
        text: `process ${pid}`,
        async remove() {
          try {
            await endProcess(pid, timeoutMs);
          } catch (error) {
            if (!(await isOrchlet(pid))) return;
            // The process hangs, so it is killed.
            process.kill(pid, 'SIGKILL');
            const deadline = clock.monotonic() + KILLED_WITHIN_MS;
            while ((await isOrchlet(pid)) && clock.monotonic() < deadline) await clock.sleep(100);
            if (await isOrchlet(pid)) throw error;
          }
        },
      });
    return found;
  },
};

/** Units that start an agent or a control plane with the usual directories. */
export const units: ResetStep = {
  name: 'units',
  find() {
    if (!systemdHost.isRunning) return Promise.resolve([]);
    const enabled = UNITS.filter(
      (unit) => existsSync(`/etc/systemd/system/${unit}`) && systemdHost.systemctl('is-enabled', unit) !== undefined,
    );
    return Promise.resolve(
      enabled.map((unit) => ({
        text: `${unit}, which is stopped and disabled`,
        remove() {
          const isDone = systemdHost.systemctl('disable', '--now', unit) !== undefined;
          return isDone
            ? Promise.resolve()
            : Promise.reject(new Error(`systemctl cannot disable it: systemctl status ${unit}`));
        },
      })),
    );
  },
};
