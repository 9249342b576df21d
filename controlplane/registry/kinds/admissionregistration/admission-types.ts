/** Defines the stored types of the admissionregistration group. */
import type {
  V1MutatingAdmissionPolicyBindingSpec,
  V1MutatingAdmissionPolicySpec,
  V1MutatingWebhook,
  V1ValidatingAdmissionPolicyBindingSpec,
  V1ValidatingAdmissionPolicySpec,
  V1ValidatingAdmissionPolicyStatus,
  V1ValidatingWebhook,
} from '@kubernetes/client-node';
import type { Kind, Wire } from '../../../../api/kinds/wire.ts';

export type Webhook = Wire<V1MutatingWebhook> & Wire<V1ValidatingWebhook>;
export type WebhookConfiguration = Kind<object> & { webhooks?: Webhook[] };

export type PolicySpec = Wire<V1ValidatingAdmissionPolicySpec>;
export type ValidatingPolicy = Kind<{
  spec: V1ValidatingAdmissionPolicySpec;
  status: V1ValidatingAdmissionPolicyStatus;
}>;
export type MutatingPolicySpec = Wire<V1MutatingAdmissionPolicySpec>;
export type MutatingPolicy = Kind<{ spec: V1MutatingAdmissionPolicySpec }>;
export type ValidatingBinding = Kind<{ spec: V1ValidatingAdmissionPolicyBindingSpec }>;
export type MutatingBinding = Kind<{ spec: V1MutatingAdmissionPolicyBindingSpec }>;

export type Rule = NonNullable<Webhook['rules']>[number];
export type MatchCondition = NonNullable<Webhook['matchConditions']>[number];
export type MatchResources = NonNullable<PolicySpec['matchConstraints']>;
export type NamedRule = NonNullable<MatchResources['resourceRules']>[number];
export type ParamKind = NonNullable<PolicySpec['paramKind']>;
export type ParamRef = NonNullable<NonNullable<ValidatingBinding['spec']>['paramRef']>;
