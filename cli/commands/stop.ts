/** `orchlet stop`: stops the control plane and the agent of this host, and with `--pods` their pods first, in order. */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { SHUTDOWN_STATE_FILE } from '../../agent/assembly/node-shutdown.ts';
import { flag } from '../../api/component/flags.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { STORAGE_FILE } from '../../controlplane/backup/backup.ts';
import { AGENT_PID_FILE, agentDirectory } from '../agent-process.ts';
import { type Command, CommandError } from '../command.ts';
import { dataDirectoryFlag } from '../data-directory.ts';
import type { CommandIo } from '../io.ts';
import { isOrchlet, runningProcess } from '../processes.ts';
import { KEEP_PODS_SIGNAL } from '../shutdown.ts';
import { restartingUnits, systemdHost, unitOf } from '../systemd-units.ts';

const flags = {
  pods: flag({
    name: 'pods',
    type: 'boolean',
    default: false,
    group: 'Node',
    help: 'Stop the pods of this node first, by priority, like a shutdown of the host. By default they keep running.',
  }),
  timeout: flag({
    name: 'timeout',
    type: 'duration',
    default: 120_000,
    group: 'Node',
    help: 'How long to wait for the pods, and then for the processes.',
  }),
  dataDir: dataDirectoryFlag('Host'),
  rootDir: flag({
    name: 'root-dir',
    type: 'string',
    default: '',
    group: 'Host',
    help: "The agent's root directory; that of the running agent otherwise, or agent below a --data-dir that is given.",
  }),
} as const;

export const stop: Command = {
  name: 'stop',
  summary: 'stop the control plane and the agent of this host',
  description:
    'Stops the control plane and the agent of this host, through systemd if it started them. Pods keep running, and the next start takes them over, unless --pods is given.',
  flags,
  examples: ['orchlet stop', 'orchlet stop --pods'],
  async run(parsed, io) {
    const dataDirectory = resolve(String(parsed.values['dataDir']));
    const given = String(parsed.values['rootDir']);
    // A data directory on the command line selects the agent of that directory.
    const usual = parsed.given.has('dataDir') ? join(dataDirectory, 'agent') : await agentDirectory();
    const rootDirectory = given === '' ? usual : resolve(given);
    const timeoutMs = Number(parsed.values['timeout']);
    const agent = await runningProcess(join(rootDirectory, AGENT_PID_FILE));
    const plane = await runningProcess(join(dataDirectory, `${STORAGE_FILE}.pid`));
    const running = [...new Set([agent, plane].filter((pid) => pid !== undefined))];
    if (parsed.values['pods'] === true) {
      if (agent === undefined)
        throw new CommandError(`no agent of ${rootDirectory} runs, which could end its pods: start it first`);
      await endPods(agent, rootDirectory, timeoutMs, io);
    }
    for (const pid of running) await end(pid, timeoutMs, io);
    // The units know nothing of a directory that is named.
    const restarting = parsed.given.has('dataDir') ? [] : restartingUnits(systemdHost);
    for (const unit of restarting) {
      stopUnit(unit);
      io.stdout.write(`${unit}, which systemd was about to start again, is stopped\n`);
    }
    if (running.length === 0 && restarting.length === 0) io.stdout.write('nothing runs\n');
    return 0;
  },
};

async function endPods(pid: number, rootDirectory: string, timeoutMs: number, io: CommandIo): Promise<void> {
  const state = join(rootDirectory, SHUTDOWN_STATE_FILE);
  const before = await readFile(state, 'utf8').catch(() => '');
  process.kill(pid, 'SIGUSR2');
  await waitFor(`the pods of process ${pid}`, timeoutMs, async () => {
    const text = await readFile(state, 'utf8').catch(() => '');
    return text !== before && text.includes('"endTime"');
  });
  io.stdout.write('the pods have ended\n');
}

async function end(pid: number, timeoutMs: number, io: CommandIo): Promise<void> {
  const unit = unitOf(pid, systemdHost);
  // systemd would restart a unit whose process is stopped by a signal.
  if (unit === undefined) process.kill(pid, KEEP_PODS_SIGNAL);
  else stopUnit(unit);
  await waitFor(`process ${pid}`, timeoutMs, async () => !(await isOrchlet(pid)));
  io.stdout.write(`${unit ?? `process ${pid}`} is stopped\n`);
}

function stopUnit(unit: string): void {
  if (systemdHost.systemctl('stop', unit) === undefined)
    throw new CommandError(`systemctl cannot stop ${unit}: see 'systemctl status ${unit}'`);
}

async function waitFor(what: string, timeoutMs: number, look: () => Promise<boolean>): Promise<void> {
  const deadline = systemClock.monotonic() + timeoutMs;
  while (!(await look())) {
    if (systemClock.monotonic() > deadline)
      throw new CommandError(`${what} did not end within ${timeoutMs / 1000} s; see its log, or give --timeout`);
    await systemClock.sleep(100);
  }
}
