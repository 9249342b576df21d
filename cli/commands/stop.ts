/** `orchlet stop` stops the control plane and the agent of this host, and with `--pods` their pods first, in order. */
import { join, resolve } from 'node:path';
import { flag } from '../../api/component/flags.ts';
import { systemdHost } from '../../api/component/systemd.ts';
import { STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { etcdPaths } from '../../controlplane/storage/etcd-member/etcd-files.ts';
import { dataDirectoryOfUnit, ETCD_UNIT, hostUnits } from '../../controlplane/storage/etcd-member/etcd-unit.ts';
import { AGENT_PID_FILE, chosenAgentDirectory } from '../host/agent-process.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { dataDirectoryFlag, rootDirectoryFlag } from '../host/data-directory.ts';
import { runningProcess } from '../host/processes.ts';
import { endPods, endProcess, stopUnit } from '../host/stop-processes.ts';
import { restartingUnits } from '../host/systemd-units.ts';

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
  rootDir: rootDirectoryFlag('Host'),
} as const;

export const stop: Command = {
  description:
    'Stops the control plane and the agent of this host, through systemd if it started them. Pods keep running, and the next start takes them over, unless --pods is given.',
  flags,
  examples: ['orchlet stop', 'orchlet stop --pods'],
  async run(parsed, io) {
    const dataDirectory = resolve(String(parsed.values['dataDir']));
    const rootDirectory = await chosenAgentDirectory(parsed);
    const timeoutMs = Number(parsed.values['timeout']);
    const agent = await runningProcess(join(rootDirectory, AGENT_PID_FILE));
    const plane = await runningProcess(join(dataDirectory, `${STORAGE_FILE}.pid`));
    const running = [...new Set([agent, plane].filter((pid) => pid !== undefined))];
    if (parsed.values['pods'] === true) {
      if (agent === undefined)
        throw new CommandError(`no agent of ${rootDirectory} runs that could terminate its pods: start it first`);
      await endPods(agent, rootDirectory, timeoutMs);
      io.stdout.write('the pods have terminated\n');
    }
    for (const pid of running) {
      const unit = await endProcess(pid, timeoutMs);
      io.stdout.write(`${unit ?? `process ${pid}`} is stopped\n`);
    }
    // The units do not run with a directory that --data-dir names.
    const restarting = parsed.given.has('dataDir') ? [] : restartingUnits(systemdHost);
    for (const unit of restarting) {
      stopUnit(unit);
      io.stdout.write(`${unit}, which systemd was about to start again, is stopped\n`);
    }
    if (running.length === 0 && restarting.length === 0) io.stdout.write('nothing runs\n');
    if ((await dataDirectoryOfUnit(hostUnits)) === etcdPaths(dataDirectory).data)
      io.stdout.write(`etcd remains a member of its cluster: 'systemctl stop ${ETCD_UNIT}' stops it as well\n`);
    return 0;
  },
};
