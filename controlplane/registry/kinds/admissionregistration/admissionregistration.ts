/** Defines the strategies of webhook configurations, admission policies and their bindings. */
import { conditionErrors, type CommonCondition } from '../../../../api/meta/conditions.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { required, type FieldError } from '../../../../api/meta/field-error.ts';
import {
  bindingColumns,
  mutatingPolicyColumns,
  validatingPolicyColumns,
  webhookConfigurationColumns,
} from './columns.ts';
import { specAndStatus, specChanged, statusWithoutMetadata } from '../../generic-strategy.ts';
import { kindRow, type KindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import {
  bindingErrors,
  mutatingBindingErrors,
  mutatingPolicyErrors,
  validatingPolicyErrors,
  validationActionErrors,
} from './admission-policy-validation.ts';
import type {
  MatchResources,
  MutatingBinding,
  MutatingPolicy,
  Rule,
  ValidatingBinding,
  ValidatingPolicy,
  Webhook,
  WebhookConfiguration,
} from './admission-types.ts';
import { webhookConfigurationErrors } from './admission-webhook-validation.ts';
import type { ExpressionChecker } from './expression-checks.ts';

const GROUP = 'admissionregistration.k8s.io';
const TIMEOUT_SECONDS = 10;
const HTTPS = 443;

function ruleDefaults(rules: readonly Rule[] | undefined): void {
  for (const rule of rules ?? []) rule.scope ??= '*';
}

interface WebhookOptions {
  /** The webhooks are mutating; otherwise they are validating. */
  readonly mutating: boolean;
}

function webhookDefaults(webhook: Webhook, { mutating }: WebhookOptions): void {
  webhook.failurePolicy ??= 'Fail';
  webhook.matchPolicy ??= 'Equivalent';
  webhook.namespaceSelector ??= {};
  webhook.objectSelector ??= {};
  webhook.timeoutSeconds ??= TIMEOUT_SECONDS;
  if (mutating) webhook.reinvocationPolicy ??= 'Never';
  const service = webhook.clientConfig?.service;
  if (service !== undefined) service.port ??= HTTPS;
  ruleDefaults(webhook.rules);
}

function matchDefaults(match: MatchResources | undefined): void {
  if (match === undefined) return;
  match.matchPolicy ??= 'Equivalent';
  match.namespaceSelector ??= {};
  match.objectSelector ??= {};
  ruleDefaults(match.resourceRules);
  ruleDefaults(match.excludeResourceRules);
}

function webhookStrategy(check: ExpressionChecker, options: WebhookOptions): Strategy<WebhookConfiguration> {
  return {
    metadataChecks: ['plainWhole'],
    managesGeneration: true,
    requiresResourceVersion: true,
    // kube-apiserver compares these kinds strictly, so that an empty list differs from an absent one.
    changesGeneration: (object, old) => !jsonEqual(object.webhooks, old.webhooks),
    applyDefaults(object) {
      for (const webhook of object.webhooks ?? []) webhookDefaults(webhook, options);
    },
    validateCreate: (object) => webhookConfigurationErrors(check, object),
    validateUpdate: (object, old) => webhookConfigurationErrors(check, object, old),
    columns: webhookConfigurationColumns,
  };
}

/**
 * The strategy of kinds that have a spec and no status. A changed spec increments the generation, and an update requires a
 * resource version.
 */
const specOnly = {
  managesGeneration: true,
  requiresResourceVersion: true,
  changesGeneration: specChanged,
} as const satisfies Strategy<KubeObject>;

function validatingPolicies(check: ExpressionChecker): Strategy<ValidatingPolicy> {
  const errors = (object: ValidatingPolicy, old?: ValidatingPolicy): FieldError[] =>
    validatingPolicyErrors(check, object.metadata.name ?? '', object.spec ?? {}, old?.spec);
  return {
    metadataChecks: ['plainWhole'],
    ...specAndStatus,
    requiresResourceVersion: true,
    applyDefaults(object) {
      const spec = (object.spec ??= {});
      spec.failurePolicy ??= 'Fail';
      matchDefaults(spec.matchConstraints);
    },
    validateCreate: (object) => errors(object),
    validateUpdate: errors,
    columns: validatingPolicyColumns,
    status: { ...(statusWithoutMetadata as UpdateStrategy<ValidatingPolicy>), validateUpdate: statusErrors },
  };
}

function statusErrors({ status }: ValidatingPolicy): FieldError[] {
  const errors = (status?.typeChecking?.expressionWarnings ?? []).flatMap(({ warning = '', fieldRef = '' }, index) => {
    const at = `status.typeChecking.expressionWarnings[${index}]`;
    return [
      ...(warning === '' ? [required(`${at}.warning`)] : []),
      ...(fieldRef.trim() === '' ? [required(`${at}.fieldRef`)] : []),
    ];
  });
  const conditions = (status?.conditions ?? []) as readonly CommonCondition[];
  return [...errors, ...conditionErrors(conditions, 'status.conditions')];
}

function mutatingPolicies(check: ExpressionChecker): Strategy<MutatingPolicy> {
  return {
    metadataChecks: ['plainWhole'],
    ...specOnly,
    applyDefaults(object) {
      const spec = (object.spec ??= {});
      spec.failurePolicy ??= 'Fail';
      matchDefaults(spec.matchConstraints);
    },
    validateCreate: (object) => mutatingPolicyErrors(check, object.spec ?? {}),
    validateUpdate: (object, old) => mutatingPolicyErrors(check, object.spec ?? {}, old.spec),
    columns: mutatingPolicyColumns,
  };
}

const validatingBindingErrors = ({ spec = {} }: ValidatingBinding): FieldError[] => [
  ...bindingErrors(spec),
  ...validationActionErrors(spec),
];

const validatingBindings: Strategy<ValidatingBinding> = {
  metadataChecks: ['plainWhole'],
  ...specOnly,
  applyDefaults: (object) => matchDefaults(object.spec?.matchResources),
  validateCreate: validatingBindingErrors,
  validateUpdate: validatingBindingErrors,
  columns: bindingColumns,
};

const mutatingBindings: Strategy<MutatingBinding> = {
  metadataChecks: ['plainWhole'],
  ...specOnly,
  applyDefaults(object) {
    matchDefaults(object.spec?.matchResources);
    // Only the oldest version has a default for the action.
    const { paramRef } = object.spec ?? {};
    if (paramRef !== undefined && object.apiVersion === `${GROUP}/v1alpha1`)
      paramRef.parameterNotFoundAction ??= 'Deny';
  },
  validateCreate: ({ spec = {} }) => mutatingBindingErrors(spec),
  validateUpdate: ({ spec = {} }) => mutatingBindingErrors(spec),
  columns: bindingColumns,
};

/** Returns the rows of the group. `check` compiles expressions. */
export function admissionRegistrationKinds(check: ExpressionChecker): KindRow[] {
  return [
    kindRow(GROUP, 'mutatingwebhookconfigurations', webhookStrategy(check, { mutating: true })),
    kindRow(GROUP, 'validatingwebhookconfigurations', webhookStrategy(check, { mutating: false })),
    kindRow(GROUP, 'validatingadmissionpolicies', validatingPolicies(check)),
    kindRow(GROUP, 'validatingadmissionpolicybindings', validatingBindings),
    kindRow(GROUP, 'mutatingadmissionpolicies', mutatingPolicies(check)),
    kindRow(GROUP, 'mutatingadmissionpolicybindings', mutatingBindings),
  ];
}
