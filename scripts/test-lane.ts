/**
 * A lane runs integration tests one at a time, beside other lanes. It has its own network, mounts, Docker daemon and
 * containerd, because the clusters of one host share them. Processor, memory, cgroups, disk and process ids are those of the
 * host.
 *
 * `Lane` starts the process of a lane and sends it test files; `runLane` is that process. A lane stops its daemons when its
 * parent disconnects or was killed, and kills all that still runs in its namespaces.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../api/machinery/clock.ts';
import { findRuntime, type FoundRuntime, startPrivateContainerd } from './container-runtime.ts';
import { type Outcome, ROOT, runTests } from './test-run.ts';

const RUNTIMES = { docker: 'ORCHLET_TEST_DOCKER_SOCKET', containerd: 'ORCHLET_TEST_CONTAINERD_SOCKET' } as const;

const isGiven = (variable: string): boolean => (process.env[variable] ?? '') !== '';

/** Whether the tests use a runtime that they were given. It is in the network of the host. */
export const usesGivenRuntime = (): boolean => Object.values(RUNTIMES).some(isGiven);

/** The namespace of the other end of a lane's network. It disappears with the lane, and tests remove the file of its name. */
const ROUTER = `orclane${process.pid}`;

/** A file that takes longer ends its run. Its tests have their own, shorter limits, but their processes may not end. */
const MAX_RUN_MS = 1_800_000;

interface Job {
  readonly file: string;
  readonly coverage: boolean;
}

type Report = { readonly ready: true } | { readonly outcome: Outcome; readonly output: string };

/** The process of a lane, as its parent sees it. */
export class Lane {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** Resolves when its daemons answer. `archive` holds the images. The path of `directory` is short: it contains sockets. */
  static async start(directory: string, archive: string, env: NodeJS.ProcessEnv): Promise<Lane> {
    mkdirSync(directory);
    const program = [join(ROOT, 'bin/node'), '--disable-warning=ExperimentalWarning', join(ROOT, 'scripts/test.ts')];
    const around = usesGivenRuntime() ? [] : ['unshare', '--net', '--mount'];
    const [command = '', ...args] = [...around, ...program, '--lane', directory, archive];
    const child = spawn(command, args, {
      cwd: ROOT,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      // A signal to the group of this process, such as that of Ctrl-C, must not keep a lane from stopping its daemons.
      detached: true,
    });
    const lane = new Lane(child);
    await lane.#report();
    return lane;
  }

  async #report(): Promise<Report> {
    const ended = new AbortController();
    const exit = once(this.#child, 'exit', { signal: ended.signal }).then(([code]: (number | null)[]) => {
      throw new Error(`a lane of integration tests ended with ${code}`);
    });
    try {
      const [report] = (await Promise.race([once(this.#child, 'message', { signal: ended.signal }), exit])) as [Report];
      return report;
    } finally {
      ended.abort();
      exit.catch(() => undefined);
    }
  }

  async run(job: Job): Promise<{ readonly outcome: Outcome; readonly output: string }> {
    this.#child.send(job);
    const report = await this.#report();
    if ('ready' in report) throw new Error('a lane of integration tests was ready twice');
    return report;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    if (this.#child.connected) this.#child.disconnect();
    await ended;
  }
}

function must(command: string): void {
  const done = spawnSync('sh', ['-ec', command], { encoding: 'utf8' });
  if (done.status !== 0) throw new Error(`a lane of integration tests could not be set up: ${done.stderr.trim()}`);
}

/**
 * Gives the namespaces what a host has: an interface with a default route to a router, which reports that nothing is reachable
 * through it, and a `/sys` that shows the interfaces of this network.
 */
function furnish(directory: string): void {
  const cgroups = join(directory, 'cgroup');
  mkdirSync(cgroups);
  must(`
    ip netns add ${ROUTER}
    ip link add eth0 type veth peer name eth0 netns ${ROUTER}
    ip netns exec ${ROUTER} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    ip -n ${ROUTER} address add 192.0.2.1/24 dev eth0
    ip -n ${ROUTER} address add fd00::1/64 dev eth0 nodad
    ip -n ${ROUTER} link set eth0 up
    ip link set lo up
    ip address add 192.0.2.2/24 dev eth0
    ip address add fd00::2/64 dev eth0 nodad
    ip link set eth0 up
    ip route add default via 192.0.2.1
    ip -6 route add default via fd00::1
    mount --rbind /sys/fs/cgroup ${cgroups}
    umount -l /sys
    mount -t sysfs sysfs /sys
    mount --move ${cgroups} /sys/fs/cgroup
    rmdir ${cgroups}
  `);
}

/** Kills what tests have left in the network namespace of this process. */
function killOthers(): void {
  const own = readlinkSync('/proc/self/ns/net');
  for (const pid of readdirSync('/proc')
    .map(Number)
    .filter((id) => id > 0 && id !== process.pid)) {
    try {
      if (readlinkSync(`/proc/${pid}/ns/net`) === own) process.kill(pid, 'SIGKILL');
    } catch {
      // The process has ended in the meantime.
    }
  }
}

/** Starts the runtimes that were not given, and adds them to `started`. */
async function startDaemons(directory: string, archive: string, started: FoundRuntime[]): Promise<void> {
  const use = async (name: keyof typeof RUNTIMES, start: () => FoundRuntime | Promise<FoundRuntime>): Promise<void> => {
    if (isGiven(RUNTIMES[name])) return;
    const runtime = await start();
    started.push(runtime);
    process.env[RUNTIMES[name]] = runtime.endpoint.replace('unix://', '');
  };
  const quiet = (): void => undefined;
  await use('docker', () => findRuntime({ directory: join(directory, 'docker'), report: quiet, privately: true }));
  await use('containerd', () => startPrivateContainerd(join(directory, 'containerd'), archive, quiet));
}

/**
 * Sends a report to the parent. A parent that was killed meanwhile gets none, and this process stops its daemons all the same.
 */
const send = (report: Report): void => void process.send?.(report, undefined, undefined, () => undefined);

/**
 * Returns the processor time of the programs that this process started, and those that they started, as far as they have ended.
 */
function processorMs(): number {
  const fields = readFileSync('/proc/self/stat', 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ');
  const ticks = Number(fields[13]) + Number(fields[14]);
  return ticks * 10;
}

/** Runs the test files that the parent sends. Resolves when it has disconnected, and the last run has ended. */
async function runJobs(): Promise<void> {
  const disconnected = new AbortController();
  let last: Promise<void> = Promise.resolve();
  const run = async ({ file, coverage }: Job): Promise<void> => {
    let output = '';
    const signal = AbortSignal.any([disconnected.signal, AbortSignal.timeout(MAX_RUN_MS)]);
    const before = processorMs();
    const { code, results } = await runTests([file], {
      ...{ env: {}, concurrency: 1, coverage, signal },
      onOutput: (text) => (output = text),
    });
    const used = processorMs() - before;
    send({ outcome: { code, results: results.map((result) => ({ ...result, processorMs: used })) }, output });
  };
  process.on('message', (job: Job) => void (last = run(job)));
  send({ ready: true });
  if (process.connected) await once(process, 'disconnect');
  disconnected.abort();
  await Promise.race([last, systemClock.sleep(10_000)]);
}

/** Runs the process of a lane. Resolves when its parent has disconnected and all is stopped. */
export async function runLane(directory: string, archive: string): Promise<void> {
  const isAlone = !usesGivenRuntime();
  const daemons: FoundRuntime[] = [];
  try {
    if (isAlone) furnish(directory);
    await startDaemons(directory, archive, daemons);
    await runJobs();
  } finally {
    for (const daemon of daemons) daemon.stop();
    if (isAlone) {
      killOthers();
      spawnSync('ip', ['netns', 'delete', ROUTER]);
    }
  }
}
