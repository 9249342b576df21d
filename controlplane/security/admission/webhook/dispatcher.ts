/** Calls one webhook and evaluates the result: failure policy, timeout, warnings, audit annotations, metrics. */
import { errorMessage } from '../../../../api/meta/error-message.ts';
import { qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { newBadRequest, newForbidden, newInternalError, type StatusError } from '../../../../api/meta/status-error.ts';
import { withTimeout, type WebhookClient } from '../../webhooks/webhook-client.ts';
import type { AdmissionAttributes } from '../admission.ts';
import { endpointOf, failedCall, type EndpointOptions } from './endpoint.ts';
import type { RegisteredWebhook, Webhook } from './matching.ts';
import { answerFault } from './webhook-answer.ts';
import { deniedError, readAnswer, REVIEW_VERSIONS, reviewOf, type ReviewResult, type ReviewView } from './review.ts';

type CallType = 'admit' | 'validating';

interface CallLabels {
  readonly name: string;
  readonly operation: string;
  readonly type: CallType;
}

/** Observers of calls, by their metric in kube-apiserver. */
export interface WebhookMetrics {
  /** Counts a refusal in `apiserver_admission_webhook_rejection_count`. */
  rejected(labels: CallLabels & { readonly error_type: string; readonly rejection_code: string }): void;
  /**
   * Counts a call in `apiserver_admission_webhook_admission_duration_seconds` and `apiserver_admission_webhook_request_total`.
   */
  observe(labels: CallLabels & { readonly rejected: string; readonly code: string }, seconds: number): void;
  /** Counts a failed call that was ignored in `apiserver_admission_webhook_fail_open_count`. */
  failedOpen(labels: { readonly name: string; readonly type: CallType }): void;
}

/** Evaluates match conditions. The result has an `error` if an expression fails and none is false. */
export type MatchConditions = (
  conditions: readonly { readonly name: string; readonly expression: string }[],
  attributes: AdmissionAttributes,
  view: ReviewView,
) => Promise<{ readonly matches: boolean; readonly error?: string }>;

/** What the calls of all webhooks share. `monotonic` returns milliseconds. */
export interface DispatchOptions extends EndpointOptions {
  readonly client: WebhookClient;
  readonly matchConditions?: MatchConditions;
  readonly metrics?: WebhookMetrics;
  readonly monotonic: () => number;
}

/** One call of one webhook for one request. */
interface Call {
  readonly registered: RegisteredWebhook;
  readonly attributes: AdmissionAttributes;
  readonly view: ReviewView;
  readonly signal: AbortSignal;
  /** The index of the call within the request, such as `round_0_index_2`, for audit annotations. */
  readonly place: string;
}

const DEFAULT_TIMEOUT_SECONDS = 10;
/** Higher codes of a webhook are counted as this one, which bounds the series. */
const MAX_COUNTED_CODE = 600;

/** The call failed or its response is invalid, so the failure policy decides. `code` is the label of the metrics. */
class CallFailure extends Error {
  readonly code: number;
  constructor(message: string, code: number, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Calls webhooks for one of the two plugins. It keeps no state between calls. */
export class Dispatcher {
  readonly #options: DispatchOptions;
  readonly #type: CallType;

  constructor(type: CallType, options: DispatchOptions) {
    this.#type = type;
    this.#options = options;
  }

  /**
   * Whether the match conditions select the request. If their evaluation fails, throws a 403 under the failure policy Fail, and
   * returns false under Ignore.
   */
  async conditionsMatch(
    { webhook }: RegisteredWebhook,
    attributes: AdmissionAttributes,
    view: ReviewView,
  ): Promise<boolean> {
    const conditions = webhook.matchConditions ?? [];
    if (conditions.length === 0) return true;
    const evaluate = this.#options.matchConditions;
    const result =
      evaluate === undefined
        ? { matches: false, error: 'match conditions cannot be evaluated' }
        : await evaluate(conditions, attributes, view);
    if (result.error === undefined) return result.matches;
    if (webhook.failurePolicy === 'Ignore') return false;
    const { group, resource } = attributes.resource;
    throw newForbidden({ group, resource }, attributes.name, result.error);
  }

  /**
   * Calls the webhook, and passes the response to `use` if it allows the request. Returns false if the call failed and the
   * failure is ignored. Throws the error for the client.
   */
  async call(call: Call, use: (result: ReviewResult) => Promise<void> | void = () => undefined): Promise<boolean> {
    const { monotonic, metrics } = this.#options;
    const { registered, attributes, signal } = call;
    const { webhook } = registered;
    const startMs = monotonic();
    const labels = { name: webhook.name, operation: attributes.operation, type: this.#type };
    const ended = (code: number, { rejected }: { readonly rejected: boolean }): void =>
      metrics?.observe({ ...labels, code: labelOf(code), rejected: String(rejected) }, (monotonic() - startMs) / 1000);
    const refused = (errorType: string, code: number, error: StatusError): never => {
      metrics?.rejected({ ...labels, error_type: errorType, rejection_code: labelOf(code) });
      ended(code, { rejected: true });
      throw error;
    };
    let result: ReviewResult;
    try {
      result = await this.#ask(call);
    } catch (error) {
      if (signal.aborted || !(error instanceof CallFailure)) throw error;
      const message = `failed calling webhook ${quoteText(webhook.name)}: ${error.message}`;
      if (webhook.failurePolicy !== 'Ignore')
        return refused('calling_webhook_error', error.code, newInternalError(message, error));
      ended(error.code, { rejected: false });
      metrics?.failedOpen({ name: webhook.name, type: this.#type });
      const kind = this.#type === 'admit' ? 'mutation' : 'validating';
      attributes.annotate(`failed-open.${kind}.webhook.admission.k8s.io/${call.place}`, webhook.name);
      return false;
    }
    for (const warning of result.warnings) if (warning !== '') attributes.warn(warning);
    for (const [key, value] of Object.entries(result.auditAnnotations))
      if (qualifiedNameErrors(`${webhook.name}/${key}`).length === 0)
        attributes.annotate(`${webhook.name}/${key}`, value);
    if (!result.allowed) {
      const error = deniedError(webhook.name, result.status);
      return refused('no_error', error.code, error);
    }
    try {
      await use(result);
    } catch (error) {
      return refused('apiserver_internal_error', 0, error as StatusError);
    }
    ended(200, { rejected: false });
    return true;
  }

  /**
   * Sends the review and reads the response. Throws `CallFailure` if that fails, and a 400 for a dry run that the webhook does
   * not support, to which the failure policy does not apply.
   */
  async #ask({ registered: { webhook }, attributes, view, signal }: Call): Promise<ReviewResult> {
    if (attributes.dryRun && webhook.sideEffects !== 'None' && webhook.sideEffects !== 'NoneOnDryRun')
      throw newBadRequest(`admission webhook ${quoteText(webhook.name)} does not support dry run`);
    const version = versionFor(webhook);
    if (version === undefined)
      throw new CallFailure(
        'could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)',
        400,
      );
    const seconds = webhook.timeoutSeconds ?? DEFAULT_TIMEOUT_SECONDS;
    const review = reviewOf(attributes, view, version);
    const deadline = withTimeout(seconds * 1000, signal);
    let answer;
    try {
      const endpoint = await endpointOf(webhook.clientConfig, seconds, this.#options);
      answer = await this.#options.client.call(endpoint, { method: 'POST', body: review.body, signal: deadline });
    } catch (error) {
      const why = failedCall(webhook.clientConfig, seconds, error, deadline.aborted && !signal.aborted);
      throw new CallFailure(`failed to call webhook: ${why}`, 503, { cause: error });
    }
    const fault = answerFault(answer);
    if (fault !== undefined)
      throw new CallFailure(`failed to call webhook: ${fault}`, answer.status >= 300 ? answer.status : 503);
    try {
      return readAnswer(answer.body, review, this.#type === 'admit');
    } catch (error) {
      throw new CallFailure(errorMessage(error), 503, { cause: error });
    }
  }
}

const labelOf = (code: number): string => String(Math.min(code, MAX_COUNTED_CODE));

function versionFor({ admissionReviewVersions = [] }: Webhook): (typeof REVIEW_VERSIONS)[number] | undefined {
  const supported: readonly string[] = REVIEW_VERSIONS;
  const found = admissionReviewVersions.find((one) => supported.includes(one));
  return REVIEW_VERSIONS.find((one) => one === found);
}
