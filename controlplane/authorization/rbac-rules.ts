/**
 * Implements operations on RBAC rules: matching of requests, comparison for escalation checks, and the format of error
 * messages.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import { quote } from '../../api/meta/field-error.ts';
import type { AuthorizationAttributes } from './authorization.ts';

/** A rule of a Role or ClusterRole, as it is stored. */
export interface PolicyRule {
  readonly verbs: readonly string[];
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly nonResourceURLs?: readonly string[];
}

/** The attributes of a request that rules match. `combined` is `pods` or `pods/log`. */
interface RuleQuery {
  readonly verb: string;
  readonly isResourceRequest: boolean;
  readonly group: string;
  readonly combined: string;
  /** `*\/log` for `pods/log`; otherwise empty. */
  readonly anyParent: string;
  readonly name: string;
  readonly path: string;
}

/** Computes once per request what every rule is compared with. */
export function ruleQuery(attributes: AuthorizationAttributes): RuleQuery {
  const { resource, subresource } = attributes;
  return {
    verb: attributes.verb,
    isResourceRequest: attributes.isResourceRequest,
    group: attributes.group,
    combined: subresource === '' ? resource : `${resource}/${subresource}`,
    anyParent: subresource === '' ? '' : `*/${subresource}`,
    name: attributes.name,
    path: attributes.path,
  };
}

const ALL = '*';

/** The lists of a rule are short (one to five words), so a scan is faster than a hash lookup. */
export function ruleAllows(rule: PolicyRule, query: RuleQuery): boolean {
  const { verbs } = rule;
  if (!verbs.includes(query.verb) && !verbs.includes(ALL)) return false;
  if (!query.isResourceRequest)
    return rule.nonResourceURLs?.some((pattern) => urlMatches(pattern, query.path)) ?? false;
  const groups = rule.apiGroups ?? [];
  if (!groups.includes(query.group) && !groups.includes(ALL)) return false;
  const resources = rule.resources ?? [];
  if (
    !resources.includes(query.combined) &&
    !resources.includes(ALL) &&
    !(query.anyParent !== '' && resources.includes(query.anyParent))
  ) {
    return false;
  }
  const names = rule.resourceNames;
  return names === undefined || names === null || names.length === 0 || names.includes(query.name);
}

function urlMatches(pattern: string, path: string): boolean {
  if (pattern === ALL || pattern === path) return true;
  return pattern.endsWith('*') && path.startsWith(pattern.slice(0, -1));
}

const has = (list: readonly string[] | undefined, item: string): boolean => list?.includes(item) ?? false;
function hasAll(list: readonly string[] | undefined, items: readonly string[]): boolean {
  if (list === undefined || items.length <= 4) return items.every((item) => has(list, item));
  const all = new Set(list);
  return items.every((item) => all.has(item));
}

/**
 * The combinations of group, resource, verb and name that one comparison takes apart. A rule of three lists has the product
 * of their lengths: 3 KB of text are millions of combinations.
 */
const MAX_COMBINATIONS = 20_000;

/** The rules have more combinations than are compared one by one. */
export class TooManyCombinations extends Error {
  override readonly name = 'TooManyCombinations';

  constructor() {
    super(`the rules have more than ${MAX_COMBINATIONS} combinations of groups, resources, verbs and names`);
  }
}

/**
 * Returns the parts of `wanted` that no rule of `held` covers, split by verb and then compacted by resource. Empty if
 * everything is covered. Throws `TooManyCombinations`; a rule that one rule of `held` covers as a whole is not taken apart.
 */
export function missingRules(held: readonly PolicyRule[], wanted: readonly PolicyRule[]): PolicyRule[] {
  const apart = wanted.filter((rule) => !held.some((owner) => coversWhole(owner, rule)));
  const combinations = apart.reduce((sum, rule) => sum + combinationsOf(rule), 0);
  if (combinations > MAX_COMBINATIONS) throw new TooManyCombinations();
  const missing = apart.flatMap(breakDown).filter((single) => !held.some((rule) => covers(rule, single)));
  return compact(missing);
}

function combinationsOf({ apiGroups, resources, resourceNames, nonResourceURLs, verbs }: PolicyRule): number {
  const targets = (apiGroups?.length ?? 0) * (resources?.length ?? 0) * Math.max(1, resourceNames?.length ?? 0);
  return (targets + (nonResourceURLs?.length ?? 0)) * verbs.length;
}

/** A rule about both resources and URLs is never covered by one rule. */
function coversWhole(owner: PolicyRule, { nonResourceURLs, ...rule }: PolicyRule): boolean {
  const hasUrls = (nonResourceURLs?.length ?? 0) > 0;
  const hasResources = (rule.apiGroups?.length ?? 0) > 0 && (rule.resources?.length ?? 0) > 0;
  if (hasUrls === hasResources) return false;
  return covers(owner, hasUrls && nonResourceURLs !== undefined ? { verbs: rule.verbs, nonResourceURLs } : rule);
}

function breakDown(rule: PolicyRule): PolicyRule[] {
  const singles: PolicyRule[] = [];
  const names = rule.resourceNames ?? [];
  for (const group of rule.apiGroups ?? []) {
    for (const resource of rule.resources ?? []) {
      for (const verb of rule.verbs) {
        const single = { apiGroups: [group], resources: [resource], verbs: [verb] };
        if (names.length === 0) singles.push(single);
        for (const name of names) singles.push({ ...single, resourceNames: [name] });
      }
    }
  }
  for (const url of rule.nonResourceURLs ?? []) {
    for (const verb of rule.verbs) singles.push({ nonResourceURLs: [url], verbs: [verb] });
  }
  return singles;
}

function covers(owner: PolicyRule, single: PolicyRule): boolean {
  if (!has(owner.verbs, ALL) && !hasAll(owner.verbs, single.verbs)) return false;
  if (single.nonResourceURLs !== undefined) {
    return single.nonResourceURLs.every(
      (url) => owner.nonResourceURLs?.some((pattern) => urlMatches(pattern, url)) ?? false,
    );
  }
  if (!has(owner.apiGroups, ALL) && !hasAll(owner.apiGroups, single.apiGroups ?? [])) return false;
  const resourcesCovered = (single.resources ?? []).every((resource) => {
    const slash = resource.indexOf('/');
    return (
      has(owner.resources, ALL) ||
      has(owner.resources, resource) ||
      (slash >= 0 && has(owner.resources, `*/${resource.slice(slash + 1)}`))
    );
  });
  if (!resourcesCovered) return false;
  const ownerNames = owner.resourceNames ?? [];
  if (ownerNames.length === 0) return true;
  const names = single.resourceNames ?? [];
  return names.length > 0 && hasAll(ownerNames, names);
}

/** Merges the rules of one group, resource and name into one rule with all their verbs. */
export function compact(rules: readonly PolicyRule[]): PolicyRule[] {
  const simple = new Map<string, PolicyRule & { verbs: string[] }>();
  const others: PolicyRule[] = [];
  for (const rule of rules) {
    const isSimple =
      rule.apiGroups?.length === 1 &&
      rule.resources?.length === 1 &&
      (rule.resourceNames?.length ?? 0) <= 1 &&
      (rule.nonResourceURLs?.length ?? 0) === 0;
    if (!isSimple) {
      others.push(rule);
      continue;
    }
    const key = stringifyJson([rule.apiGroups, rule.resources, rule.resourceNames]);
    const found = simple.get(key);
    if (found === undefined) simple.set(key, { ...rule, verbs: [...rule.verbs] });
    else found.verbs.push(...rule.verbs.filter((verb) => !found.verbs.includes(verb)));
  }
  return [...others, ...simple.values()];
}

/** Formats a rule like `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`. */
export function formatRule(rule: PolicyRule): string {
  const parts: string[] = [];
  const add = (name: string, list: readonly string[] | undefined): void => {
    if (list !== undefined && list.length > 0) parts.push(`${name}:[${list.map(quote).join(' ')}]`);
  };
  add('APIGroups', rule.apiGroups);
  add('Resources', rule.resources);
  add('NonResourceURLs', rule.nonResourceURLs);
  add('ResourceNames', rule.resourceNames);
  add('Verbs', rule.verbs);
  return `{${parts.join(', ')}}`;
}
