/** Starts `orchlet` in its own directory, waits for /readyz, and reads measurements from it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:https';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Facts } from './observed.ts';

/** The token of an administrator of every server that a benchmark starts. */
export const TOKEN = 'bench-token';
const ROOT = join(import.meta.dirname, '../..');
/** The unit of processor times in Linux, which is a hundredth of a second on every machine. */
const MS_IN_TICK = 10;

export interface Server {
  readonly origin: string;
  readonly pid: number;
  /** The directory of its CA and keys. */
  readonly keys: string;
  /** The time from the start of the process to the first `ok` of /readyz. */
  readonly readyAfterMs: number;
  facts(): Promise<Facts>;
  rssBytes(): Promise<number>;
  /** The processor time of all threads since the start. The kernel counts it in steps of 10 ms. */
  processorMs(): Promise<number>;
  stop(): Promise<void>;
}

export interface ServerOptions {
  /** `controlplane` by default. */
  readonly command?: readonly string[];
  /** Flags in addition to those that every server gets. */
  readonly flags?: readonly string[];
  readonly readyWithinMs?: number;
  /** Another server of the same cluster, whose CA and keys this one gets. */
  readonly like?: Server | undefined;
  /** A program that runs the server, such as a tracer, with its arguments. It must keep the process id. */
  readonly wrapper?: readonly string[];
  /** The program to start. The default is ORCHLET_BENCH_PROGRAM, or else this checkout. */
  readonly program?: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** Loads `observed.ts`, which `facts` needs and which uses some memory. */
  readonly observed?: boolean;
}

/** Starts `orchlet` with a temporary data directory, and resolves when `/readyz` succeeds. */
export async function startServer(options: ServerOptions = {}): Promise<Server> {
  const directory = await mkdtemp(join(tmpdir(), 'orchlet-bench-'));
  const tokens = join(directory, 'tokens.csv');
  const factsFile = join(directory, 'facts.json');
  await writeFile(tokens, `${TOKEN},bench,bench,"system:masters"\n`);
  const port = await freePort();
  const keys = join(directory, 'data/pki');
  if (options.like !== undefined) await cp(options.like.keys, keys, { recursive: true });
  const flags = ['--data-dir', join(directory, 'data'), '--secure-port', String(port), '--token-auth-file', tokens];
  const log = openSync(join(directory, 'log'), 'w');
  const started = performance.now();
  const [program = '', ...args] = [
    ...(options.wrapper ?? []),
    options.program ?? process.env['ORCHLET_BENCH_PROGRAM'] ?? join(ROOT, 'bin/orchlet'),
    ...(options.command ?? ['controlplane']),
    ...flags,
    ...(options.flags ?? []),
  ];
  const child = spawn(program, args, {
    stdio: ['ignore', log, log],
    env: { ...(options.observed === true ? observedEnvironment(factsFile) : process.env), ...options.environment },
  });
  const origin = `https://127.0.0.1:${port}`;
  const readyAfterMs = await untilReady(child, origin, {
    started,
    withinMs: options.readyWithinMs ?? 30_000,
    log: join(directory, 'log'),
  }).catch(async (error: unknown) => {
    await rm(directory, { recursive: true, force: true });
    throw error;
  });
  const pid = child.pid ?? 0;
  return {
    origin,
    pid,
    keys,
    readyAfterMs,
    facts: async () => {
      await rm(factsFile, { force: true });
      child.kill('SIGUSR2');
      for (;;) {
        await sleep(20);
        try {
          return JSON.parse(await readFile(factsFile, 'utf8')) as Facts;
        } catch (error) {
          if (child.exitCode !== null) throw new Error('the server ended', { cause: error });
        }
      }
    },
    rssBytes: async () => {
      const status = await readFile(`/proc/${pid}/status`, 'utf8');
      return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024;
    },
    processorMs: async () => {
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
      // The name of the program may contain anything. After it come the state and ten more fields, then those of the two times.
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return (Number(fields[11]) + Number(fields[12])) * MS_IN_TICK;
    },
    stop: async () => {
      if (child.exitCode === null) {
        const exited = once(child, 'exit');
        child.kill('SIGTERM');
        const timer = setTimeout(() => child.kill('SIGKILL'), 15_000);
        await exited;
        clearTimeout(timer);
      }
      await rm(directory, { recursive: true, force: true });
    },
  };
}

function observedEnvironment(factsFile: string): NodeJS.ProcessEnv {
  const script = join(import.meta.dirname, 'observed.ts');
  const options = `--import=${script} ${process.env['ORCHLET_BENCH_NODE_OPTIONS'] ?? ''}`;
  return { ...process.env, ORCHLET_BENCH_FACTS: factsFile, NODE_OPTIONS: options };
}

async function untilReady(
  child: ChildProcess,
  origin: string,
  { started, withinMs, log }: { readonly started: number; readonly withinMs: number; readonly log: string },
): Promise<number> {
  while (performance.now() - started < withinMs) {
    if (child.exitCode !== null)
      throw new Error(`orchlet ended with ${child.exitCode}:\n${await readFile(log, 'utf8')}`);
    if (await isReady(origin)) return performance.now() - started;
    await sleep(5);
  }
  child.kill('SIGKILL');
  throw new Error(`orchlet is not ready after ${withinMs} ms:\n${await readFile(log, 'utf8')}`);
}

function isReady(origin: string): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get(`${origin}/readyz`, {
      rejectUnauthorized: false,
      headers: { authorization: `Bearer ${TOKEN}` },
    });
    request.on('response', (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    request.on('error', () => resolve(false));
  });
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
