/** The metrics of the name server, with the names and labels that dashboards for CoreDNS read. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { CacheObserver } from './response-cache.ts';

interface AnsweredQuery {
  readonly transport: 'udp' | 'tcp';
  readonly client: string;
  readonly zone: string;
  readonly type: string;
  readonly code: number;
  readonly seconds: number;
}

/** Counts queries and look-ups in the cache. */
export interface DnsObserver {
  answered(query: AnsweredQuery): void;
  readonly cache: CacheObserver;
}

const SERVER = 'dns://:53';
const TYPES: ReadonlySet<string> = new Set(
  'A AAAA CNAME DNSKEY DS HTTPS MX NAPTR NS PTR SOA SRV SVCB TXT ANY'.split(' '),
);
const CODES = ['NOERROR', 'FORMERR', 'SERVFAIL', 'NXDOMAIN', 'NOTIMP', 'REFUSED'];
const BUCKETS = Array.from({ length: 16 }, (_, power) => 0.000_25 * 2 ** power);

/** Registers the metrics of CoreDNS' plugins `prometheus` and `cache`. `cacheSize` is read at each scrape. */
export function dnsMetrics(metrics: MetricsRegistry, cacheSize: () => number): DnsObserver {
  const requests = metrics.counter({
    name: 'coredns_dns_requests_total',
    help: 'Counter of DNS requests made per zone, protocol and family.',
    labels: ['server', 'zone', 'view', 'proto', 'family', 'type'],
  });
  const responses = metrics.counter({
    name: 'coredns_dns_responses_total',
    help: 'Counter of response status codes.',
    labels: ['server', 'zone', 'view', 'rcode', 'plugin'],
  });
  const durations = metrics.histogram({
    name: 'coredns_dns_request_duration_seconds',
    help: 'Histogram of the time (in seconds) each request took per zone.',
    labels: ['server', 'zone', 'view'],
    buckets: BUCKETS,
  });
  const hits = metrics.counter({
    name: 'coredns_cache_hits_total',
    help: 'The count of cache hits.',
    labels: ['server', 'type', 'zones', 'view'],
  });
  const misses = metrics
    .counter({
      name: 'coredns_cache_misses_total',
      help: 'The count of cache misses.',
      labels: ['server', 'zones', 'view'],
    })
    .with(SERVER, '.', '');
  const entries = metrics
    .gauge({
      name: 'coredns_cache_entries',
      help: 'The number of elements in the cache.',
      labels: ['server', 'zones', 'view'],
    })
    .with(SERVER, '.', '');
  metrics.collect(() => entries.set(cacheSize()));
  return {
    answered({ transport, client, zone, type, code, seconds }) {
      const family = client.includes(':') ? '2' : '1';
      requests.with(SERVER, zone, '', transport, family, TYPES.has(type) ? type : 'other').inc();
      const plugin = zone === '.' ? 'forward' : 'kubernetes';
      responses.with(SERVER, zone, '', CODES[code] ?? 'other', plugin).inc();
      durations.with(SERVER, zone, '').observe(seconds);
    },
    cache: {
      hit: (type) => hits.with(SERVER, type, '.', '').inc(),
      miss: () => misses.inc(),
    },
  };
}
