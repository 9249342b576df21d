/**
 * `/logs/`: files below `/var/log`, and with `enableSystemLogQuery` the logs of the host's services (`?query=`), which come
 * from the journal or, where the journal does not know a service, from a file of its name.
 */
import { spawn } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { readdir, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { FieldError } from '../../api/meta/field-error.ts';
import { newNotFound } from '../../api/meta/status-error.ts';
import { type LogQuery, parseLogQuery, validateLogQuery } from './log-query.ts';
import { parseTarget } from './request-target.ts';

export interface SystemLogsOptions {
  readonly directory: string;
  /** `enableSystemLogQuery`. */
  readonly queries: boolean;
  /** The program that reads the journal. */
  readonly journalctl?: string;
}

const TEXT_TYPE = 'text/plain; charset=utf-8';
const QUERY_TIMEOUT_MS = 30_000;

export function installSystemLogs(app: FastifyInstance, options: SystemLogsOptions): void {
  app.get('/logs/*', async (request, reply) => {
    const path = (request.params as { '*': string })['*'];
    if (!options.queries) return serveFile(options.directory, path, reply);
    const parsed = parseLogQuery(new URLSearchParams(parseTarget(request.url).query));
    if (Array.isArray(parsed)) return refuse(reply, 400, parsed);
    if (parsed === undefined) return serveFile(options.directory, path, reply);
    if (path !== '') return reply.code(406).type(TEXT_TYPE).send('path not allowed in query mode\n');
    const wrong = await validateLogQuery(parsed, (file) => findFile(options.directory, file));
    if (wrong.length > 0) return refuse(reply, 406, wrong);
    const [file] = parsed.files;
    if (file !== undefined) return serveFile(options.directory, file.replaceAll('\\', '/'), reply);
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

/** Below the directory only, whatever the path and the links in it say. */
async function findFile(directory: string, path: string): Promise<string | undefined> {
  const root = await realpath(directory);
  const file = await realpath(join(root, path)).catch(() => undefined);
  return file === undefined || (file !== root && !file.startsWith(`${root}/`)) ? undefined : file;
}

async function serveFile(directory: string, path: string, reply: FastifyReply): Promise<FastifyReply> {
  const file = await findFile(directory, path);
  if (file === undefined) throw newNotFound({ group: '', resource: 'logs' }, path);
  const kind = await stat(file);
  if (!kind.isDirectory()) return reply.type(TEXT_TYPE).send(createReadStream(file));
  const names = await readdir(file, { withFileTypes: true });
  const rows = names.map((entry) => {
    const name = `${entry.name}${entry.isDirectory() ? '/' : ''}`;
    const text = name.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
    return `<a href="${encodeURI(name)}">${text}</a>`;
  });
  return reply.type('text/html; charset=utf-8').send(`<pre>\n${rows.join('\n')}\n</pre>\n`);
}

/** What goes wrong on the way stands in the text: the status is out by then. */
function serveServices(
  query: LogQuery,
  options: SystemLogsOptions,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const out = new PassThrough();
  const gone = new AbortController();
  reply.raw.once('close', () => gone.abort());
  const signal = AbortSignal.any([gone.signal, AbortSignal.timeout(QUERY_TIMEOUT_MS)]);
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
  const known = await journalUnits(journalctl, signal);
  const inJournal = query.services.filter((service) => known.includes(`${service}.service`));
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
    const file = await findFile(directory, name);
    if (file === undefined || (await stat(file)).isDirectory()) continue;
    await pipeline(createReadStream(file), out, { end: false, signal });
    return;
  }
  out.write(`\nlog not found for ${service}\n`);
}

/** The units that the journal has lines of; '' where there is no journal. */
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

/** In UTC, as the arguments say. */
function journalTime(ms: number): string {
  return new Date(ms).toISOString().slice(0, 19).replace('T', ' ');
}

/** Resolves when the program has ended and all it wrote is read: whether it ended well. */
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
