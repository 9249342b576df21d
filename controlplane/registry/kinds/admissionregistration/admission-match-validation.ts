/** Validates the fields that webhooks and policies share: the requests that they match and their match conditions. */
import type { V1LabelSelector } from '@kubernetes/client-node';
import { duplicate, invalid, notSupported, required, type FieldError } from '../../../../api/meta/field-error.ts';
import { pathSegmentErrors, qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { validateLabelSelector } from '../../../../api/meta/selector.ts';
import type { MatchCondition, MatchResources, NamedRule, Rule } from './admission-types.ts';
import { expressionErrors, type ExpressionChecker } from './expression-checks.ts';
import { maxItems, optionalOneOf, wildcardErrors } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

// The values of the fields of these names, in the order in which errors list them.
export const FAILURE_POLICIES = ['Fail', 'Ignore'];
export const MATCH_POLICIES = ['Equivalent', 'Exact'];
export const REINVOCATION_POLICIES = ['IfNeeded', 'Never'];
const OPERATIONS = ['*', 'CONNECT', 'CREATE', 'DELETE', 'UPDATE'];
const SCOPES = ['*', 'Cluster', 'Namespaced'];
const MAX_CONDITIONS = 64;

/**
 * Returns the errors of a rule. `at` is its path. `*` must stand alone in each list, except that subresources may stand beside
 * it in the resources.
 */
export function ruleErrors(rule: Rule, at: string): FieldError[] {
  const { operations = [], apiGroups = [], apiVersions = [], resources = [], scope } = rule;
  const requiredList = (field: string, values: readonly string[]): FieldError[] =>
    values.length === 0 ? [required(`${at}.${field}`)] : [];
  const errors = [
    ...requiredList('operations', operations),
    ...wildcardErrors(`${at}.operations`, operations, 'operations'),
    ...operations.flatMap((operation, index) =>
      OPERATIONS.includes(operation) ? [] : [notSupported(`${at}.operations[${index}]`, operation, OPERATIONS)],
    ),
    ...requiredList('apiGroups', apiGroups),
    ...wildcardErrors(`${at}.apiGroups`, apiGroups, 'API groups'),
    ...requiredList('apiVersions', apiVersions),
    ...wildcardErrors(`${at}.apiVersions`, apiVersions, 'API versions'),
    ...apiVersions.flatMap((version, index) => (version === '' ? [required(`${at}.apiVersions[${index}]`)] : [])),
    ...resourcesErrors(`${at}.resources`, resources),
  ];
  errors.push(...optionalOneOf(`${at}.scope`, scope, SCOPES));
  return errors;
}

/**
 * Validates resources and subresources. A wildcard must not include other items of the list. As in kube-apiserver, a wildcard
 * on one side of a slash is compared with later items only.
 */
function resourcesErrors(field: string, resources: readonly string[]): FieldError[] {
  if (resources.length === 0) return [required(field)];
  const errors: FieldError[] = [];
  const withAllSubresources = new Set<string>();
  const ofAllResources = new Set<string>();
  let plain = false;
  for (const [index, text] of resources.entries()) {
    const at = `${field}[${index}]`;
    if (text === '') {
      errors.push(required(at));
      continue;
    }
    const slash = text.indexOf('/');
    if (slash === -1) {
      // As in kube-apiserver, only the last item without a slash decides.
      plain = text !== '*';
      continue;
    }
    const resource = text.slice(0, slash);
    const subresource = text.slice(slash + 1);
    if (withAllSubresources.has(resource))
      errors.push(invalid(at, text, `if '${resource}/*' is present, must not specify ${text}`));
    if (ofAllResources.has(subresource))
      errors.push(invalid(at, text, `if '*/${subresource}' is present, must not specify ${text}`));
    if (subresource === '*') withAllSubresources.add(resource);
    if (resource === '*') ofAllResources.add(subresource);
  }
  if (resources.length > 1 && resources.includes('*/*'))
    errors.push(invalid(field, resources, "if '*/*' is present, must not specify other resources"));
  if (resources.includes('*') && plain) {
    const text = "if '*' is present, must not specify other resources without subresources";
    errors.push(invalid(field, resources, text));
  }
  return errors;
}

function namedRuleErrors(rule: NamedRule, at: string): FieldError[] {
  const seen = new Set<string>();
  const errors = (rule.resourceNames ?? []).flatMap((name, index) => {
    const field = `${at}.resourceNames[${index}]`;
    const found = invalidFor(field, name, pathSegmentErrors(name));
    if (seen.has(name)) found.push(duplicate(field, name));
    seen.add(name);
    return found;
  });
  return [...errors, ...ruleErrors(rule, at)];
}

/** Returns the errors of `matchConstraints` or `matchResources`, whose path is `at`. */
export function matchResourcesErrors(match: MatchResources, at: string): FieldError[] {
  const { matchPolicy, namespaceSelector, objectSelector, resourceRules = [], excludeResourceRules = [] } = match;
  const selectorErrors = (name: string, selector: unknown): FieldError[] =>
    selector === undefined
      ? [required(`${at}.${name}`)]
      : validateLabelSelector(selector as V1LabelSelector, `${at}.${name}`);
  return [
    ...(matchPolicy === undefined
      ? [required(`${at}.matchPolicy`)]
      : optionalOneOf(`${at}.matchPolicy`, matchPolicy, MATCH_POLICIES)),
    ...selectorErrors('namespaceSelector', namespaceSelector),
    ...selectorErrors('objectSelector', objectSelector),
    ...resourceRules.flatMap((rule, index) => namedRuleErrors(rule, `${at}.resourceRules[${index}]`)),
    ...excludeResourceRules.flatMap((rule, index) => namedRuleErrors(rule, `${at}.excludeResourceRules[${index}]`)),
  ];
}

interface ConditionRules {
  readonly check: ExpressionChecker;
  readonly params: boolean;
}

/** Allows at most 64 conditions. Names must be unique, and each expression must compile to a boolean. */
export function matchConditionErrors(
  conditions: readonly MatchCondition[],
  field: string,
  { check, params }: ConditionRules,
): FieldError[] {
  const names = new Set<string>();
  const errors = maxItems(field, conditions, MAX_CONDITIONS);
  for (const [index, { name = '', expression = '' }] of conditions.entries()) {
    const at = `${field}[${index}]`;
    const text = expression.trim();
    if (text === '') errors.push(required(`${at}.expression`));
    else
      errors.push(
        ...expressionErrors(check, `${at}.expression`, { place: 'matchCondition', expression: text, params }),
      );
    if (name === '') {
      errors.push(required(`${at}.name`));
      continue;
    }
    errors.push(...invalidFor(`${at}.name`, name, qualifiedNameErrors(name)));
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    names.add(name);
  }
  return errors;
}
