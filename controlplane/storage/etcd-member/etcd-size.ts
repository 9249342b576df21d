/** Keeps the size of etcd's database in a metric, for each etcd cluster that a control plane uses. */
import type { Logger } from '../../../api/component/logger.ts';
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { GrpcTls } from '../../../api/grpc/grpc-channel.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import { EtcdError } from '../etcd/etcd-client.ts';
import { storageSize } from '../size-metric.ts';
import { withMembers } from './etcd-membership.ts';

/** A cluster whose size is measured. */
export interface MeasuredEtcd {
  /** Returns the URL of the member that the storage uses now. */
  readonly url: () => string;
  readonly tls: GrpcTls;
}

interface SizeOptions {
  /** The etcd of `--etcd-servers`, and then those of `--etcd-servers-overrides`. */
  readonly clusters: readonly MeasuredEtcd[];
  readonly intervalMs: number;
  readonly metrics: MetricsRegistry;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** Measures in turns until the signal aborts. Never rejects: a cluster that does not answer keeps its last value. */
export async function followSizes({
  clusters,
  intervalMs,
  metrics,
  clock,
  logger,
  signal,
}: SizeOptions): Promise<void> {
  const size = storageSize(metrics);
  const measure = async (): Promise<void> => {
    for (const [at, { url, tls }] of clusters.entries()) {
      try {
        const { databaseBytes } = await withMembers(url(), tls, (etcd) => etcd.status());
        size.with(`etcd-${at}`).set(databaseBytes);
      } catch (error) {
        if (!(error instanceof EtcdError)) throw error;
        logger.debug({ err: error }, 'The size of etcd cannot be read now');
      }
    }
  };
  const onError = (error: unknown): void => logger.error({ err: error }, 'The size of etcd cannot be measured');
  await periodically(measure, { clock, periodMs: intervalMs, signal, onError });
}
