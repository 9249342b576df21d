/** Validates webhook configurations. An existing configuration may keep values that are refused in new ones. */
import type { V1LabelSelector } from '@kubernetes/client-node';
import { duplicate, invalid, notSupported, required, type FieldError } from '../../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import { fullyQualifiedNameErrors, rfc1035LabelErrors } from '../../../../api/meta/names.ts';
import { validateLabelSelector } from '../../../../api/meta/selector.ts';
import {
  FAILURE_POLICIES,
  MATCH_POLICIES,
  matchConditionErrors,
  REINVOCATION_POLICIES,
  ruleErrors,
} from './admission-match-validation.ts';
import type { Webhook, WebhookConfiguration } from './admission-types.ts';
import type { ExpressionChecker } from './expression-checks.ts';
import { optionalOneOf } from '../field-rules.ts';
import { webhookClientErrors } from './webhook-client.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const REVIEW_VERSIONS = ['v1', 'v1beta1'];
const HARMLESS = ['None', 'NoneOnDryRun'];
const ALL_EFFECTS = ['None', 'NoneOnDryRun', 'Some', 'Unknown'];
const MAX_TIMEOUT_SECONDS = 30;

/** The rules that a changed configuration may break, because the stored one breaks them or has the same conditions. */
interface Tolerance {
  readonly sideEffects: boolean;
  readonly reviewVersions: boolean;
  readonly repeatedNames: boolean;
  readonly labelValues: boolean;
  readonly conditions: boolean;
}

const STRICT: Tolerance = {
  sideEffects: false,
  reviewVersions: false,
  repeatedNames: false,
  labelValues: false,
  conditions: false,
};

/**
 * Returns the errors of a webhook configuration. `old` is the stored one: some rules do not apply if it breaks them already,
 * and unchanged match conditions are not validated again.
 */
export function webhookConfigurationErrors(
  check: ExpressionChecker,
  object: WebhookConfiguration,
  old?: WebhookConfiguration,
): FieldError[] {
  const webhooks = object.webhooks ?? [];
  const tolerance = old === undefined ? STRICT : toleranceOf(old.webhooks ?? [], webhooks);
  const names = new Set<string>();
  return webhooks.flatMap((webhook, index) => {
    const at = `webhooks[${index}]`;
    const { name = '' } = webhook;
    const errors = [
      ...webhookErrors(check, webhook, at, tolerance),
      ...reviewVersionErrors(webhook.admissionReviewVersions ?? [], `${at}.admissionReviewVersions`, tolerance),
    ];
    if (!tolerance.repeatedNames && name !== '') {
      if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
      names.add(name);
    }
    return errors;
  });
}

function toleranceOf(old: readonly Webhook[], webhooks: readonly Webhook[]): Tolerance {
  return {
    sideEffects: old.some(({ sideEffects = '' }) => !HARMLESS.includes(sideEffects)),
    reviewVersions: old.some(
      ({ admissionReviewVersions: versions = [] }) =>
        versions.length > 0 && !versions.some((version) => REVIEW_VERSIONS.includes(version)),
    ),
    repeatedNames: new Set(old.map(({ name }) => name)).size < old.length,
    labelValues: old.some((webhook) => selectorErrors(webhook, '', { allowInvalidValues: false }).length > 0),
    conditions:
      old.length === webhooks.length &&
      old.every(({ matchConditions }, index) => semanticEqual(matchConditions, webhooks[index]?.matchConditions)),
  };
}

function selectorErrors(
  { namespaceSelector, objectSelector }: Webhook,
  at: string,
  options: { readonly allowInvalidValues: boolean },
): FieldError[] {
  const of = (selector: unknown, field: string): FieldError[] =>
    validateLabelSelector(selector as V1LabelSelector | undefined, field, options);
  return [...of(namespaceSelector, `${at}.namespaceSelector`), ...of(objectSelector, `${at}.objectSelector`)];
}

function webhookErrors(check: ExpressionChecker, webhook: Webhook, at: string, tolerance: Tolerance): FieldError[] {
  const { name = '', rules = [], sideEffects, timeoutSeconds, clientConfig = {}, matchConditions = [] } = webhook;
  const errors = [
    ...fullyQualifiedNameErrors(`${at}.name`, name),
    ...rules.flatMap((rule, index) => ruleErrors(rule, `${at}.rules[${index}]`)),
    ...optionalOneOf(`${at}.failurePolicy`, webhook.failurePolicy, FAILURE_POLICIES),
    ...optionalOneOf(`${at}.matchPolicy`, webhook.matchPolicy, MATCH_POLICIES),
  ];
  const allowed = tolerance.sideEffects ? ALL_EFFECTS : HARMLESS;
  if (sideEffects === undefined || sideEffects === null)
    errors.push(required(`${at}.sideEffects`, `must specify one of ${allowed.join(', ')}`));
  else if (!allowed.includes(sideEffects)) errors.push(notSupported(`${at}.sideEffects`, sideEffects, allowed));
  if (timeoutSeconds !== undefined && (timeoutSeconds > MAX_TIMEOUT_SECONDS || timeoutSeconds < 1)) {
    const text = `the timeout value must be between 1 and ${MAX_TIMEOUT_SECONDS} seconds`;
    errors.push(invalid(`${at}.timeoutSeconds`, timeoutSeconds, text));
  }
  errors.push(
    ...selectorErrors(webhook, at, { allowInvalidValues: tolerance.labelValues }),
    ...optionalOneOf(`${at}.reinvocationPolicy`, webhook.reinvocationPolicy, REINVOCATION_POLICIES),
    ...webhookClientErrors(`${at}.clientConfig`, clientConfig),
  );
  if (!tolerance.conditions)
    errors.push(...matchConditionErrors(matchConditions, `${at}.matchConditions`, { check, params: false }));
  return errors;
}

function reviewVersionErrors(versions: readonly string[], field: string, tolerance: Tolerance): FieldError[] {
  const supported = REVIEW_VERSIONS.join(', ');
  if (versions.length === 0) return [required(field, `must specify one of ${supported}`)];
  const seen = new Set<string>();
  const errors = versions.flatMap((version, index) => {
    const at = `${field}[${index}]`;
    if (seen.has(version)) return [invalid(at, version, 'duplicate version')];
    seen.add(version);
    return invalidFor(at, version, rfc1035LabelErrors(version));
  });
  if (!tolerance.reviewVersions && !versions.some((version) => REVIEW_VERSIONS.includes(version)))
    errors.push(invalid(field, versions, `must include at least one of ${supported}`));
  return errors;
}
