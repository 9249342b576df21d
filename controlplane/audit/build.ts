/** Audit from the flags: policy and backends. `undefined` where nothing is to be audited. Called where the control plane is put together. */
import { readFile } from 'node:fs/promises';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { WebhookClient } from '../authentication/webhook-client.ts';
import { webhookFromFile } from '../authentication/webhook-file.ts';
import type { ControlPlaneFlags } from '../options.ts';
import { type Audit, type AuditBackend, createAudit, droppedCounter } from './audit.ts';
import { logBackend } from './log-backend.ts';
import { parseAuditPolicy } from './policy.ts';
import { truncating } from './truncation.ts';
import { WebhookBackend } from './webhook-backend.ts';

const MEGABYTE = 1024 * 1024;
const DAY_MS = 86_400_000;

export interface AuditParts {
  readonly flags: ControlPlaneFlags;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
}

export async function buildAudit(parts: AuditParts): Promise<Audit | undefined> {
  const { flags, clock, logger, metrics } = parts;
  if (flags.auditPolicyFile === '') {
    if (flags.auditLogPath !== '' || flags.auditWebhookConfigFile !== '')
      logger.warn({}, 'Nothing is audited: --audit-policy-file is missing');
    return undefined;
  }
  const policy = parseAuditPolicy(await readFile(flags.auditPolicyFile, 'utf8'), flags.auditPolicyFile);
  const backends: AuditBackend[] = [];
  if (flags.auditLogPath !== '') backends.push(fileBackend(parts));
  if (flags.auditWebhookConfigFile !== '') backends.push(await callBackend(parts));
  if (backends.length === 0) return undefined;
  return createAudit({ policy, backends, clock, metrics });
}

function fileBackend({ flags, clock, logger, metrics }: AuditParts): AuditBackend {
  const onDropped = droppedCounter(metrics, 'log');
  const backend = logBackend({
    path: flags.auditLogPath,
    maxSizeBytes: flags.auditLogMaxsize * MEGABYTE,
    maxBackups: flags.auditLogMaxbackup,
    maxAgeMs: flags.auditLogMaxage * DAY_MS,
    compress: flags.auditLogCompress,
    clock,
    logger,
    onDropped,
  });
  if (!flags.auditLogTruncateEnabled) return backend;
  return truncating(backend, { maxEventBytes: flags.auditLogTruncateMaxEventSize, onDropped });
}

async function callBackend({ flags, clock, logger, metrics }: AuditParts): Promise<AuditBackend> {
  const onDropped = droppedCounter(metrics, 'webhook');
  const backend = new WebhookBackend({
    endpoint: await webhookFromFile(flags.auditWebhookConfigFile, clock),
    client: new WebhookClient('kube-apiserver-audit'),
    clock,
    logger,
    onDropped,
    bufferSize: flags.auditWebhookBatchBufferSize,
    maxBatchSize: flags.auditWebhookMode === 'batch' ? flags.auditWebhookBatchMaxSize : 1,
    maxWaitMs: flags.auditWebhookBatchMaxWait,
    initialBackoffMs: flags.auditWebhookInitialBackoff,
    qps: flags.auditWebhookBatchThrottleEnable ? flags.auditWebhookBatchThrottleQps : 0,
    burst: flags.auditWebhookBatchThrottleBurst,
  });
  if (!flags.auditWebhookTruncateEnabled) return backend;
  return truncating(backend, { maxEventBytes: flags.auditWebhookTruncateMaxEventSize, onDropped });
}
