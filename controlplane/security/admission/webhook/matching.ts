/** Selects the webhooks of a request by rules, scope, selectors and equivalent versions of a resource. */
import { fromLabelSelector } from '../../../../api/meta/selector.ts';
import type { GroupVersionResource, KubeObject } from '../../../../api/meta/object.ts';
import type { MutatingWebhookConfiguration } from '../../../../api/kinds/kinds.ts';
import type { AdmissionAttributes } from '../admission.ts';
import { namespaces } from '../../../../api/client/resources.ts';
import { isResource } from '../../../../api/meta/group-resource.ts';

/** A webhook of either plugin; the validating kind lacks the reinvocation policy. */
export type Webhook = NonNullable<MutatingWebhookConfiguration['webhooks']>[number];
type Rule = NonNullable<Webhook['rules']>[number];

/** A webhook with the name of the configuration that has it. */
export interface RegisteredWebhook {
  readonly configuration: string;
  readonly webhook: Webhook;
}

/** What the selection reads of a request. */
export interface MatchInput {
  readonly attributes: AdmissionAttributes;
  /** Whether the resource is namespaced; false for a Namespace. */
  readonly isNamespaced: boolean;
  /** The labels of the object's namespace, or of the Namespace itself. `undefined` for other cluster-scoped objects. */
  readonly namespaceLabels: Readonly<Record<string, string>> | undefined;
  /** The same resource in other versions and groups. */
  readonly equivalents: readonly GroupVersionResource[];
}

/** Resources with their groups: a custom resource may have the same name in a group of its own. */
const REVIEWS = new Set([
  'authentication.k8s.io/selfsubjectreviews',
  'authentication.k8s.io/tokenreviews',
  'authorization.k8s.io/localsubjectaccessreviews',
  'authorization.k8s.io/selfsubjectaccessreviews',
  'authorization.k8s.io/selfsubjectrulesreviews',
  'authorization.k8s.io/subjectaccessreviews',
]);
const ADMISSION_GROUP = 'admissionregistration.k8s.io';
const POLICIES = new Set([
  'validatingadmissionpolicies',
  'validatingadmissionpolicybindings',
  'mutatingadmissionpolicies',
  'mutatingadmissionpolicybindings',
]);
const WEBHOOKS = new Set(['validatingwebhookconfigurations', 'mutatingwebhookconfigurations']);

/** Whether the resource is an admission policy or a binding. No policy judges it, so that a broken policy can be repaired. */
export function isPolicy({ resource }: AdmissionAttributes): boolean {
  return resource.group === ADMISSION_GROUP && POLICIES.has(resource.resource);
}

/** Whether no webhook is called: for webhook configurations and policies, so that a broken webhook can be repaired. */
export function isExempt(attributes: AdmissionAttributes): boolean {
  const { group, resource } = attributes.resource;
  return isPolicy(attributes) || (group === ADMISSION_GROUP && WEBHOOKS.has(resource));
}

/** Whether the resource is a review, such as SubjectAccessReview, which is answered and not stored. */
export const isReview = ({ resource }: AdmissionAttributes): boolean =>
  REVIEWS.has(`${resource.group}/${resource.resource}`);

/** Returns the resource in the version that the webhook registered for; `undefined` if the webhook does not match. */
export function matchWebhook(webhook: Webhook, input: MatchInput): GroupVersionResource | undefined {
  const { attributes } = input;
  const rules = webhook.rules ?? [];
  let as: GroupVersionResource | undefined;
  if (rules.some((rule) => ruleMatches(rule, attributes.resource, input))) as = attributes.resource;
  else if (webhook.matchPolicy !== 'Exact') {
    as = input.equivalents.find((resource) => rules.some((rule) => ruleMatches(rule, resource, input)));
  }
  if (as === undefined) return undefined;
  return namespaceMatches(webhook, input) && objectMatches(webhook, attributes) ? as : undefined;
}

const includes = (list: readonly string[] | undefined, value: string): boolean =>
  list !== undefined && (list.includes('*') || list.includes(value));

function ruleMatches(rule: Rule, resource: GroupVersionResource, { attributes, isNamespaced }: MatchInput): boolean {
  if (!includes(rule.operations, attributes.operation)) return false;
  if (!includes(rule.apiGroups, resource.group) || !includes(rule.apiVersions, resource.version)) return false;
  const scope = rule.scope ?? '*';
  const isNamespace = isResource(attributes.resource, namespaces);
  const hasNamespace = isNamespaced && !isNamespace;
  if ((scope === 'Namespaced' && !hasNamespace) || (scope === 'Cluster' && hasNamespace)) return false;
  return (rule.resources ?? []).some((pattern) => resourceMatches(pattern, resource.resource, attributes.subresource));
}

function resourceMatches(pattern: string, resource: string, subresource: string): boolean {
  const slash = pattern.indexOf('/');
  const patternResource = slash < 0 ? pattern : pattern.slice(0, slash);
  const patternSubresource = slash < 0 ? '' : pattern.slice(slash + 1);
  if (patternResource !== '*' && patternResource !== resource) return false;
  return patternSubresource === subresource || patternSubresource === '*';
}

function namespaceMatches(webhook: Webhook, input: MatchInput): boolean {
  const selector = webhook.namespaceSelector;
  if (selector === undefined || selector === null || isEmpty(selector)) return true;
  if (input.namespaceLabels === undefined) return true;
  return fromLabelSelector(selector as Parameters<typeof fromLabelSelector>[0]).matches(input.namespaceLabels);
}

function objectMatches(webhook: Webhook, attributes: AdmissionAttributes): boolean {
  const selector = webhook.objectSelector;
  if (selector === undefined || selector === null || isEmpty(selector)) return true;
  const compiled = fromLabelSelector(selector as Parameters<typeof fromLabelSelector>[0]);
  const matches = (object: KubeObject | undefined): boolean =>
    object !== undefined && compiled.matches(object.metadata?.labels ?? {});
  return matches(attributes.object) || matches(attributes.oldObject);
}

function isEmpty(selector: { readonly matchLabels?: object; readonly matchExpressions?: readonly unknown[] }): boolean {
  return Object.keys(selector.matchLabels ?? {}).length === 0 && (selector.matchExpressions?.length ?? 0) === 0;
}
