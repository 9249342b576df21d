/**
 * Measures the node agent alone on a real container runtime: the time from a written manifest to the running process, 20 pods
 * at once, 110 pods, and the cost of the agent with 23 and with 110 pods. Needs root and a private runtime. `bench.ts` calls
 * it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ensureImages,
  findRuntime,
  type FoundRuntime,
  startPrivateContainerd,
} from '../../scripts/container-runtime.ts';
import type { Print } from './bench.ts';
import { unmountBelow } from '../mounts.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ROOT = join(import.meta.dirname, '../..');
const TICKS_PER_SECOND = 100;
const MIB = 1024 * 1024;
/** The work that follows a start does not count as cost of running pods. */
const SETTLE_MS = 20_000;
const WINDOW_MS = 60_000;
const LIMIT_MS = 300_000;
/** The resolution of a measurement, which is that of the agent's file watch and of the polled files of the pods. */
const POLL_MS = 5;

/** Measures containerd and Docker one after the other, each started for this measurement alone. */
export async function agent(print: Print): Promise<void> {
  const report = (text: string): void => void process.stderr.write(`${text}\n`);
  const directory = mkdtempSync(join(tmpdir(), 'ob-'));
  const runtimes: FoundRuntime[] = [];
  try {
    const archive = ensureImages(join(directory, 'i'), report);
    const start = {
      containerd: () => Promise.resolve(startPrivateContainerd(join(directory, 'c'), archive, report)),
      docker: () => findRuntime({ directory: join(directory, 'd'), report, privately: true }),
    };
    for (const name of ['containerd', 'docker'] as const) {
      const runtime = await start[name]();
      runtimes.push(runtime);
      await measure(name, runtime, archive, (what, figure, unit) => print(`${name}: ${what}`, figure, unit));
      runtime.stop();
      runtimes.pop();
    }
  } finally {
    for (const runtime of runtimes) runtime.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function measure(name: string, runtime: FoundRuntime, archive: string, print: Print): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'orchlet-bench-'));
  const [manifests, starts, images] = ['manifests', 'starts', 'images'].map((part) => join(directory, part)) as [
    string,
    string,
    string,
  ];
  for (const part of [manifests, starts, images]) mkdirSync(part);
  copyFileSync(archive, join(images, 'images.tar'));
  const logFile = join(directory, 'log');
  const log = openSync(logFile, 'w');
  const flags = (root: string): readonly string[] => [
    ...['--root-dir', root, '--pod-manifest-path', manifests, '--hostname-override', `b-${name}`],
    ...['--pod-logs-dir', join(directory, 'logs'), '--images-dir', images, '--port', '0', '--read-only-port', '0'],
    ...['--healthz-port', '0', '--fail-swap-on=false', '--pod-infra-container-image', 'orchlet.local/pause:1'],
    ...['--max-pods', '200', ...runtime.flags],
  ];
  const start = async (root: string): Promise<ChildProcess> => {
    const startsBefore = startsIn(logFile);
    const started = spawn(join(ROOT, 'bin/orchlet'), ['agent', ...flags(root)], { stdio: ['ignore', log, log] });
    await until(() => startsIn(logFile) > startsBefore).catch((error: unknown) => {
      started.kill();
      throw error;
    });
    return started;
  };
  // The first start after a change of the sources compiles them and keeps the compiler in memory, so a second start is
  // measured.
  await end(await start(join(directory, 'first')));
  const child = await start(join(directory, 'root'));
  const pid = child.pid ?? 0;
  const running = async (count: number): Promise<void> => {
    const end = performance.now() + LIMIT_MS;
    while (readdirSync(starts).length < count) {
      if (child.exitCode !== null || performance.now() > end)
        throw new Error(`${readdirSync(starts).length} of ${count} pods run:\n${readFileSync(logFile, 'utf8')}`);
      await sleep(POLL_MS);
    }
  };
  let pods = 0;
  /** Resolves to the seconds until the processes of this number of additional pods run. */
  const add = async (count: number): Promise<number> => {
    const started = performance.now();
    for (const last = pods + count; pods < last; pods += 1)
      writeFileSync(join(manifests, `p${pods}.json`), JSON.stringify(pod(`p${pods}`, starts)));
    await running(pods);
    return (performance.now() - started) / 1000;
  };
  try {
    const single: number[] = [];
    for (let round = 0; round < 3; round += 1) single.push(await add(1));
    print('file written to process running, median of 3', single.toSorted((a, b) => a - b)[1] ?? 0, 's');
    print('20 pods at once', await add(20), 's');
    await cost(pid, pods, print);
    print('87 pods more at once, 110 in all', await add(87), 's');
    await cost(pid, pods, print);
  } finally {
    for (const file of readdirSync(manifests)) rmSync(join(manifests, file));
    await end(child);
    unmountBelow(directory);
    rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Returns how often an agent has logged that it runs. */
const startsIn = (logFile: string): number => readFileSync(logFile, 'utf8').split('The node agent runs').length - 1;

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  if (child.exitCode !== null) return;
  child.kill('SIGTERM');
  await ended;
}

function pod(name: string, starts: string): object {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name },
    spec: {
      terminationGracePeriodSeconds: 0,
      containers: [
        {
          name: 'main',
          image: DEMO_IMAGE,
          command: ['sh', '-c', `echo > /starts/${name}; exec sleep 1000000`],
          volumeMounts: [{ name: 'starts', mountPath: '/starts' }],
        },
      ],
      volumes: [{ name: 'starts', hostPath: { path: starts } }],
    },
  };
}

async function cost(pid: number, pods: number, print: Print): Promise<void> {
  await sleep(SETTLE_MS);
  const before = cpuSeconds(pid);
  await sleep(WINDOW_MS);
  const share = ((cpuSeconds(pid) - before) * 1000) / WINDOW_MS;
  print(`the agent's share of one processor with ${pods} pods`, share * 100, '%');
  const resident = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  print(`the agent's resident memory with ${pods} pods`, resident / MIB, 'MiB');
}

function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const [user = '0', system = '0'] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 13);
  return (Number(user) + Number(system)) / TICKS_PER_SECOND;
}

async function until(check: () => boolean): Promise<void> {
  const end = performance.now() + LIMIT_MS;
  while (!check()) {
    if (performance.now() > end) throw new Error('the agent did not start');
    await sleep(POLL_MS);
  }
}
