/**
 * Boots a host with its own systemd, in namespaces. The host has its own processes, mounts, cgroups and network. Its file
 * system is the real one, with all changes in memory. A boot does not change kernel settings that are shared with the real
 * host.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorMessage } from '../../api/meta/error-message.ts';
import { run } from './running-cluster.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const CHECKOUT = join(import.meta.dirname, '../..');
const SYSTEMD = '/lib/systemd/systemd';
/** The programs that serve the bus over which the agent asks systemd for slices. */
const MESSAGE_BUSES = ['/usr/bin/dbus-daemon', '/usr/bin/dbus-broker'];
const CGROUPS = '/sys/fs/cgroup';
/** The units that change the kernel or devices, which are shared with the real host. */
const MASKED = [
  ...['systemd-sysctl', 'systemd-modules-load', 'systemd-binfmt', 'systemd-udevd', 'systemd-remount-fs'],
  ...['systemd-update-utmp', 'systemd-random-seed', 'systemd-hwdb-update', 'systemd-timesyncd', 'docker', 'containerd'],
].map((name) => `${name}.service`);

export interface Done {
  readonly code: number | null;
  /** The output and the errors. */
  readonly output: string;
}

/** A booted host. A test runs commands on it and reads its journal. */
export class SystemdHost {
  readonly #directory: string;
  readonly #child: ChildProcess;
  readonly #group: string;
  readonly #pid: number;

  private constructor(directory: string, child: ChildProcess, group: string, pid: number) {
    this.#directory = directory;
    this.#child = child;
    this.#group = group;
    this.#pid = pid;
  }

  /** Starts systemd in new namespaces, and resolves when it runs. */
  static async boot(): Promise<SystemdHost> {
    const directory = temporaryFolder();
    const group = `orcsd${process.pid}`;
    const script = join(directory, 'boot');
    writeFileSync(script, bootScript(directory, group), { mode: 0o755 });
    const child = spawn('sh', [script], { stdio: ['ignore', 'ignore', 'pipe'] });
    let output = '';
    child.stderr.on('data', (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4000)));
    try {
      const pid = await until(
        'a systemd that runs',
        () => {
          const found = systemdBelow(child.pid ?? 0);
          if (found === undefined) return undefined;
          const state = spawnSync('nsenter', [...inside(found), 'systemctl', 'is-system-running'], {
            encoding: 'utf8',
          });
          return /running|degraded/.test(state.stdout) ? found : undefined;
        },
        30_000,
      );
      return new SystemdHost(directory, child, group, pid);
    } catch (error) {
      child.kill('SIGKILL');
      clean(directory, group);
      throw new Error(`systemd did not start: ${output}`, { cause: error });
    }
  }

  /** Runs a command as root of that host. */
  sh(command: string, timeoutMs = 60_000): Done {
    const args = [
      ...inside(this.#pid),
      'env',
      '-i',
      'HOME=/root',
      `PATH=${process.env['PATH'] ?? ''}`,
      'sh',
      '-c',
      command,
    ];
    const done = spawnSync('nsenter', args, { encoding: 'utf8', timeout: timeoutMs });
    return { code: done.status, output: `${done.stdout}${done.stderr}`.trim() };
  }

  /** Returns the output of a shell command on the host. Throws if it fails. */
  must(command: string, timeoutMs?: number): string {
    const { code, output } = this.sh(command, timeoutMs);
    if (code !== 0) throw new Error(`${command} ended with ${code}: ${output}`);
    return output;
  }

  /** Writes a file of the host. */
  write(path: string, content: Buffer): void {
    const done = spawnSync('nsenter', [...inside(this.#pid), 'sh', '-c', `cat >${path}`], { input: content });
    if (done.status !== 0) throw new Error(`${path} could not be written: ${done.stderr.toString()}`);
  }

  async remove(): Promise<void> {
    const ended = new Promise<void>((resolve) => this.#child.once('exit', () => resolve()));
    // All processes of the namespace end with its first process.
    process.kill(this.#pid, 'SIGKILL');
    await ended;
    clean(this.#directory, this.#group);
  }
}

const inside = (pid: number): string[] => [`--target=${pid}`, '--all', '--root', '--wd'];

function systemdBelow(parent: number): number | undefined {
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const command = readFileSync(`/proc/${name}/cmdline`, 'utf8');
      const isChild = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === parent;
      if (isChild && command.startsWith(SYSTEMD)) return Number(name);
    } catch {
      // The process has ended in the meantime.
    }
  }
  return undefined;
}

function clean(directory: string, group: string): void {
  spawnSync('sh', ['-c', `find ${CGROUPS} -depth -type d -path '*/${group}*' -exec rmdir {} + 2>/dev/null`]);
  rmSync(directory, { recursive: true, force: true });
}

function bootScript(directory: string, group: string): string {
  const isV2 = existsSync(join(CGROUPS, 'cgroup.controllers'));
  const controllers = isV2
    ? []
    : readdirSync(CGROUPS).filter((name) => existsSync(join(CGROUPS, name, 'cgroup.procs')));
  const groups = isV2 ? [join(CGROUPS, group)] : controllers.map((name) => join(CGROUPS, name, group));
  const root = join(directory, 'root');
  const memory = join(directory, 'memory');
  const mountOf = (name: string): string =>
    name === 'unified'
      ? `mount -t cgroup2 cgroup2 ${root}${CGROUPS}/unified`
      : `mount -t cgroup -o ${name === 'systemd' ? 'none,name=systemd' : name} cgroup ${root}${CGROUPS}/${name}`;
  const mountGroups = isV2
    ? [`mount -t cgroup2 cgroup2 ${root}${CGROUPS}`]
    : [
        `mount -t tmpfs -o mode=755 cgroup ${root}${CGROUPS}`,
        ...controllers.flatMap((name) => [`mkdir -p ${root}${CGROUPS}/${name}`, mountOf(name)]),
      ];
  // A cpuset without CPUs and memory nodes cannot contain processes.
  const cpuset = groups
    .filter((path) => path.includes('/cpuset/'))
    .flatMap((path) => ['cpus', 'mems'].map((what) => `cat ${CGROUPS}/cpuset/cpuset.${what} >${path}/cpuset.${what}`));
  const checkouts = [CHECKOUT, run('readlink', ['-f', join(CHECKOUT, 'node_modules')]).trim()];
  const inner = [
    'mount --make-rprivate /',
    `mount -t tmpfs tmpfs ${memory} && mkdir ${memory}/upper ${memory}/work`,
    `mount -t overlay overlay -o lowerdir=/,upperdir=${memory}/upper,workdir=${memory}/work ${root}`,
    `mount -t proc proc ${root}/proc`,
    `mount -t sysfs sysfs ${root}/sys`,
    `mount --rbind /dev ${root}/dev`,
    ...['run', 'tmp'].map((path) => `mkdir -p ${root}/${path}; mount -t tmpfs tmpfs ${root}/${path}`),
    ...checkouts.map((path) => `mkdir -p ${root}${path}; mount --bind ${path} ${root}${path}`),
    ...mountGroups,
    `rm -f ${root}/etc/systemd/system/*.wants/*`,
    ...MASKED.map((unit) => `ln -sfn /dev/null ${root}/etc/systemd/system/${unit}`),
    'ip link set lo up',
    // A chroot does not suffice: the kernel refuses user namespaces (PrivateUsers=) to a process whose root is not that of its
    // mount namespace.
    `cd ${root} && mkdir -p .host && pivot_root . .host`,
    'umount --lazy /.host && rmdir /.host',
    `cd / && exec /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin ${SYSTEMD} --system --unit=basic.target --log-target=journal --show-status=0`,
  ];
  return [
    'set -e',
    `mkdir -p ${root} ${memory} ${groups.join(' ')}`,
    ...cpuset,
    ...groups.map((path) => `echo $$ >${path}/cgroup.procs`),
    `cat >${directory}/inner <<'END'`,
    'set -e',
    ...inner,
    'END',
    `exec unshare --mount --pid --fork --cgroup --ipc --uts --net --kill-child sh ${directory}/inner`,
    '',
  ].join('\n');
}

/** Resolves to the reason why such a host is not possible here, or `false`. */
export async function whyNoSystemd(): Promise<string | false> {
  if (process.getuid?.() !== 0) return 'a systemd of the test needs root';
  if (!existsSync(SYSTEMD)) return `${SYSTEMD} is missing: apt-get install systemd`;
  if (!MESSAGE_BUSES.some((path) => existsSync(path))) return 'systemd has no message bus: apt-get install dbus';
  try {
    const host = await SystemdHost.boot();
    await host.remove();
    return false;
  } catch (error) {
    return `this host runs no systemd in namespaces: ${errorMessage(error)}`;
  }
}
