/**
 * Implements the webhook authorizer: it sends a SubjectAccessReview to a remote service. Allowed and denied responses are
 * cached for separate times.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { ExpiringCache } from '../../../api/machinery/expiring-cache.ts';
import { inSlices, type Slice, TimeSlice } from '../../../api/machinery/time-slice.ts';
import { WebhookCallError, withTimeout, type WebhookClient, type WebhookEndpoint } from '../webhooks/webhook-client.ts';
import type { AuthorizationAttributes, Authorizer, Decision, RuleResolver } from './authorization.ts';
import type { MatchCondition, WebhookSettings } from './authorization-config.ts';

interface WebhookAuthorizerOptions extends Omit<WebhookSettings, 'configFile'> {
  readonly name: string;
  readonly endpoint: () => Promise<WebhookEndpoint>;
  readonly client: WebhookClient;
  readonly clock: Clock;
}

const GROUP = 'authorization.k8s.io';
const NO_OPINION: Decision = { decision: 'no-opinion', reason: '' };
const BACKOFF_MS = [500, 750, 1125, 1690];
/** A caller controls the size of cache keys, so larger ones are not cached. */
const MAX_KEY_BYTES = 10_000;

/**
 * Creates the authorizer. It has no opinion on requests that do not match all match conditions. It never throws: the failure
 * policy determines the decision if a condition cannot be evaluated, if the webhook cannot be reached, and if its response is
 * invalid.
 */
export function webhookAuthorizer(options: WebhookAuthorizerOptions): Authorizer & RuleResolver {
  const cache = new ExpiringCache<Decision>({ clock: options.clock, most: 8192 });
  const failed = (error: unknown): Decision => ({
    decision: options.failurePolicy === 'Deny' ? 'deny' : 'no-opinion',
    reason: '',
    evaluationError: errorMessage(error),
  });
  const decide = (attributes: AuthorizationAttributes): Decision | Promise<Decision> => {
    const body = stringifyJson(reviewOf(attributes, options.version));
    const cached = cache.get(body);
    if (cached !== undefined) return cached.value;
    return sendReview(body, options).then((decision) => {
      const ttlMs = decision.decision === 'allow' ? options.authorizedTtlMs : options.unauthorizedTtlMs;
      if (body.length <= MAX_KEY_BYTES) cache.set(body, decision, ttlMs);
      return decision;
    }, failed);
  };
  return {
    authorize(attributes): Decision | Promise<Decision> {
      const conditions = options.matchConditions ?? [];
      if (conditions.length === 0) return decide(attributes);
      try {
        const slice = new TimeSlice(options.clock);
        const matches = inSlices(allMatch(conditions, attributes, slice), slice);
        if (matches instanceof Promise)
          return matches.then((isMatch) => (isMatch ? decide(attributes) : NO_OPINION)).catch(failed);
        return matches ? decide(attributes) : NO_OPINION;
      } catch (error) {
        return failed(error);
      }
    },
    rulesFor: () => ({
      resourceRules: [],
      nonResourceRules: [],
      incomplete: true,
      evaluationError: 'webhook authorizer does not support user rule resolution',
    }),
  };
}

/**
 * Whether all conditions match. One that evaluates to false decides, whatever errors the others have; otherwise the errors are
 * thrown as one. Yields between conditions when the slice is spent: a client chooses how large the request is that they read.
 */
function* allMatch(
  conditions: readonly MatchCondition[],
  attributes: AuthorizationAttributes,
  slice: Slice,
): Generator<void, boolean, undefined> {
  const request = requestOf(attributes);
  const errors: string[] = [];
  for (const condition of conditions) {
    if (slice.isSpent) yield;
    try {
      if (!condition.matches(request)) return false;
    } catch (error) {
      errors.push(errorMessage(error));
    }
  }
  if (errors.length > 0) throw new Error(`cel evaluation error: ${errors.join(', ')}`);
  return true;
}

/** Returns the variable `request` of match conditions. It has every field that is a text, also where the text is empty. */
function requestOf(attributes: AuthorizationAttributes): Record<string, unknown> {
  const { user, path, verb, isResourceRequest, namespace, group, version, resource, subresource, name } = attributes;
  const selector = (requirements: AuthorizationAttributes['fieldSelector'], field: string): object =>
    requirements === undefined || requirements.length === 0 ? {} : { [field]: { requirements } };
  const target = isResourceRequest
    ? {
        resourceAttributes: {
          ...{ namespace, verb, group, version, resource, subresource, name },
          ...selector(attributes.fieldSelector, 'fieldSelector'),
          ...selector(attributes.labelSelector, 'labelSelector'),
        },
      }
    : { nonResourceAttributes: { path, verb } };
  return { user: user.name, groups: user.groups, uid: user.uid ?? '', extra: user.extra ?? {}, ...target };
}

/**
 * Sends the review, and again after a pause while the webhook is unreachable or responds with a status from 500 on, up to four
 * times. Throws for any other status than 200 or 201, and for an invalid response.
 */
async function sendReview(body: string, options: WebhookAuthorizerOptions): Promise<Decision> {
  for (let attempt = 0; ; attempt++) {
    const pauseMs = BACKOFF_MS[attempt];
    try {
      const signal = withTimeout(options.timeoutMs ?? 30_000);
      const answer = await options.client.call(await options.endpoint(), { method: 'POST', body, signal });
      if (answer.status === 200 || answer.status === 201)
        return decisionOf(JSON.parse(answer.body.toString('utf8')), options.name);
      if (pauseMs === undefined || answer.status < 500)
        throw new Error(`webhook ${options.name} responded with status ${answer.status}`);
    } catch (error) {
      const isTransient = error instanceof WebhookCallError && error.code === 'unreachable';
      if (!isTransient || pauseMs === undefined) throw error;
    }
    await options.clock.sleep(pauseMs);
  }
}

function decisionOf(answer: unknown, webhook: string): Decision {
  const status = isJsonObject(answer) ? answer['status'] : undefined;
  if (!isJsonObject(status)) throw new Error(`the response of the webhook ${webhook} has no status`);
  const reason = typeof status['reason'] === 'string' ? status['reason'] : '';
  if (status['denied'] === true && status['allowed'] === true)
    throw new Error('webhook subject access review returned both allow and deny response');
  if (status['denied'] === true) return { decision: 'deny', reason };
  return { decision: status['allowed'] === true ? 'allow' : 'no-opinion', reason };
}

/** Builds the SubjectAccessReview of an action, with the field names of the given version. */
function reviewOf(attributes: AuthorizationAttributes, version: 'v1' | 'v1beta1'): Record<string, unknown> {
  const { user } = attributes;
  const nonEmpty = (fields: Record<string, string>): Record<string, string> =>
    Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ''));
  const requirements = (list: AuthorizationAttributes['fieldSelector']) =>
    list === undefined || list.length === 0 ? undefined : { requirements: list };
  const target = attributes.isResourceRequest
    ? {
        resourceAttributes: {
          ...nonEmpty({
            namespace: attributes.namespace,
            verb: attributes.verb,
            group: attributes.group,
            version: attributes.version,
            resource: attributes.resource,
            subresource: attributes.subresource,
            name: attributes.name,
          }),
          fieldSelector: requirements(attributes.fieldSelector),
          labelSelector: requirements(attributes.labelSelector),
        },
      }
    : { nonResourceAttributes: nonEmpty({ path: attributes.path, verb: attributes.verb }) };
  return {
    kind: 'SubjectAccessReview',
    apiVersion: `${GROUP}/${version}`,
    metadata: { creationTimestamp: null },
    spec: {
      ...target,
      ...(user.name === '' ? {} : { user: user.name }),
      ...(user.groups.length === 0 ? {} : { [version === 'v1' ? 'groups' : 'group']: user.groups }),
      ...(user.extra === undefined ? {} : { extra: user.extra }),
      ...(user.uid === undefined ? {} : { uid: user.uid }),
    },
    status: { allowed: false },
  };
}
