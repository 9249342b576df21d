/**
 * Serves `/logs/`: the files below `/var/log`. With `enableSystemLogQuery`, `?query=` requests the logs of the host's services,
 * or one file. The logs of a service come from the journal, or from a file with the service's name if the journal does not have
 * the service.
 */
import { spawn } from 'node:child_process';
import type { Dirent } from 'node:fs';
import { type FileHandle, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { FieldError } from '../../api/meta/field-error.ts';
import { newStatusError } from '../../api/meta/status-error.ts';
import { Directory, ifMissing, inDirectory, IrregularFileError } from '../base/files/beneath.ts';
import { type LogQuery, parseLogQuery, validateLogQuery } from './log-query.ts';
import { parseTarget } from './request-target.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';

/** Where the logs of the host are. Without `queries`, only files are served. */
export interface SystemLogsOptions {
  readonly directory: string;
  /** The option `enableSystemLogQuery`. */
  readonly queries: boolean;
  /** The program that reads the journal. */
  readonly journalctl?: string;
}

/** What Go's file server sends before a list of files. */
const LIST_HEAD = '<!doctype html>\n<meta name="viewport" content="width=device-width">\n';
const QUERY_TIMEOUT_MS = 30_000;

/** Adds the routes. Paths that leave the directory, or lead through links out of it, are not found. */
export function installSystemLogs(app: FastifyInstance, options: SystemLogsOptions): void {
  app.get('/logs/*', async (request, reply) => {
    const path = (request.params as { '*': string })['*'];
    const target = parseTarget(request.url);
    if (!options.queries) return serveFile(options.directory, path, reply, target.query);
    const parsed = parseLogQuery(new URLSearchParams(target.query));
    if (Array.isArray(parsed)) return refuse(reply, 400, parsed);
    if (parsed === undefined) return serveFile(options.directory, path, reply, target.query);
    if (path !== '') return reply.code(406).type(TEXT_TYPE).send('path not allowed in query mode\n');
    const wrong = await validateLogQuery(parsed, (file) => findFile(options.directory, file));
    if (wrong.length > 0) return refuse(reply, 406, wrong);
    const [file] = parsed.files;
    if (file !== undefined) return serveFile(options.directory, file.replaceAll('\\', '/'), reply, undefined);
    return serveServices(parsed, options, request, reply);
  });
}

function refuse(reply: FastifyReply, code: number, errors: readonly FieldError[]): FastifyReply {
  const words = [...new Set(errors.map(String))];
  return reply
    .code(code)
    .type(TEXT_TYPE)
    .send(`${words.length === 1 ? words[0] : `[${words.join(', ')}]`}\n`);
}

/** Returns the parts of the real path below the directory, or `undefined` if there is no file or links lead out of it. */
async function findFile(directory: string, path: string): Promise<readonly string[] | undefined> {
  const root = await realpath(directory);
  // A file that does not exist is handled as one outside of the directory.
  const file = await realpath(join(root, path.replace(/\/$/, ''))).catch(() => undefined);
  if (file === root) return [];
  return file?.startsWith(`${root}/`) === true ? file.slice(root.length + 1).split('/') : undefined;
}

/**
 * Opens a file or directory that was found. Pods with host paths may write there. So links that are swapped in meanwhile are
 * not followed, and only regular files and directories are opened, because a FIFO would block a thread.
 */
async function openFound(directory: string, parts: readonly string[]): Promise<FileHandle | readonly Dirent[]> {
  const name = parts.at(-1);
  if (name === undefined) return inDirectory(directory, (root) => root.entries());
  const outer = await Directory.beneath(await realpath(directory), parts.slice(0, -1));
  try {
    if (!(await outer.lstat(name)).isDirectory()) return await outer.openFile(name);
    const found = await outer.enter(name);
    try {
      return await found.entries();
    } finally {
      await found.close();
    }
  } finally {
    await outer.close();
  }
}

/**
 * Serves a file or the list of a directory. Redirects a path whose slash at the end does not fit, unless `query` is
 * `undefined`.
 */
async function serveFile(
  directory: string,
  path: string,
  reply: FastifyReply,
  query: string | undefined,
): Promise<FastifyReply> {
  const parts = await findFile(directory, path);
  const found = parts === undefined ? undefined : await openFound(directory, parts).catch(ifNoLog);
  if (found === undefined) throw newStatusError(404, 'NotFound', '404 page not found\n');
  const isFile = 'fd' in found;
  if (query !== undefined && path !== '' && path.endsWith('/') === isFile) {
    if (isFile) await found.close();
    const name = encodeURIComponent(path.split('/').findLast((part) => part !== '') ?? '');
    return reply
      .code(301)
      .header('Location', `${isFile ? `../${name}` : `${name}/`}${query === '' ? '' : `?${query}`}`)
      .send();
  }
  if (isFile) return reply.type(TEXT_TYPE).send(found.createReadStream());
  const rows = found.map((entry) => {
    const name = `${entry.name}${entry.isDirectory() ? '/' : ''}`;
    const text = name.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
    return `<a href="${encodeURI(name)}">${text}</a>`;
  });
  return reply.type('text/html; charset=utf-8').send(`${LIST_HEAD}<pre>\n${rows.join('\n')}\n</pre>\n`);
}

/** Returns `undefined` for the error of a file that cannot be read as a log or is gone meanwhile. Throws any other error. */
function ifNoLog(error: unknown): undefined {
  if (error instanceof IrregularFileError || (error as NodeJS.ErrnoException).code === 'ELOOP') return undefined;
  return ifMissing(error as NodeJS.ErrnoException);
}

/** Streams the logs of services. A failure is reported in the text, because the status code is already sent. */
function serveServices(
  query: LogQuery,
  options: SystemLogsOptions,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const out = new PassThrough();
  const clientGone = new AbortController();
  reply.raw.once('close', () => clientGone.abort());
  const signal = AbortSignal.any([clientGone.signal, AbortSignal.timeout(QUERY_TIMEOUT_MS)]);
  void copyServices(query, options, out, signal)
    .catch((error: unknown) => void out.write(`\nerror getting log: ${String(error)}\n`))
    .finally(() => out.end());
  reply.type('text/plain;charset=UTF-8');
  if (request.headers['accept-encoding'] !== 'gzip') return reply.send(out);
  return reply.header('Content-Encoding', 'gzip').send(out.pipe(createGzip({ level: 1 })));
}

async function copyServices(
  query: LogQuery,
  { directory, journalctl = 'journalctl' }: SystemLogsOptions,
  out: PassThrough,
  signal: AbortSignal,
): Promise<void> {
  const units = await journalUnits(journalctl, signal);
  // As in the kubelet, the end of a unit's name suffices.
  const inJournal = query.services.filter((service) => units.includes(`${service}.service`));
  const inFiles = query.services.filter((service) => !inJournal.includes(service));
  if (inJournal.length > 0) await run(journalctl, journalArguments(query, inJournal), out, signal);
  if (inFiles.length === 0) return;
  if (query.hasOptions) {
    out.write(
      `\noptions present and query resolved to log files for [${inFiles.join(' ')}]\ntry without specifying options\n`,
    );
    return;
  }
  for (const service of inFiles) await copyFile(directory, service, out, signal);
}

async function copyFile(directory: string, service: string, out: PassThrough, signal: AbortSignal): Promise<void> {
  for (const name of [service, `${service}.log`, `${service}/${service}.log`]) {
    const parts = await findFile(directory, name);
    const found = parts === undefined ? undefined : await openFound(directory, parts).catch(ifNoLog);
    if (found === undefined || !('fd' in found)) continue;
    await pipeline(found.createReadStream(), out, { end: false, signal });
    return;
  }
  out.write(`\nlog not found for ${service}\n`);
}

/** Returns the names of the units in the journal, a line for each; an empty text if there is no journal. */
async function journalUnits(journalctl: string, signal: AbortSignal): Promise<string> {
  const collected = new PassThrough();
  const chunks: Buffer[] = [];
  collected.on('data', (chunk: Buffer) => chunks.push(chunk));
  const isRead = await run(journalctl, ['--field', '_SYSTEMD_UNIT'], collected, signal);
  return isRead ? Buffer.concat(chunks).toString('utf8') : '';
}

function journalArguments(query: LogQuery, services: readonly string[]): string[] {
  const { sinceTime, untilTime, tailLines, pattern, boot } = query;
  return [
    '--utc',
    '--no-pager',
    '--output=short-precise',
    ...(sinceTime === undefined ? [] : [`--since=${journalTime(sinceTime)}`]),
    ...(untilTime === undefined ? [] : [`--until=${journalTime(untilTime)}`]),
    ...(tailLines === undefined ? [] : ['--pager-end', `--lines=${tailLines}`]),
    ...services.map((service) => `--unit=${service}`),
    ...(pattern === '' ? [] : [`--grep=${pattern}`]),
    ...(boot === undefined ? [] : ['--boot', String(boot)]),
  ];
}

/** Formats a time in UTC for the arguments of journalctl. */
function journalTime(ms: number): string {
  return new Date(ms).toISOString().slice(0, 19).replace('T', ' ');
}

/**
 * Runs a program and copies its output to `out`. Resolves to whether it exited with 0, once all its output is read. A program
 * that cannot be started, or that the signal aborts, resolves to false.
 */
function run(
  command: string,
  args: readonly string[],
  out: NodeJS.WritableStream,
  signal: AbortSignal,
): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], signal });
    child.stdout.pipe(out, { end: false });
    child.stderr.pipe(out, { end: false });
    child.once('error', () => resolve(false));
    child.once('close', (code) => resolve(code === 0));
  });
}
