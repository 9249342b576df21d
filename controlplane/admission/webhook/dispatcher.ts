/**
 * Calls one webhook and judges what comes of it: failure policy, timeout, warnings, audit annotations, metrics. Used by
 * the mutating and the validating plugin, which differ only in order and in what they do with a patch.
 */
import { newForbidden, newInternalError, isStatusError } from '../../../api/meta/status-error.ts';
import { WebhookCallError, withTimeout, type WebhookClient } from '../../authentication/webhook-client.ts';
import type { AdmissionAttributes } from '../admission.ts';
import { endpointOf, type EndpointOptions } from './endpoint.ts';
import type { RegisteredWebhook, Webhook } from './matching.ts';
import { deniedError, readAnswer, REVIEW_VERSIONS, reviewOf, type ReviewResult, type ReviewView } from './review.ts';

export interface WebhookMetrics {
  /** `apiserver_admission_webhook_rejection_count`. */
  rejected(labels: {
    name: string;
    operation: string;
    type: 'admit' | 'validating';
    error_type: string;
    rejection_code: string;
  }): void;
  /** `apiserver_admission_webhook_admission_duration_seconds`. */
  observe(
    labels: { name: string; operation: string; type: 'admit' | 'validating'; rejected: string },
    seconds: number,
  ): void;
  /** `apiserver_admission_webhook_fail_open_count`. */
  failedOpen(labels: { name: string; type: 'admit' | 'validating' }): void;
}

/** Part of CEL: throws where an expression fails. */
export type MatchConditions = (
  conditions: readonly { readonly name: string; readonly expression: string }[],
  attributes: AdmissionAttributes,
  view: ReviewView,
) => { readonly matches: boolean; readonly error?: string };

export interface DispatchOptions extends EndpointOptions {
  readonly client: WebhookClient;
  readonly matchConditions?: MatchConditions;
  readonly metrics?: WebhookMetrics;
  readonly monotonic: () => number;
}

const DEFAULT_TIMEOUT_SECONDS = 10;

export class Dispatcher {
  readonly #options: DispatchOptions;
  readonly #type: 'admit' | 'validating';

  constructor(type: 'admit' | 'validating', options: DispatchOptions) {
    this.#type = type;
    this.#options = options;
  }

  /** Whether match conditions let the request through to the webhook. Throws 403 where they fail under policy Fail. */
  conditionsMatch({ webhook }: RegisteredWebhook, attributes: AdmissionAttributes, view: ReviewView): boolean {
    const conditions = webhook.matchConditions ?? [];
    if (conditions.length === 0) return true;
    const evaluate = this.#options.matchConditions;
    const result =
      evaluate === undefined
        ? { matches: false, error: 'match conditions cannot be evaluated' }
        : evaluate(conditions, attributes, view);
    if (result.error === undefined) return result.matches;
    if (webhook.failurePolicy === 'Ignore') return false;
    const { group, resource } = attributes.resource;
    throw newForbidden({ group, resource }, attributes.name, result.error);
  }

  /** `undefined`: the call failed and is ignored. Throws what the client gets. */
  async call(
    { webhook }: RegisteredWebhook,
    attributes: AdmissionAttributes,
    view: ReviewView,
    signal: AbortSignal,
  ): Promise<ReviewResult | undefined> {
    const { monotonic, metrics } = this.#options;
    const startMs = monotonic();
    const labels = { name: webhook.name, operation: attributes.operation, type: this.#type };
    let rejected = true;
    try {
      const result = await this.#ask(webhook, attributes, view, signal);
      for (const warning of result.warnings) if (warning !== '') attributes.warn(warning);
      for (const [key, value] of Object.entries(result.auditAnnotations))
        attributes.annotate(`${webhook.name}/${key}`, value);
      if (!result.allowed) {
        const error = deniedError(webhook.name, result.status);
        metrics?.rejected({ ...labels, error_type: 'no_error', rejection_code: String(Math.min(error.code, 600)) });
        throw error;
      }
      rejected = false;
      return result;
    } catch (error) {
      if (isStatusError(error)) throw error;
      if (signal.aborted) throw error;
      const message = `failed calling webhook ${JSON.stringify(webhook.name)}: ${error instanceof Error ? error.message : String(error)}`;
      if (webhook.failurePolicy === 'Ignore') {
        rejected = false;
        metrics?.failedOpen({ name: webhook.name, type: this.#type });
        attributes.annotate('failed-open.validating.webhook.admission.k8s.io/webhook', webhook.name);
        return undefined;
      }
      metrics?.rejected({ ...labels, error_type: 'calling_webhook_error', rejection_code: '0' });
      throw newInternalError(message, error);
    } finally {
      metrics?.observe({ ...labels, rejected: String(rejected) }, (monotonic() - startMs) / 1000);
    }
  }

  async #ask(
    webhook: Webhook,
    attributes: AdmissionAttributes,
    view: ReviewView,
    signal: AbortSignal,
  ): Promise<ReviewResult> {
    if (attributes.dryRun && webhook.sideEffects !== 'None' && webhook.sideEffects !== 'NoneOnDryRun') {
      throw new Error('webhook does not support dry run');
    }
    const version = (webhook.admissionReviewVersions ?? []).find((one) =>
      (REVIEW_VERSIONS as readonly string[]).includes(one),
    );
    if (version !== 'v1' && version !== 'v1beta1')
      throw new Error('webhook does not accept known AdmissionReview versions');
    const seconds = webhook.timeoutSeconds ?? DEFAULT_TIMEOUT_SECONDS;
    const endpoint = await endpointOf(webhook, seconds, this.#options);
    const review = reviewOf(attributes, view, version);
    const deadline = withTimeout(seconds * 1000, signal);
    let answer;
    try {
      answer = await this.#options.client.call(endpoint, { method: 'POST', body: review.body, signal: deadline });
    } catch (error) {
      const why = deadline.aborted && !signal.aborted ? 'context deadline exceeded' : describe(error);
      throw new Error(`failed to call webhook: Post ${JSON.stringify(endpoint.url.href)}: ${why}`, { cause: error });
    }
    if (answer.status < 200 || answer.status >= 300)
      throw new Error(`failed to call webhook: ${statusText(answer.status, answer.body.toString('utf8'))}`);
    return readAnswer(answer.body.toString('utf8'), review, this.#type === 'admit');
  }
}

function describe(error: unknown): string {
  const cause = error instanceof WebhookCallError ? error.cause : error;
  if (cause instanceof Error && 'code' in cause && cause.code === 'ECONNREFUSED') {
    const { address, port } = cause as { address?: string; port?: number };
    return `dial tcp ${address}:${port}: connect: connection refused`;
  }
  return error instanceof Error ? error.message : String(error);
}

/** As the reference's client words an answer that is no success. */
function statusText(status: number, body: string): string {
  if (status === 404) return 'the server could not find the requested resource';
  if (status === 401) return 'the server has asked for the client to provide credentials';
  if (status === 403) return 'forbidden';
  if (status >= 500)
    return `an error on the server (${JSON.stringify(body.trim() === '' ? 'unknown' : body.trim())}) has prevented the request from succeeding`;
  return `the server responded with the status code ${status} but did not return more information`;
}
