/** Registers the metrics of the admission chain and of webhooks under their names in kube-apiserver. */
import type { Histogram, MetricsRegistry } from '../../../api/component/metrics.ts';
import type { AdmissionAttributes } from './admission.ts';
import type { ChainMetrics, Observe } from './chain.ts';
import type { PodSecurityMetrics } from './pod-security/pod-security.ts';
import type { WebhookMetrics } from './webhook/dispatcher.ts';

/** Users choose versions in labels of namespaces, so all versions that are newer than this server share one label value. */
const NEWEST_MINOR = 36;
const CONTROLLER_BUCKETS = [0.005, 0.025, 0.1, 0.5, 1, 2.5];
const WEBHOOK_BUCKETS = [0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25];

/** Registers the durations of plugins and of whole steps, in seconds, with the labels of kube-apiserver. */
export function chainMetrics(registry: MetricsRegistry): ChainMetrics {
  const durations = registry.histogram({
    name: 'apiserver_admission_controller_admission_duration_seconds',
    help: 'Time that an admission plugin took.',
    labels: ['name', 'type', 'operation', 'rejected'],
    buckets: CONTROLLER_BUCKETS,
  });
  const steps = registry.histogram({
    name: 'apiserver_admission_step_admission_duration_seconds',
    help: 'Time that all admission plugins took together.',
    labels: ['type', 'operation', 'rejected'],
    buckets: CONTROLLER_BUCKETS,
  });
  return {
    plugin: (name, type, operation) => observer((rejected) => durations.with(name, type, operation, rejected)),
    step: (type, operation) => observer((rejected) => steps.with(type, operation, rejected)),
  };
}

/** Returns an observer that keeps its two series. Each series is created by the first call that it counts. */
function observer(series: (rejected: string) => Histogram): Observe {
  let refused: Histogram | undefined;
  let passed: Histogram | undefined;
  return (rejected, seconds) => {
    if (rejected) (refused ??= series('true')).observe(seconds);
    else (passed ??= series('false')).observe(seconds);
  };
}

/** Registers the counters of evaluations, exemptions and errors of Pod Security. */
export function podSecurityMetrics(registry: MetricsRegistry): PodSecurityMetrics {
  const about = ['request_operation', 'resource', 'subresource'];
  const evaluations = registry.counter({
    name: 'pod_security_evaluations_total',
    help: 'Evaluations of pods and pod templates against a level of Pod Security.',
    labels: ['decision', 'policy_level', 'policy_version', 'mode', ...about],
  });
  const exemptions = registry.counter({
    name: 'pod_security_exemptions_total',
    help: 'Pods and pod templates that are exempt from Pod Security.',
    labels: about,
  });
  const labelsOf = ({ operation, resource, subresource }: AdmissionAttributes): string[] => [
    operation.toLowerCase(),
    resource.resource === 'pods' ? 'pod' : 'controller',
    subresource,
  ];
  return {
    evaluated(decision, { level, version, minor }, mode, attributes) {
      const shown = version === 'latest' || minor <= NEWEST_MINOR ? version : 'future';
      evaluations.with(decision, level, shown, mode, ...labelsOf(attributes)).inc();
    },
    exempted: (attributes) => exemptions.with(...labelsOf(attributes)).inc(),
  };
}

/** Registers durations (seconds), requests, rejections and calls that failed open, per webhook. */
export function webhookMetrics(registry: MetricsRegistry): WebhookMetrics {
  const durations = registry.histogram({
    name: 'apiserver_admission_webhook_admission_duration_seconds',
    help: 'Time that an admission webhook took.',
    labels: ['name', 'type', 'operation', 'rejected'],
    buckets: WEBHOOK_BUCKETS,
  });
  const requests = registry.counter({
    name: 'apiserver_admission_webhook_request_total',
    help: 'Calls of admission webhooks by the HTTP status code of their result.',
    labels: ['name', 'type', 'operation', 'code', 'rejected'],
  });
  const rejections = registry.counter({
    name: 'apiserver_admission_webhook_rejection_count',
    help: 'Requests that an admission webhook, or a failed call of it, has refused.',
    labels: ['name', 'type', 'operation', 'error_type', 'rejection_code'],
  });
  const open = registry.counter({
    name: 'apiserver_admission_webhook_fail_open_count',
    help: 'Requests that were admitted although a webhook could not be called.',
    labels: ['name', 'type'],
  });
  return {
    rejected: ({ name, type, operation, error_type, rejection_code }) =>
      rejections.with(name, type, operation, error_type, rejection_code).inc(),
    observe({ name, type, operation, rejected, code }, seconds) {
      durations.with(name, type, operation, rejected).observe(seconds);
      requests.with(name, type, operation, code, rejected).inc();
    },
    failedOpen: ({ name, type }) => open.with(name, type).inc(),
  };
}
