/** The agent's plain routes: health, pods, logs, configuration, statistics, submitted pods. Streams stand in `streaming/`. */
import { createReadStream } from 'node:fs';
import { readdir, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { newBadRequest, newNotFound } from '../../api/meta/status-error.ts';
import type { LogOptions, Pod, PodHost } from '../core-types.ts';
import { type Signal, SIGNALS } from '../eviction/thresholds.ts';
import type { SubmittedPods } from '../podconfig/submitted-source.ts';

/** What a page of figures says, made when it is asked for. */
export interface StatisticsPages {
  /** `/metrics`: the agent's own. */
  metrics(): Promise<string>;
  /** `/metrics/cadvisor`, `/metrics/resource`, `/metrics/probes`. */
  cadvisor(): Promise<string>;
  resource(): Promise<string>;
  probes(): Promise<string>;
  /** `/stats/summary`, as JSON. */
  summary(onlyCpuAndMemory: boolean): Promise<object>;
}

export interface RoutesOptions {
  readonly host: PodHost;
  readonly statistics: StatisticsPages;
  /** `/configz`: the whole answer. */
  readonly config: () => object;
  readonly submitted: SubmittedPods | undefined;
  /** `--enable-system-log-handler`: the directory, or `undefined`. */
  readonly logDirectory: string | undefined;
  readonly debugHandlers: boolean;
  /** `/eviction/explain`; the signal is a supposed pressure. */
  readonly explainEviction?: (signal: Signal | undefined) => Promise<object>;
  readonly checkpoint?: (namespace: string, pod: string, container: string) => Promise<readonly string[]>;
}

const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';
const TEXT_TYPE = 'text/plain; charset=utf-8';

/** Health alone: for port 10248 and the others. */
export function installHealth(app: FastifyInstance, host: PodHost): void {
  const ok = (_request: FastifyRequest, reply: FastifyReply): FastifyReply => reply.type(TEXT_TYPE).send('ok');
  app.get('/healthz/ping', ok);
  app.get('/healthz/log', ok);
  const check = (_request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    const problem = host.syncLoopHealth();
    if (problem === '') return reply.type(TEXT_TYPE).send('ok');
    return reply
      .code(500)
      .type(TEXT_TYPE)
      .send(`[+]ping ok\n[+]log ok\n[-]syncloop failed: ${problem}\nhealthz check failed\n`);
  };
  app.get('/healthz', check);
  app.get('/healthz/syncloop', check);
}

/** What may be read by anybody on port 10255 and by the authorized on 10250. */
export function installReading(app: FastifyInstance, options: RoutesOptions): void {
  const { host, statistics } = options;
  app.get('/pods', (_request, reply) => reply.send(podList(host.pods())));
  app.get('/pods/', (_request, reply) => reply.send(podList(host.pods())));
  app.get('/metrics', async (_request, reply) => reply.type(METRICS_TYPE).send(await statistics.metrics()));
  app.get('/metrics/cadvisor', async (_request, reply) => reply.type(METRICS_TYPE).send(await statistics.cadvisor()));
  app.get('/metrics/resource', async (_request, reply) => reply.type(METRICS_TYPE).send(await statistics.resource()));
  app.get('/metrics/probes', async (_request, reply) => reply.type(METRICS_TYPE).send(await statistics.probes()));
  const summary = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { only_cpu_and_memory: only } = request.query as { only_cpu_and_memory?: string };
    return reply.type('application/json').send(await statistics.summary(only === 'true'));
  };
  app.get('/stats/summary', summary);
  app.post('/stats/summary', summary);
}

/** What only the authorized may ask. */
export function installPrivate(app: FastifyInstance, options: RoutesOptions): void {
  const { host } = options;
  app.get('/configz', (_request, reply) => reply.send(options.config()));
  if (options.debugHandlers) {
    app.get('/runningpods/', async (_request, reply) => reply.send(podList(await host.runningPods())));
    app.get('/containerLogs/:namespace/:pod/:container', (request, reply) => serveLogs(host, request, reply));
    app.post('/run/:namespace/:pod/:container', (request, reply) => runCommand(host, request, reply, ''));
    app.post('/run/:namespace/:pod/:uid/:container', (request, reply) =>
      runCommand(host, request, reply, (request.params as { uid: string }).uid),
    );
    const { logDirectory } = options;
    if (logDirectory !== undefined)
      app.get('/logs/*', (request, reply) => serveFile(logDirectory, (request.params as { '*': string })['*'], reply));
  }
  const { explainEviction } = options;
  if (explainEviction !== undefined) {
    app.get('/eviction/explain', async (request, reply) => {
      const { signal: asked = '' } = request.query as { signal?: string };
      const signal = SIGNALS.find((name) => name === asked);
      if (asked !== '' && signal === undefined) throw newBadRequest(`unsupported eviction signal ${asked}`);
      return reply.type('application/json').send(await explainEviction(signal));
    });
  }
  const { checkpoint } = options;
  if (checkpoint !== undefined) {
    app.post('/checkpoint/:namespace/:pod/:container', async (request, reply) => {
      const { namespace, pod, container } = request.params as Record<'namespace' | 'pod' | 'container', string>;
      return reply.send({ items: await checkpoint(namespace, pod, container) });
    });
  }
  if (options.submitted !== undefined) installSubmitted(app, options.submitted);
}

function podList(pods: readonly Pod[]): object {
  return { kind: 'PodList', apiVersion: 'v1', metadata: {}, items: pods };
}

/** `/podManifests`: pods that are submitted to this node; PUT and POST replace one of the same name. */
function installSubmitted(app: FastifyInstance, submitted: SubmittedPods): void {
  const submit = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const body = request.body as Buffer | undefined;
    if (body === undefined || body.length === 0)
      throw newBadRequest('the body must be the manifest of a pod, in JSON or YAML');
    return reply.code(201).send(await submitted.submit(body));
  };
  app.get('/podManifests', (_request, reply) => reply.send(podList(submitted.list())));
  app.post('/podManifests', submit);
  app.put('/podManifests', submit);
  app.delete('/podManifests/:namespace/:name', async (request, reply) => {
    const { namespace, name } = request.params as { namespace: string; name: string };
    await submitted.remove(namespace, name);
    return reply.send({ kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' });
  });
}

function numberOf(query: Record<string, string | undefined>, name: string): number | undefined {
  const text = query[name];
  if (text === undefined || text === '') return undefined;
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw newBadRequest(`${name} must be a whole number, not ${JSON.stringify(text)}`);
  return value;
}

function parseLogOptions(query: Record<string, string | undefined>): LogOptions {
  const on = (name: string): boolean => query[name] === 'true' || query[name] === '1';
  const tailLines = numberOf(query, 'tailLines');
  const limitBytes = numberOf(query, 'limitBytes');
  const sinceSeconds = numberOf(query, 'sinceSeconds');
  if (tailLines !== undefined && tailLines < 0) throw newBadRequest('tailLines must be greater than or equal to 0');
  if (limitBytes !== undefined && limitBytes < 1) throw newBadRequest('limitBytes must be greater than 0');
  if (sinceSeconds !== undefined && sinceSeconds < 1) throw newBadRequest('sinceSeconds must be greater than 0');
  const stream = query['stream'];
  return {
    follow: on('follow'),
    previous: on('previous'),
    timestamps: on('timestamps'),
    ...(tailLines === undefined ? {} : { tailLines }),
    ...(limitBytes === undefined ? {} : { limitBytes }),
    ...(sinceSeconds === undefined ? {} : { sinceSeconds }),
    ...(query['sinceTime'] === undefined ? {} : { sinceTime: query['sinceTime'] }),
    ...(stream === 'Stdout' || stream === 'Stderr' || stream === 'All' ? { stream } : {}),
  };
}

/** The header goes out with the first byte, so that a failure before it is an answer of its own. */
async function serveLogs(host: PodHost, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { namespace, pod, container } = request.params as Record<'namespace' | 'pod' | 'container', string>;
  const options = parseLogOptions(request.query as Record<string, string | undefined>);
  const gone = new AbortController();
  const { raw } = reply;
  raw.on('close', () => gone.abort(new Error('the client is gone')));
  raw.setHeader('Content-Type', TEXT_TYPE);
  raw.setHeader('Transfer-Encoding', 'chunked');
  try {
    await host.logs(namespace, pod, container, options, raw, gone.signal);
    reply.hijack();
    raw.end();
  } catch (error) {
    if (gone.signal.aborted || raw.headersSent) {
      reply.hijack();
      raw.destroy();
      return;
    }
    raw.removeHeader('Transfer-Encoding');
    throw error;
  }
}

const RUN_TIMEOUT_MS = 60_000;
const MOST_OUTPUT_BYTES = 16 << 20;

async function runCommand(
  host: PodHost,
  request: FastifyRequest,
  reply: FastifyReply,
  uid: string,
): Promise<FastifyReply> {
  const { namespace, pod, container } = request.params as Record<'namespace' | 'pod' | 'container', string>;
  const { cmd } = request.query as { cmd?: string };
  if (cmd === undefined || cmd === '') throw newBadRequest('the parameter cmd must name the command');
  const id = await host.resolveContainer(namespace, pod, uid, container);
  const { PassThrough } = await import('node:stream');
  const output = new PassThrough();
  const chunks: Buffer[] = [];
  let size = 0;
  output.on('data', (chunk: Buffer) => {
    size += chunk.length;
    // The rest is read and dropped, so that the command can end.
    if (size <= MOST_OUTPUT_BYTES) chunks.push(chunk);
  });
  await host.exec(id, cmd.split(' '), {
    stdout: output,
    stderr: output,
    tty: false,
    signal: AbortSignal.timeout(RUN_TIMEOUT_MS),
  });
  return reply.type(TEXT_TYPE).send(Buffer.concat(chunks));
}

/** Files below the directory only, whatever the path and the links in it say. */
async function serveFile(directory: string, path: string, reply: FastifyReply): Promise<FastifyReply> {
  const root = await realpath(directory);
  const file = await realpath(join(root, path)).catch(() => undefined);
  if (file === undefined || (file !== root && !file.startsWith(`${root}/`)))
    throw newNotFound({ group: '', resource: 'logs' }, path);
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
