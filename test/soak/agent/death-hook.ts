/**
 * The soak test preloads this file into the tested agent. It records each step (runtime calls with side effects, file changes,
 * programs, writes to the API server), and kills the process at the step in SOAK_DEATH.
 *
 * A step has three moments: `before`, `during` (the request is sent or the program runs, and the response will not be read),
 * and `after`. SOAK_DEATH is `<moment> <step>`, and SOAK_DEATH_TURN is the number of the occurrence.
 */
import childProcess, { type ChildProcess } from 'node:child_process';
import fs from 'node:fs';
import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import http2, { type ClientHttp2Session, type ClientHttp2Stream, type OutgoingHttpHeaders } from 'node:http2';
import https from 'node:https';
import { syncBuiltinESMExports } from 'node:module';
import { promisify } from 'node:util';
import { isMainThread } from 'node:worker_threads';
import { isStep, stepName } from './steps.ts';

type Moment = 'before' | 'during' | 'after';
type Callable = (...args: unknown[]) => unknown;

/** The time after which the runtime or the API server has received the request, and usually has not responded. */
const DURING_MS = 8;
const MIN_WAIT_MS = 0;
const { SOAK_DEATH: death = '', SOAK_DEATH_TURN: turn = '1', SOAK_TRACE: trace = '' } = process.env;
let turnsLeft = Number(turn);
const seen = new Set<string>();
const { appendFileSync } = fs;

function reach(moment: Moment, step: string): void {
  const point = `${moment} ${step}`;
  if (!seen.has(point)) {
    seen.add(point);
    appendFileSync(trace, `${point}\n`);
  }
  if (point !== death) return;
  turnsLeft -= 1;
  if (turnsLeft > 0) return;
  appendFileSync(trace, `killed ${point}\n`);
  process.kill(process.pid, 'SIGKILL');
}

function reachLater(step: string): void {
  setTimeout(() => reach('during', step), DURING_MS);
}

/** The functions of `node:fs/promises` that change files. */
const FILE_CALLS = ['open', 'writeFile', 'rename', 'mkdir', 'rm', 'rmdir', 'unlink', 'symlink', 'link', 'truncate'];

function changesFiles(name: string, args: readonly unknown[]): boolean {
  const [, second] = args;
  return name !== 'open' || (typeof second === 'string' ? second !== 'r' : Number(second ?? 0) % 4 !== 0);
}

function watchFiles(): void {
  const calls = fs.promises as unknown as Record<string, Callable>;
  for (const name of FILE_CALLS) {
    const original = calls[name];
    if (original === undefined) throw new Error(`node:fs/promises has no ${name}`);
    calls[name] = async (...args: unknown[]): Promise<unknown> => {
      const path = String(name === 'rename' || name === 'symlink' ? args[1] : args[0]);
      const step = stepName(name, path);
      const isOne = isStep(step) && changesFiles(name, args);
      if (isOne) reach('before', step);
      const result = await Reflect.apply(original, fs.promises, args);
      if (isOne) reach('after', step);
      return result;
    };
  }
}

function watchPrograms(): void {
  const calls = childProcess as unknown as Record<string, Callable>;
  for (const name of ['spawn', 'execFile']) {
    const original = calls[name] as Callable;
    const watched = (...args: unknown[]): unknown => {
      const words = Array.isArray(args[1]) ? args[1].filter((word: unknown) => typeof word === 'string') : [];
      const step = stepName('run', [String(args[0]), ...words].join(' '));
      if (!isStep(step)) return Reflect.apply(original, childProcess, args);
      reach('before', step);
      const child = Reflect.apply(original, childProcess, args) as ChildProcess;
      setTimeout(() => reach('during', step), MIN_WAIT_MS);
      child.on('exit', () => reach('after', step));
      return child;
    };
    // `promisify(execFile)` resolves to both outputs. Of a function without this member, it would resolve to the first one.
    const promised = (...args: unknown[]): Promise<unknown> =>
      new Promise((resolve, reject) => {
        watched(...args, (error: Error | null, stdout: unknown, stderr: unknown) => {
          if (error === null) resolve({ stdout, stderr });
          else reject(Object.assign(error, { stdout, stderr }));
        });
      });
    calls[name] = name === 'execFile' ? Object.assign(watched, { [promisify.custom]: promised }) : watched;
  }
}

/** Watches requests over HTTP/1.1: to the Docker Engine, and to an API server without HTTP/2. */
function watchRequests(module: typeof http | typeof https): void {
  const calls = module as unknown as { request: Callable };
  const original = calls.request;
  calls.request = (...args: unknown[]): unknown => {
    const options = args.find((arg) => typeof arg === 'object' && arg !== null && !(arg instanceof URL)) as
      | { readonly method?: string; readonly path?: string }
      | undefined;
    const step = stepName(options?.method ?? 'GET', options?.path ?? '');
    if (!isStep(step)) return Reflect.apply(original, module, args);
    reach('before', step);
    const asked = Reflect.apply(original, module, args) as ClientRequest;
    asked.on('finish', () => reachLater(step));
    asked.on('response', (response: IncomingMessage) => response.on('end', () => reach('after', step)));
    return asked;
  };
}

/** Watches requests over HTTP/2: to CRI runtimes and to the API server. */
function watchSessions(): void {
  const calls = http2 as unknown as { connect: Callable };
  const original = calls.connect;
  calls.connect = (...args: unknown[]): unknown => {
    const session = Reflect.apply(original, http2, args) as ClientHttp2Session;
    const open = session.request.bind(session);
    session.request = (headers?: OutgoingHttpHeaders | readonly string[], options?): ClientHttp2Stream => {
      const named = (headers ?? {}) as OutgoingHttpHeaders;
      const step = stepName(String(named[':method'] ?? 'GET'), String(named[':path'] ?? ''));
      if (!isStep(step)) return open(headers, options);
      reach('before', step);
      const stream = open(headers, options);
      stream.on('finish', () => reachLater(step));
      stream.on('end', () => reach('after', step));
      return stream;
    };
    return session;
  };
}

if (isMainThread && trace !== '') {
  watchFiles();
  watchPrograms();
  watchRequests(http);
  watchRequests(https);
  watchSessions();
  syncBuiltinESMExports();
}
