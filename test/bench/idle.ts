/**
 * Measures the cost of a single idle node: the processor time, written bytes and fsyncs of `orchlet up` and of its container
 * runtime, and again with thousands of services, for which the node has rules. The numbers come from /proc and from strace,
 * which stops the process only at its fsyncs. `bench.ts` calls it.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureImages, findRuntime, installPackages } from '../../scripts/container-runtime.ts';
import type { Print } from './bench.ts';
import { openHttp } from './load.ts';
import { startServer } from './server.ts';

const SETTLE_MS = 60_000;
const WINDOW_MS = 180_000;
const SERVICES = 5000;
const HOUR_MS = 3_600_000;
const TICKS_PER_SECOND = 100;
const SYNCS = 'fsync,fdatasync,sync,syncfs,sync_file_range,msync';

interface Usage {
  readonly cpuSeconds: number;
  readonly writtenBytes: number;
}

/** Returns the usage of a process with all its threads. Running child processes are counted separately. */
function usageOf(pid: number): Usage {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  // The fields are utime and stime of the process and of its terminated children.
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
  const written = /^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1] ?? '0';
  return { cpuSeconds: ticks / TICKS_PER_SECOND, writtenBytes: Number(written) };
}

function descendantsOf(root: number): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        return [[Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])] as const];
      } catch {
        // The process has terminated in the meantime.
        return [];
      }
    });
  const found = [root];
  for (const pid of found) found.push(...parents.filter(([, parent]) => parent === pid).map(([child]) => child));
  return found;
}

function total(pids: readonly number[]): Usage {
  const all = pids.map(usageOf);
  return {
    cpuSeconds: all.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0),
    writtenBytes: all.reduce((sum, { writtenBytes }) => sum + writtenBytes, 0),
  };
}

/** Counts the lines of strace. It writes one line for each completed call. */
const syncsIn = (file: string): number => readFileSync(file, 'utf8').match(/\) += 0$/gm)?.length ?? 0;

interface Reading {
  readonly own: Usage;
  readonly runtime: Usage;
  readonly syncs: number;
  readonly atMs: number;
}

async function measure(what: string, read: () => Reading, print: Print): Promise<void> {
  const before = read();
  await sleep(WINDOW_MS);
  const after = read();
  const tookMs = after.atMs - before.atMs;
  const share = (of: 'own' | 'runtime'): number => ((after[of].cpuSeconds - before[of].cpuSeconds) * 100_000) / tookMs;
  const mbPerHour = (of: 'own' | 'runtime'): number =>
    ((after[of].writtenBytes - before[of].writtenBytes) * HOUR_MS) / tookMs / 1e6;
  print(`${what}: processor`, share('own'), '% of one');
  print(`${what}: written to disk`, mbPerHour('own'), 'MB/h');
  print(`${what}: fsyncs`, ((after.syncs - before.syncs) * HOUR_MS) / tookMs, '1/h');
  print(`${what}: processor of the container runtime beside it`, share('runtime'), '% of one');
  print(`${what}: written by the container runtime`, mbPerHour('runtime'), 'MB/h');
}

const service = (at: number): object => ({
  metadata: { name: `service-${at}` },
  spec: { ports: [{ name: 'http', port: 80 }] },
});

/** Returns a slice with three endpoints, of pods on other nodes. */
const endpoints = (at: number): object => ({
  metadata: { name: `service-${at}`, labels: { 'kubernetes.io/service-name': `service-${at}` } },
  addressType: 'IPv4',
  ports: [{ name: 'http', port: 8080 }],
  endpoints: [0, 1, 2].map((part) => ({
    addresses: [`10.${210 + part}.${at >> 8}.${at & 255}`],
    conditions: { ready: true },
  })),
});

async function createServices(origin: string): Promise<void> {
  const http = openHttp(origin);
  try {
    await http.many(SERVICES, async (at) => {
      await http.request('POST', '/api/v1/namespaces/default/services', service(at));
      await http.request('POST', '/apis/discovery.k8s.io/v1/namespaces/default/endpointslices', endpoints(at));
    });
  } finally {
    http.close();
  }
}

/** Measures `orchlet up` without pods, with a container runtime of its own. Installs strace if the host has none. */
export async function idle(print: Print): Promise<void> {
  if (spawnSync('strace', ['-V']).status !== 0) installPackages(['strace'], 'fsyncs are counted by strace');
  const report = (text: string): void => void process.stderr.write(`${text}\n`);
  const directory = mkdtempSync(join(tmpdir(), 'orch-idle-'));
  const runtime = await findRuntime({ directory: join(directory, 'docker'), report, privately: true });
  try {
    ensureImages(join(directory, 'images'), report);
    const trace = join(directory, 'syncs');
    const server = await startServer({
      command: ['up'],
      flags: [
        ...runtime.flags,
        '--port',
        '0',
        '--healthz-port',
        '0',
        '--read-only-port',
        '0',
        '--cluster-cidr',
        '10.198.0.0/16',
      ],
      readyWithinMs: 60_000,
      wrapper: ['strace', '-D', '-f', '--seccomp-bpf', '-e', `trace=${SYNCS}`, '-o', trace],
    });
    try {
      const daemon = Number(readFileSync(join(directory, 'docker', 'docker.pid'), 'utf8'));
      const read = (): Reading => ({
        own: usageOf(server.pid),
        runtime: total(descendantsOf(daemon)),
        syncs: syncsIn(trace),
        atMs: performance.now(),
      });
      await sleep(SETTLE_MS);
      await measure('idle node', read, print);
      await createServices(server.origin);
      await sleep(SETTLE_MS);
      await measure(`idle node with ${SERVICES} services`, read, print);
    } finally {
      await server.stop();
    }
  } finally {
    runtime.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}
