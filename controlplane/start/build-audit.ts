/** Builds the audit policy and backends from the flags. */
import { stringifyJson } from '../../api/codec/json.ts';
import { readFile } from 'node:fs/promises';
import { clientMetrics } from '../../api/client/client-metrics.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { WebhookClient } from '../security/webhooks/webhook-client.ts';
import { webhookFromFile } from '../security/webhooks/webhook-file.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import { StartError } from '../model/start-error.ts';
import { auditMetrics, type Audit, type AuditBackend, createAudit, droppedCounter } from '../server/audit/audit.ts';
import { BatchingBackend, type BatchOptions } from '../server/audit/batching.ts';
import { blocking } from '../server/audit/blocking.ts';
import type { EventSink } from '../server/audit/event-sink.ts';
import { legacyLine } from '../server/audit/legacy-format.ts';
import { logSink } from '../server/audit/log-sink.ts';
import { parseAuditPolicy } from '../server/audit/policy.ts';
import { truncating } from '../server/audit/truncation.ts';
import { WebhookSink } from '../server/audit/webhook-sink.ts';

const MEGABYTE = 1024 * 1024;
const DAY_MS = 86_400_000;

/** What the backends are built from. */
interface AuditParts {
  readonly flags: ControlPlaneFlags;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
}

/**
 * Builds the audit sink from the flags. Resolves to `undefined` without a policy or without a backend. Rejects if the policy
 * file or the webhook's file cannot be read or parsed, or if the limits of sizes contradict each other.
 */
export async function buildAudit(parts: AuditParts): Promise<Audit | undefined> {
  const { flags, clock, logger, metrics } = parts;
  auditMetrics(metrics);
  if (flags.auditPolicyFile === '') {
    if (flags.auditLogPath !== '' || flags.auditWebhookConfigFile !== '')
      logger.warn({}, 'Audit is disabled because --audit-policy-file is not set');
    return undefined;
  }
  const policy = parseAuditPolicy(await readFile(flags.auditPolicyFile, 'utf8'), flags.auditPolicyFile);
  checkSizes('log', flags.auditLogTruncateMaxEventSize, flags.auditLogTruncateMaxBatchSize);
  checkSizes('webhook', flags.auditWebhookTruncateMaxEventSize, flags.auditWebhookTruncateMaxBatchSize);
  const backends: AuditBackend[] = [];
  if (flags.auditLogPath !== '') backends.push(logBackend(parts));
  if (flags.auditWebhookConfigFile !== '') backends.push(await webhookBackend(parts));
  if (backends.length === 0) return undefined;
  return createAudit({ policy, backends, clock, metrics });
}

function checkSizes(plugin: string, maxEventBytes: number, maxBatchBytes: number): void {
  const name = `--audit-${plugin}-truncate-max`;
  if (maxEventBytes <= 0) throw new StartError(`${name}-event-size must be above 0`);
  if (maxBatchBytes < maxEventBytes) throw new StartError(`${name}-batch-size must not be below ${name}-event-size`);
}

function logBackend(parts: AuditParts): AuditBackend {
  const { flags, clock, logger, metrics } = parts;
  const onDropped = droppedCounter(metrics, 'log');
  const file = logSink({
    path: flags.auditLogPath,
    maxSizeBytes: flags.auditLogMaxsize * MEGABYTE,
    maxBackups: flags.auditLogMaxbackup,
    maxAgeMs: flags.auditLogMaxage * DAY_MS,
    compress: flags.auditLogCompress,
    format: flags.auditLogFormat === 'legacy' ? legacyLine : (event) => stringifyJson(event),
    clock,
  });
  const sink = flags.auditLogTruncateEnabled
    ? truncating(file, {
        maxEventBytes: flags.auditLogTruncateMaxEventSize,
        maxBatchBytes: flags.auditLogTruncateMaxBatchSize,
        onDropped,
      })
    : file;
  return inMode(flags.auditLogMode, sink, {
    bufferSize: flags.auditLogBatchBufferSize,
    maxBatchSize: flags.auditLogBatchMaxSize,
    maxWaitMs: flags.auditLogBatchMaxWait,
    qps: flags.auditLogBatchThrottleEnable ? flags.auditLogBatchThrottleQps : 0,
    burst: flags.auditLogBatchThrottleBurst,
    clock,
    logger,
    onDropped,
  });
}

async function webhookBackend({ flags, clock, logger, metrics }: AuditParts): Promise<AuditBackend> {
  const onDropped = droppedCounter(metrics, 'webhook');
  const webhook = new WebhookSink({
    endpoint: await webhookFromFile(flags.auditWebhookConfigFile, clock),
    client: new WebhookClient('kube-apiserver-audit', { measured: { observer: clientMetrics(metrics), clock } }),
    clock,
    initialBackoffMs: flags.auditWebhookInitialBackoff,
  });
  const sink = flags.auditWebhookTruncateEnabled
    ? truncating(webhook, {
        maxEventBytes: flags.auditWebhookTruncateMaxEventSize,
        maxBatchBytes: flags.auditWebhookTruncateMaxBatchSize,
        onDropped,
      })
    : webhook;
  return inMode(flags.auditWebhookMode, sink, {
    bufferSize: flags.auditWebhookBatchBufferSize,
    maxBatchSize: flags.auditWebhookBatchMaxSize,
    maxWaitMs: flags.auditWebhookBatchMaxWait,
    qps: flags.auditWebhookBatchThrottleEnable ? flags.auditWebhookBatchThrottleQps : 0,
    burst: flags.auditWebhookBatchThrottleBurst,
    clock,
    logger,
    onDropped,
  });
}

function inMode(mode: string, sink: EventSink, options: BatchOptions): AuditBackend {
  if (mode === 'batch') return new BatchingBackend(sink, options);
  return blocking(sink, { ...options, isStrict: mode === 'blocking-strict' });
}
