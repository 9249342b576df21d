/** Records requests as metrics. */
import type { Clock } from '../../api/machinery/clock.ts';
import { type Counter, type Gauge, type Histogram, type MetricsRegistry } from '../../api/component/metrics.ts';
import type { Rest } from '../model/rest.ts';
import { isLongRunning } from './long-running.ts';
import { sendMetrics, type PathHandlers } from './path-handlers.ts';
import { methodNotAllowed } from './router.ts';
import type { ApiRequest } from './request.ts';

/** Receives requests for metrics; each function must be cheap and must not throw. */
export interface RequestObserver {
  /** Called when a long-running request begins: a watch, a log or a tunnel. `done` follows. */
  longRunning(request: ApiRequest): void;
  /** Called when the handler chain has ended. The handler of a stream returns when the stream ends. */
  done(request: ApiRequest): void;
  /** Returns the function that counts each event of a watch, with its size in bytes. */
  watched(rest: Rest): (bytes: number) => void;
  /** Called when a client used a deprecated path. `removedRelease` is empty if no release is decided. */
  deprecated(request: ApiRequest, removedRelease: string): void;
}

/** The observer of servers without metrics. */
export const noObserver: RequestObserver = {
  longRunning: () => undefined,
  done: () => undefined,
  watched: () => () => undefined,
  deprecated: () => undefined,
};

const LABELS = ['verb', 'dry_run', 'group', 'version', 'resource', 'subresource', 'scope', 'component'];
const WITHOUT_DRY_RUN = LABELS.filter((label) => label !== 'dry_run');
const DURATIONS = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60];
/** The buckets reach up to about the size of the largest accepted body. */
const BODY_SIZES = Array.from({ length: 31 }, (_, step) => 50_000 + step * 100_000);
const EVENT_SIZES = Array.from({ length: 8 }, (_, power) => 1024 * 2 ** power);
const FIELD_VALIDATION: ReadonlySet<string> = new Set(['Ignore', 'Warn', 'Strict']);
const SIZES = [1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

interface Series {
  readonly labels: readonly string[];
  readonly duration: Histogram;
  readonly sli: Histogram;
  readonly sizes: Histogram;
  readonly codes: Map<number, Counter>;
}

/** The series of a resource by verb. Requests in one namespace and those for all namespaces are separate series. */
interface RestSeries {
  readonly inNamespace: Map<string, Series>;
  readonly inNoNamespace: Map<string, Series>;
}

type RequestMetrics = ReturnType<typeof requestMetrics>;

function requestMetrics(registry: MetricsRegistry) {
  return {
    total: registry.counter({
      name: 'apiserver_request_total',
      help: 'Requests by verb, resource and status code.',
      labels: [...LABELS, 'code', 'system_client'],
    }),
    durations: registry.histogram({
      name: 'apiserver_request_duration_seconds',
      help: 'Time in seconds from the arrival of a request to the end of its response.',
      labels: LABELS,
      buckets: DURATIONS,
    }),
    sli: registry.histogram({
      name: 'apiserver_request_sli_duration_seconds',
      help: 'Time in seconds from the arrival of a request to the end of its response, with webhooks and queues.',
      labels: WITHOUT_DRY_RUN,
      buckets: DURATIONS,
    }),
    sizes: registry.histogram({
      name: 'apiserver_response_sizes',
      help: 'Sizes of responses in bytes.',
      labels: WITHOUT_DRY_RUN,
      buckets: SIZES,
    }),
    bodySizes: registry.histogram({
      name: 'apiserver_request_body_size_bytes',
      help: 'Apiserver request body size in bytes broken out by resource and verb.',
      labels: ['group', 'resource', 'verb'],
      buckets: BODY_SIZES,
    }),
    fieldValidation: registry.histogram({
      name: 'field_validation_request_duration_seconds',
      help: 'Response latency distribution in seconds for each field validation value',
      labels: ['field_validation'],
      buckets: DURATIONS,
    }),
    watchEvents: registry.counter({
      name: 'apiserver_watch_events_total',
      help: 'Number of events sent in watch clients',
      labels: ['group', 'version', 'resource'],
    }),
    watchEventSizes: registry.histogram({
      name: 'apiserver_watch_events_sizes',
      help: 'Watch event size distribution in bytes',
      labels: ['group', 'version', 'resource'],
      buckets: EVENT_SIZES,
    }),
    deprecated: registry.gauge({
      name: 'apiserver_requested_deprecated_apis',
      help: 'Deprecated APIs that clients requested, by group, version, resource and the release that removes them.',
      labels: ['group', 'version', 'resource', 'subresource', 'removed_release'],
    }),
    longRunning: registry.gauge({
      name: 'apiserver_longrunning_requests',
      help: 'Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.',
      labels: WITHOUT_DRY_RUN,
    }),
  };
}

function newSeries(metrics: RequestMetrics, request: ApiRequest, verb: string): Series {
  const { info, rest } = request;
  const scope = scopeOf(request);
  const where = rest === undefined ? ['', '', '', ''] : [info.group, info.version, info.resource, info.subresource];
  const dryRun = request.rawQuery.includes('dryRun=All') ? 'All' : '';
  const tail = [...where, scope, 'apiserver'];
  return {
    labels: [verb, dryRun, ...tail],
    duration: metrics.durations.with(verb, dryRun, ...tail),
    sli: metrics.sli.with(verb, ...tail),
    sizes: metrics.sizes.with(verb, ...tail),
    codes: new Map(),
  };
}

/** Registers the metrics of requests with kube-apiserver's names and buckets. */
export function createRequestMetrics(registry: MetricsRegistry, clock: Clock): RequestObserver {
  const metrics = requestMetrics(registry);
  const longRunningGauges = new WeakMap<ApiRequest, Gauge>();
  const byRest = new WeakMap<Rest, RestSeries>();
  const paths = new Map<string, Series>();

  function seriesOf(request: ApiRequest): Series {
    const verb = verbLabel(request);
    const key = request.rawQuery.includes('dryRun')
      ? `${verb} ${request.rawQuery.includes('dryRun=All') ? 'All' : ''}`
      : verb;
    const { rest } = request;
    let byVerb = paths;
    if (rest !== undefined) {
      let restSeries = byRest.get(rest);
      if (restSeries === undefined)
        byRest.set(rest, (restSeries = { inNamespace: new Map(), inNoNamespace: new Map() }));
      byVerb = request.info.namespace === '' ? restSeries.inNoNamespace : restSeries.inNamespace;
    }
    let series = byVerb.get(key);
    if (series === undefined) {
      series = newSeries(metrics, request, verb);
      byVerb.set(key, series);
    }
    return series;
  }

  return {
    longRunning(request) {
      const gauge = metrics.longRunning.with(...longRunningLabels(request));
      gauge.inc();
      longRunningGauges.set(request, gauge);
    },
    done(request) {
      longRunningGauges.get(request)?.inc(-1);
      longRunningGauges.delete(request);
      const series = seriesOf(request);
      let counter = series.codes.get(request.status);
      if (counter === undefined) {
        counter = metrics.total.with(...series.labels, String(request.status), '');
        series.codes.set(request.status, counter);
      }
      counter.inc();
      if (isLongRunning(request.info)) return;
      const seconds = (clock.monotonic() - request.startedMs) / 1000;
      series.duration.observe(seconds);
      series.sli.observe(seconds);
      if (request.responseBytes > 0) series.sizes.observe(request.responseBytes);
      const { info, rest, requestBytes } = request;
      if (requestBytes !== undefined && rest !== undefined)
        metrics.bodySizes.with(info.group, info.resource, info.verb).observe(requestBytes);
      if (FIELD_VALIDATED.has(info.verb) && rest !== undefined)
        metrics.fieldValidation.with(fieldValidation(request)).observe(seconds);
    },
    watched({ info: { group, version, resource } }) {
      const total = metrics.watchEvents.with(group, version, resource);
      const sizes = metrics.watchEventSizes.with(group, version, resource);
      return (bytes) => {
        total.inc();
        sizes.observe(bytes);
      };
    },
    deprecated({ info }, removedRelease) {
      metrics.deprecated.with(info.group, info.version, info.resource, info.subresource, removedRelease).set(1);
    },
  };
}

const FIELD_VALIDATED: ReadonlySet<string> = new Set(['create', 'update', 'patch']);

function fieldValidation(request: ApiRequest): string {
  if (!request.rawQuery.includes('fieldValidation')) return '';
  const value = request.query.get('fieldValidation') ?? '';
  return value === '' || FIELD_VALIDATION.has(value) ? value : 'invalid';
}

/**
 * Returns the labels of a long-running request. Paths without a row in the catalog share one series, so that clients cannot
 * create series.
 */
function longRunningLabels(request: ApiRequest): readonly string[] {
  const { info, rest } = request;
  const where = rest === undefined ? ['', '', '', ''] : [info.group, info.version, info.resource, info.subresource];
  return [verbLabel(request), ...where, scopeOf(request), 'apiserver'];
}

const METHODS: ReadonlySet<string> = new Set(['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'CONNECT']);

/** Returns `GET`, `LIST`, `WATCH`, `APPLY` and others. Unknown methods share one name. */
function verbLabel(request: ApiRequest): string {
  const { info, exchange } = request;
  if (!METHODS.has(exchange.method)) return 'OTHER';
  if (!info.isResource) return exchange.method;
  if (info.verb === 'list') return 'LIST';
  if (info.verb === 'watch') return 'WATCH';
  if (info.verb === 'deletecollection') return 'DELETECOLLECTION';
  if (request.rest?.connect !== undefined) return 'CONNECT';
  if (exchange.method === 'PATCH' && request.header('content-type') === 'application/apply-patch+yaml') return 'APPLY';
  return exchange.method;
}

function scopeOf(request: ApiRequest): string {
  const { info } = request;
  if (!info.isResource) return '';
  if (info.name !== '' || info.verb === 'create') return 'resource';
  return info.namespace === '' ? 'cluster' : 'namespace';
}

/**
 * Serves the metrics in the text format of Prometheus for every method but DELETE. In kube-apiserver, DELETE resets the
 * metrics; here it gets a 405.
 */
export function installMetrics(paths: PathHandlers, registry: MetricsRegistry): void {
  paths.exact('/metrics', (request) => {
    if (request.exchange.method === 'DELETE') throw methodNotAllowed();
    return sendMetrics(request, registry.text());
  });
}
