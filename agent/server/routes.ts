/** Installs the agent's plain HTTP routes: pods, logs, configuration, statistics and submitted pods. */
import { PassThrough } from 'node:stream';
import type { StatisticsPages } from '../resources/statistics/statistics-pages.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Verbosity } from '../../api/component/logging.ts';
import { stringifyJson } from '../../api/codec/json.ts';
import { METRICS_HEADERS } from '../../api/component/metrics.ts';
import { splitTarget } from '../../api/http/request-path.ts';
import { newBadRequest, newStatusError } from '../../api/meta/status-error.ts';
import type { Pod } from '../base/model/pod.ts';
import type { PodHost } from './pod-host.ts';
import { type Signal, SIGNALS } from '../resources/eviction/thresholds.ts';
import type { LocalVolumes } from '../volumes/local-volumes.ts';
import type { SubmittedPods } from '../sources/submitted-source.ts';
import { type CheckpointOptions, installCheckpoint } from './checkpoint.ts';
import { installContainerLogs } from './container-logs.ts';
import { installLocalVolumes } from './local-volumes.ts';
import { commandContainer, wantedStreams } from './streaming/upgrade.ts';
import { installSystemLogs, type SystemLogsOptions } from './system-logs.ts';
import { installZpages, type Zpages } from './zpages.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';
import { quoteText } from '../../api/meta/quote.ts';

/** The data that the routes show, and the flags that disable some of them. */
export interface RoutesOptions {
  readonly host: PodHost;
  readonly statistics: StatisticsPages;
  /** Returns the whole response of `/configz`. */
  readonly config: () => object;
  readonly submitted: SubmittedPods | undefined;
  /** Where the logs of the host are. Absent without `--enable-system-log-handler`. */
  readonly systemLogs: SystemLogsOptions | undefined;
  readonly splitLogStreams: boolean;
  readonly debugHandlers: boolean;
  /** Sets the log verbosity, for `PUT /debug/flags/v`. Absent if `enableDebugFlagsHandler` is off. */
  readonly verbosity: Verbosity | undefined;
  readonly zpages: Zpages;
  /** Returns the report of `/eviction/explain`. The signal is an assumed pressure. */
  readonly explainEviction?: (signal: Signal | undefined) => Promise<object>;
  readonly localVolumes?: Pick<LocalVolumes, 'create' | 'remove'>;
  /** The feature gate ContainerCheckpoint. */
  readonly checkpoint: CheckpointOptions | undefined;
}

/** Installs the routes that all clients may read on port 10255, and authorized clients on port 10250. */
export function installReading(app: FastifyInstance, options: RoutesOptions): void {
  const { host, statistics } = options;
  app.get('/pods', (_request, reply) => reply.send(podList(host.pods())));
  app.get('/pods/', (_request, reply) => reply.send(podList(host.pods())));
  app.all('/metrics', async (_request, reply) => reply.headers(METRICS_HEADERS).send(await statistics.metrics()));
  app.all('/metrics/cadvisor', async (_request, reply) =>
    reply.headers(METRICS_HEADERS).send(await statistics.cadvisor()),
  );
  app.all('/metrics/resource', async (_request, reply) =>
    reply.headers(METRICS_HEADERS).send(await statistics.resource()),
  );
  app.all('/metrics/probes', async (_request, reply) => reply.headers(METRICS_HEADERS).send(await statistics.probes()));
  const summary = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { only_cpu_and_memory: only } = request.query as { only_cpu_and_memory?: string };
    // The kubelet's library indents this page by one space, unlike the other ones.
    return reply.type('application/json').send(stringifyJson(await statistics.summary(only === 'true'), 1));
  };
  app.get('/stats/summary', summary);
  app.post('/stats/summary', summary);
  installRedirects(app, ['/stats/']);
}

/** Installs the routes for authorized clients. Without `debugHandlers`, those of `DEBUGGING_PATHS` respond 405. */
export function installPrivate(app: FastifyInstance, options: RoutesOptions): void {
  const { host, checkpoint, systemLogs, verbosity } = options;
  app.all('/configz', (_request, reply) => reply.header('X-Content-Type-Options', 'nosniff').send(options.config()));
  if (options.debugHandlers) {
    app.get('/runningpods/', async (_request, reply) => reply.send(podList(await host.runningPods())));
    installContainerLogs(app, options);
    installStreams(app, host);
    app.post('/run/:namespace/:pod/:container', (request, reply) => runCommand(host, request, reply, ''));
    app.post('/run/:namespace/:pod/:uid/:container', (request, reply) =>
      runCommand(host, request, reply, (request.params as { uid: string }).uid),
    );
    if (systemLogs === undefined) installDisabled(app, ['/logs/'], 'logs endpoint is disabled.');
    else installSystemLogs(app, systemLogs);
    installDisabled(app, ['/debug/pprof/'], 'profiling endpoint is disabled.');
    if (verbosity === undefined) installDisabled(app, ['/debug/flags/v'], 'flags endpoint is disabled.');
    else app.all('/debug/flags/v', (request, reply) => changeVerbosity(verbosity, request, reply));
    if (checkpoint !== undefined) installCheckpoint(app, host, checkpoint);
    installRedirects(app, ['/runningpods/', '/logs/', '/debug/pprof/']);
    // As in the kubelet, `/logs` is listed only where it is disabled.
    const disabled = systemLogs === undefined ? ['/logs'] : [];
    installZpages(app, options.zpages, ['/configz', '/debug', '/healthz', '/metrics', ...disabled]);
  } else installDebuggingDisabled(app);
  const { explainEviction } = options;
  if (explainEviction !== undefined) {
    app.get('/eviction/explain', async (request, reply) => {
      const { signal: asked = '' } = request.query as { signal?: string };
      const signal = SIGNALS.find((name) => name === asked);
      if (asked !== '' && signal === undefined) throw newBadRequest(`unsupported eviction signal ${asked}`);
      return reply.type('application/json').send(await explainEviction(signal));
    });
  }
  if (options.localVolumes !== undefined) installLocalVolumes(app, options.localVolumes);
  if (options.submitted !== undefined) installSubmitted(app, options.submitted);
}

const DEBUGGING_PATHS = [
  '/run/',
  '/exec/',
  '/attach/',
  '/portForward/',
  '/containerLogs/',
  '/runningpods/',
  '/debug/pprof/',
  '/logs/',
];

/** Installs responses that debugging is disabled, for the read-only port and without `--enable-debugging-handlers`. */
export function installDebuggingDisabled(app: FastifyInstance): void {
  installDisabled(app, DEBUGGING_PATHS, 'Debug endpoints are disabled.');
  installRedirects(app, DEBUGGING_PATHS);
}

/** Redirects from these paths without their last slash, as the server of the kubelet does. */
function installRedirects(app: FastifyInstance, paths: readonly string[]): void {
  for (const path of paths)
    app.all(path.slice(0, -1), (request, reply) => {
      const { query } = splitTarget(request.url);
      reply.code(307).header('location', `${path}${query === '' ? '' : `?${query}`}`);
      if (request.method !== 'GET' && request.method !== 'HEAD') return reply.send();
      return reply.type('text/html; charset=utf-8').send(`<a href="${path}">Temporary Redirect</a>.\n\n`);
    });
}

function installDisabled(app: FastifyInstance, paths: readonly string[], message: string): void {
  const refuse = (): never => {
    throw newStatusError(405, 'MethodNotAllowed', `${message}\n`);
  };
  for (const path of paths) app.all(path.endsWith('/') ? `${path}*` : path, refuse);
}

/**
 * Sets the verbosity from the body of the request. Responds 406 for a method other than PUT, and 400 for a body that is not a
 * number of at most nine digits.
 */
function changeVerbosity(verbosity: Verbosity, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  // `reply.type` would add a charset.
  reply.header('Content-Type', 'text/plain').header('X-Content-Type-Options', 'nosniff');
  if (request.method !== 'PUT') return reply.code(406).send('unsupported http method\n');
  const text = (request.body as Buffer | undefined)?.toString('utf8') ?? '';
  if (!/^\d{1,9}$/.test(text))
    return reply.code(400).send(`strconv.ParseUint: parsing ${quoteText(text)}: invalid syntax\n`);
  verbosity.level = Number(text);
  return reply.send(`successfully set klog.logging.verbosity to ${text}\n`);
}

/**
 * Installs the responses to streaming requests without an upgrade. A request for no stream, and a missing pod or container, are
 * reported first.
 */
function installStreams(app: FastifyInstance, host: PodHost): void {
  type Params = Readonly<Record<'namespace' | 'pod' | 'uid' | 'container', string | undefined>>;
  const method = ['GET', 'POST'];
  const refuse = (): never => {
    throw newStatusError(500, 'InternalError', 'Upgrade request required\n');
  };
  const command = async (action: 'exec' | 'attach', request: FastifyRequest): Promise<never> => {
    const { namespace = '', pod = '', uid = '', container = '' } = request.params as Params;
    wantedStreams(new URLSearchParams(splitTarget(request.url).query));
    await commandContainer(host, { action, namespace, pod, uid, container });
    return refuse();
  };
  const forward = async (request: FastifyRequest): Promise<never> => {
    const { namespace = '', pod = '', uid = '' } = request.params as Params;
    await host.resolveSandbox(namespace, pod, uid);
    return refuse();
  };
  for (const action of ['exec', 'attach'] as const) {
    const handler = (request: FastifyRequest): Promise<never> => command(action, request);
    app.route({ method, url: `/${action}/:namespace/:pod/:container`, handler });
    app.route({ method, url: `/${action}/:namespace/:pod/:uid/:container`, handler });
  }
  app.route({ method, url: '/portForward/:namespace/:pod', handler: forward });
  app.route({ method, url: '/portForward/:namespace/:pod/:uid', handler: forward });
}

/** The methods that the kubelet allows on the read-only port, by patterns of paths. */
const READING_METHODS: readonly (readonly [RegExp, string])[] = [
  [/^\/pods\/?$/, 'GET'],
  [/^\/stats\/summary$/, 'GET, POST'],
];
/** The methods that the kubelet allows on the port with TLS, by patterns of paths. */
const METHODS: typeof READING_METHODS = [
  ...READING_METHODS,
  [/^\/(runningpods\/|logs\/.*)$/, 'GET'],
  [/^\/containerLogs(\/[^/]+){3}$/, 'GET'],
  [/^\/run(\/[^/]+){3,4}$/, 'POST'],
  [/^\/checkpoint(\/[^/]+){3}$/, 'POST'],
  [/^\/localVolumes\/[^/]+$/, 'DELETE, PUT'],
  [/^\/((exec|attach)(\/[^/]+){3,4}|portForward(\/[^/]+){2,3})$/, 'GET, POST'],
];
/** The paths, on each of the two ports, for which the first of the kubelet's two routers responds 404. */
const READING_ROOTS = /^\/(pods|stats)(\/|$)/;
const ROOTS = /^\/(pods|stats|runningpods|containerLogs|run|checkpoint|exec|attach|portForward)(\/|$)/;

interface PlainAnswer {
  readonly code: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const plain = (code: number, body: string, headers: PlainAnswer['headers'] = {}): PlainAnswer => ({
  ...{ code, body },
  headers: { 'Content-Type': TEXT_TYPE, ...headers },
});

/**
 * Returns what the kubelet answers to a request without a route: the allowed methods of its path, or one of two texts, because
 * the kubelet has two routers.
 */
export function answerToUnknown(method: string, path: string, isReadOnly: boolean): PlainAnswer {
  const allowed = (isReadOnly ? READING_METHODS : METHODS).find(([pattern]) => pattern.test(path))?.[1];
  if (allowed !== undefined && !allowed.split(', ').includes(method))
    return plain(405, '405: Method Not Allowed', { Allow: allowed });
  return (isReadOnly ? READING_ROOTS : ROOTS).test(path)
    ? plain(404, '404: Page Not Found')
    : plain(404, '404 page not found\n', { 'X-Content-Type-Options': 'nosniff' });
}

/**
 * Returns the pods as a PodList. Its items do not repeat their version and kind, and an empty list is null, as Go writes it.
 */
function podList(pods: readonly Pod[]): object {
  const items = pods.map(({ apiVersion: _version, kind: _kind, ...pod }) => pod);
  return { kind: 'PodList', apiVersion: 'v1', metadata: {}, items: items.length === 0 ? null : items };
}

/** Serves `/podManifests`, the pods that are submitted to this node. PUT and POST replace a pod of the same name. */
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

const RUN_TIMEOUT_MS = 60_000;
const MAX_OUTPUT_BYTES = 16 << 20;

async function runCommand(
  host: PodHost,
  request: FastifyRequest,
  reply: FastifyReply,
  uid: string,
): Promise<FastifyReply> {
  const { namespace, pod, container } = request.params as Record<'namespace' | 'pod' | 'container', string>;
  const { cmd } = request.query as { cmd?: string };
  if (cmd === undefined || cmd === '') throw newBadRequest('the parameter cmd must name the command');
  const id = await commandContainer(host, { action: 'run', namespace, pod, uid, container });
  const collect = (): { readonly stream: NodeJS.WritableStream; readonly chunks: Buffer[] } => {
    const stream = new PassThrough();
    const chunks: Buffer[] = [];
    let size = 0;
    stream.on('data', (chunk: Buffer) => {
      size += chunk.length;
      // The rest is read and dropped, so that the command can end.
      if (size <= MAX_OUTPUT_BYTES) chunks.push(chunk);
    });
    return { stream, chunks };
  };
  const [stdout, stderr] = [collect(), collect()];
  const signal = AbortSignal.timeout(RUN_TIMEOUT_MS);
  const io = { stdout: stdout.stream, stderr: stderr.stream, tty: false, signal };
  const exitCode = await host.exec(id, cmd.split(' '), io);
  if (exitCode !== 0) {
    const errors = Buffer.concat(stderr.chunks).toString();
    throw newStatusError(500, 'InternalError', `command '${cmd}' exited with ${exitCode}: ${errors}`);
  }
  // The kubelet sends the type of JSON, whatever the command wrote.
  return reply.type('application/json').send(Buffer.concat([...stdout.chunks, ...stderr.chunks]));
}
