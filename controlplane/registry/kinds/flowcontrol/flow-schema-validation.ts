/** Validates flow schemas: the subjects and the requests that they match. */
import { type FieldError, forbidden, invalid, notSupported, required } from '../../../../api/meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../../../../api/meta/names.ts';
import { wildcardErrors } from '../field-rules.ts';
import type { FlowSchemaSpec } from './flowcontrol-types.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Rule = NonNullable<FlowSchemaSpec['rules']>[number];
type Subject = NonNullable<Rule['subjects']>[number];
type ResourceRule = NonNullable<Rule['resourceRules']>[number];
type NonResourceRule = NonNullable<Rule['nonResourceRules']>[number];

/** The largest `matchingPrecedence`. */
const MAX_PRECEDENCE = 10_000;
const METHODS = ['ByNamespace', 'ByUser'];
const VERBS = ['get', 'list', 'create', 'update', 'delete', 'deletecollection', 'patch', 'watch', 'proxy'];
const SUBJECT_KINDS = ['ServiceAccount', 'Group', 'User'];
const ALL = '*';

/** Returns the errors of a flow schema. Only the schema `exempt` may have the precedence 1. */
export function flowSchemaErrors(name: string, spec: FlowSchemaSpec): FieldError[] {
  const errors: FieldError[] = [];
  const { matchingPrecedence: precedence = 0, distinguisherMethod: method } = spec;
  const field = 'spec.matchingPrecedence';
  if (precedence <= 0) errors.push(invalid(field, precedence, 'must be a positive value'));
  if (precedence > MAX_PRECEDENCE)
    errors.push(invalid(field, precedence, `must not be greater than ${MAX_PRECEDENCE}`));
  if (precedence === 1 && name !== 'exempt')
    errors.push(invalid(field, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"));
  if (method !== undefined && !METHODS.includes(method.type ?? ''))
    errors.push(notSupported('spec.distinguisherMethod.type', { Type: method.type ?? '' }, METHODS));
  const level = spec.priorityLevelConfiguration?.name ?? '';
  const levelField = 'spec.priorityLevelConfiguration.name';
  if (level === '') errors.push(required(levelField, 'must reference a priority level'));
  else errors.push(...invalidFor(levelField, level, dnsSubdomainErrors(level)));
  for (const [index, rule] of (spec.rules ?? []).entries()) errors.push(...ruleErrors(rule, `spec.rules[${index}]`));
  return errors;
}

function ruleErrors(rule: Rule, at: string): FieldError[] {
  const { subjects = [], resourceRules = [], nonResourceRules = [] } = rule;
  const errors = subjects.flatMap((subject, index) => subjectErrors(subject, `${at}.subjects[${index}]`));
  if (subjects.length === 0) errors.push(required(`${at}.subjects`, 'subjects must contain at least one value'));
  if (resourceRules.length === 0 && nonResourceRules.length === 0)
    errors.push(required(at, 'at least one of resourceRules and nonResourceRules has to be non-empty'));
  for (const [index, one] of resourceRules.entries())
    errors.push(...resourceRuleErrors(one, `${at}.resourceRules[${index}]`));
  for (const [index, one] of nonResourceRules.entries())
    errors.push(...nonResourceRuleErrors(one, `${at}.nonResourceRules[${index}]`));
  return errors;
}

/** The member of a subject that each kind of subject requires. */
const MEMBERS = { ServiceAccount: 'serviceAccount', User: 'user', Group: 'group' } as const;
type SubjectKind = keyof typeof MEMBERS;

function subjectErrors(subject: Subject, at: string): FieldError[] {
  const { kind = '' } = subject;
  if (!SUBJECT_KINDS.includes(kind)) return [notSupported(`${at}.kind`, kind, SUBJECT_KINDS)];
  const errors = memberErrors(subject, kind as SubjectKind, at);
  for (const other of ['ServiceAccount', 'User', 'Group'] as const) {
    const member = MEMBERS[other];
    if (other !== kind && subject[member] !== undefined)
      errors.push(forbidden(`${at}.${member}`, `${member} is forbidden when subject kind is not '${other}'`));
  }
  return errors;
}

function memberErrors(subject: Subject, kind: SubjectKind, at: string): FieldError[] {
  const member = MEMBERS[kind];
  const field = `${at}.${member}`;
  const found = subject[member];
  if (found === undefined) return [required(field, `${member} is required when subject kind is '${kind}'`)];
  const { name = '' } = found;
  const errors: FieldError[] = name === '' ? [required(`${field}.name`)] : [];
  if (kind !== 'ServiceAccount') return errors;
  if (name !== '' && name !== ALL) errors.push(...invalidFor(`${field}.name`, name, dnsSubdomainErrors(name)));
  const namespace = subject.serviceAccount?.namespace ?? '';
  if (namespace === '') errors.push(required(`${field}.namespace`, 'must specify namespace for service account'));
  else errors.push(...invalidFor(`${field}.namespace`, namespace, dnsLabelErrors(namespace)));
  return errors;
}

function verbErrors(verbs: readonly string[], at: string): FieldError[] {
  const field = `${at}.verbs`;
  if (verbs.length === 0) return [required(field, 'verbs must contain at least one value')];
  if (verbs.includes(ALL)) return wildcardErrors(field, verbs, 'verbs');
  return verbs.every((verb) => VERBS.includes(verb)) ? [] : [notSupported(field, verbs, VERBS)];
}

function resourceRuleErrors(rule: ResourceRule, at: string): FieldError[] {
  const { verbs = [], apiGroups = [], resources = [], namespaces = [], clusterScope = false } = rule;
  const errors = verbErrors(verbs, at);
  if (apiGroups.length === 0)
    errors.push(required(`${at}.apiGroups`, 'resource rules must supply at least one api group'));
  else errors.push(...wildcardErrors(`${at}.apiGroups`, apiGroups, 'api groups'));
  if (resources.length === 0)
    errors.push(required(`${at}.resources`, 'resource rules must supply at least one resource'));
  else errors.push(...wildcardErrors(`${at}.resources`, resources, 'resources'));
  const field = `${at}.namespaces`;
  if (namespaces.length === 0 && !clusterScope)
    errors.push(required(field, 'resource rules that are not cluster scoped must supply at least one namespace'));
  else if (namespaces.includes(ALL)) errors.push(...wildcardErrors(field, namespaces, 'namespaces'));
  else
    for (const [index, namespace] of namespaces.entries())
      for (const text of dnsLabelErrors(namespace))
        errors.push(
          invalid(`${field}[${index}]`, namespace, `each member of this list must be '*' or a DNS-1123 label; ${text}`),
        );
  return errors;
}

function nonResourceRuleErrors(rule: NonResourceRule, at: string): FieldError[] {
  const { verbs = [], nonResourceURLs: urls = [] } = rule;
  const field = `${at}.nonResourceURLs`;
  const errors = verbErrors(verbs, at);
  if (urls.length === 0) errors.push(required(field, 'nonResourceURLs must contain at least one value'));
  else if (urls.includes(ALL)) errors.push(...wildcardErrors(field, urls, 'non-resource URLs'));
  else for (const [index, url] of urls.entries()) errors.push(...urlErrors(`${field}[${index}]`, url));
  return errors;
}

function urlErrors(field: string, url: string): FieldError[] {
  const refused = (why: string): FieldError[] => [invalid(field, url, why)];
  if (url === '') return refused('must not be empty');
  if (url === '/') return [];
  if (!url.startsWith('/')) return refused('must start with slash');
  if (url.includes(' ')) return refused('must not contain white-space');
  if (url.includes('//')) return refused('must not contain double slash');
  const wildcards = url.split('*').length - 1;
  return wildcards > 1 || (wildcards === 1 && !url.endsWith('/*'))
    ? refused('wildcard can only do suffix matching')
    : [];
}
