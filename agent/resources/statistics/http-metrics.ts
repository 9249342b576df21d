/**
 * Counts the requests to the agent's server by method, kind of path and port. Paths are reduced to their first segment, those
 * below `/metrics` to two, and unknown ones to `other`, which bounds the number of series.
 */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Clock } from '../../../api/machinery/clock.ts';

export interface HttpObserver {
  /** Called at the start of a request. Returns the function to call at its end. */
  (request: ObservedRequest): () => void;
}

/** A request to the agent's server. */
interface ObservedRequest {
  readonly method: string;
  readonly path: string;
  readonly serverType: 'readwrite' | 'readonly';
  /** What a WebSocket is opened for. */
  readonly webSocket?: 'exec' | 'attach' | 'portforward' | undefined;
}

const LONG_RUNNING = new Set(['exec', 'attach', 'portforward', 'debug']);
const KNOWN_PATHS = new Set([
  'attach',
  'checkpoint',
  'configz',
  'containerlogs',
  'eviction',
  'exec',
  'flagz',
  'healthz',
  'logs',
  'metrics',
  'metrics/cadvisor',
  'metrics/probes',
  'metrics/resource',
  'podmanifests',
  'pods',
  'portforward',
  'run',
  'runningpods',
  'stats',
  'statusz',
]);

function pathLabel(path: string): string {
  const parts = path
    .toLowerCase()
    .split('/')
    .filter((part) => part !== '');
  const label = parts[0] === 'metrics' ? parts.slice(0, 2).join('/') : (parts[0] ?? '');
  return KNOWN_PATHS.has(label)
    ? label === 'containerlogs'
      ? 'containerLogs'
      : label === 'portforward'
        ? 'portForward'
        : label
    : 'other';
}

/** Registers the kubelet's metrics of its server. The result is called for each request. */
export function createHttpObserver(metrics: MetricsRegistry, clock: Clock): HttpObserver {
  const labels = ['long_running', 'method', 'path', 'server_type'];
  const total = metrics.counter({
    name: 'kubelet_http_requests_total',
    help: 'Number of the http requests received since the server started',
    labels,
  });
  const inFlight = metrics.gauge({
    name: 'kubelet_http_inflight_requests',
    help: 'Number of the inflight http requests',
    labels,
  });
  const durations = metrics.histogram({
    name: 'kubelet_http_requests_duration_seconds',
    help: 'Duration in seconds to serve http requests',
    labels,
  });
  const webSockets = metrics.counter({
    name: 'kubelet_websocket_streaming_requests_total',
    help: 'Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.',
    labels: ['subresource'],
  });
  return ({ method, path, serverType, webSocket }) => {
    if (webSocket !== undefined) webSockets.with(webSocket).inc();
    const label = pathLabel(path);
    const values = [String(LONG_RUNNING.has(label.toLowerCase())), method, label, serverType];
    const fromMs = clock.monotonic();
    total.with(...values).inc();
    inFlight.with(...values).inc();
    return () => {
      inFlight.with(...values).inc(-1);
      durations.with(...values).observe((clock.monotonic() - fromMs) / 1000);
    };
  };
}
