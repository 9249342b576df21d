/** Registers the metrics of the agent's own certificates: how long they last, failed renewals and the life of replaced ones. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Clock } from '../../../api/machinery/clock.ts';

/** Observes one certificate that is renewed. */
export interface CertificateObserver {
  /** Reports when the certificate in use expires, in wall-clock milliseconds; `undefined` if there is none. */
  inUse(notAfterMs: number | undefined): void;
  replaced(livedMs: number): void;
  failed(): void;
}

/** The observers of the two certificates: that for requests to the API server, and that of the agent's server. */
export interface CertificateObservers {
  readonly client: CertificateObserver;
  readonly server: CertificateObserver;
}

const MINUTE_S = 60;
const HOUR_S = 60 * MINUTE_S;
const DAY_S = 24 * HOUR_S;
const WEEK_S = 7 * DAY_S;
const MONTH_S = 30 * DAY_S;
const YEAR_S = 365 * DAY_S;
const LIVES = [MINUTE_S, HOUR_S, 4 * HOUR_S, 8 * HOUR_S, 12 * HOUR_S, DAY_S, 4 * DAY_S].concat([
  WEEK_S,
  MONTH_S,
  3 * MONTH_S,
  6 * MONTH_S,
  YEAR_S,
  2 * YEAR_S,
  4 * YEAR_S,
]);

/** Registers the kubelet's `certificate_manager` metrics. A certificate that is not used has a lifetime of +Inf. */
export function certificateMetrics(metrics: MetricsRegistry, clock: Clock): CertificateObservers {
  const lifetime = (which: 'client' | 'server', called: string): ((notAfterMs: number | undefined) => void) => {
    const gauge = metrics
      .gauge({
        name: `kubelet_certificate_manager_${which}_ttl_seconds`,
        help: `Gauge of the shortest TTL (time-to-live) of the Kubelet's ${called} certificate. The value is in seconds until certificate expiry (negative if already expired). If ${called} certificate is invalid or unused, the value will be +INF.`,
      })
      .with();
    let current: number | undefined;
    metrics.collect(() =>
      gauge.set(current === undefined ? Number.POSITIVE_INFINITY : Math.trunc((current - clock.now()) / 1000)),
    );
    return (notAfterMs) => (current = notAfterMs);
  };
  const failures = (name: string) => metrics.counter({ name, help: 'Counter of certificate renewal errors.' }).with();
  const clientFailures = failures('kubelet_certificate_manager_client_expiration_renew_errors');
  const serverFailures = failures('kubelet_server_expiration_renew_errors');
  const lives = metrics
    .histogram({
      name: 'kubelet_certificate_manager_server_rotation_seconds',
      help: 'Histogram of the number of seconds the previous certificate lived before being rotated.',
      buckets: LIVES,
    })
    .with();
  return {
    client: {
      inUse: lifetime('client', 'client'),
      replaced: () => undefined,
      failed: () => clientFailures.inc(),
    },
    server: {
      inUse: lifetime('server', 'serving'),
      replaced: (livedMs) => lives.observe(livedMs / 1000),
      failed: () => serverFailures.inc(),
    },
  };
}
