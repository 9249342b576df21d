/**
 * Implements operations on RBAC rules: matching of requests, comparison for escalation checks, and the format of error
 * messages.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import { inOneSlice, type Slice } from '../../../api/machinery/time-slice.ts';
import { quote } from '../../../api/meta/field-error.ts';
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

/** Whether a rule of RBAC allows the request. */
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

/**
 * The maximum number of combinations of group, resource, verb and name that one comparison compares one by one. A rule of three
 * lists has the product of their lengths: 3 KB of text are millions of combinations.
 */
const MAX_COMBINATIONS = 20_000;

/** The maximum number of steps of one comparison. A client may hold as many rules as fit into the roles of its namespace. */
const MAX_STEPS = 20_000_000;

/** Thrown if the rules have more combinations than are compared one by one, or the client holds too many rules for that. */
export class TooManyCombinations extends Error {
  override readonly name = 'TooManyCombinations';
}

/** Counts the steps of one comparison, and throws `TooManyCombinations` beyond their maximum. */
class Steps {
  #left = MAX_STEPS;

  spend(count: number): void {
    this.#left -= count;
    if (this.#left < 0)
      throw new TooManyCombinations(`comparing the rules with those of the user takes more than ${MAX_STEPS} steps`);
  }
}

/** Computes what `missingInSlices` does, without pauses. */
export const missingRules = (held: readonly PolicyRule[], wanted: readonly PolicyRule[]): PolicyRule[] =>
  inOneSlice(missingInSlices(held, wanted));

/**
 * Returns the parts of `wanted` that no rule of `held` covers, split by verb and then compacted by resource. Empty if
 * everything is covered. Throws `TooManyCombinations` if the rules that no single rule covers have more than
 * `MAX_COMBINATIONS`, or beyond `MAX_STEPS`. Yields whenever `slice` is spent.
 */
export function* missingInSlices(
  held: readonly PolicyRule[],
  wanted: readonly PolicyRule[],
  slice?: Slice,
): Generator<void, PolicyRule[], undefined> {
  const steps = new Steps();
  const owners: HeldRule[] = [];
  for (const rule of held) {
    owners.push(heldRule(rule));
    if (slice?.isSpent === true) yield;
  }
  const isCovered = function* (rule: PolicyRule): Generator<void, boolean, undefined> {
    for (const owner of owners) {
      if (covers(owner, rule, steps)) return true;
      if (slice?.isSpent === true) yield;
    }
    return false;
  };
  const uncovered: PolicyRule[] = [];
  for (const rule of wanted) {
    const whole = wholeOf(rule);
    if (whole === undefined || !(yield* isCovered(whole))) uncovered.push(rule);
  }
  const combinations = uncovered.reduce((sum, rule) => sum + combinationsOf(rule), 0);
  if (combinations > MAX_COMBINATIONS)
    throw new TooManyCombinations(
      `the rules have more than ${MAX_COMBINATIONS} combinations of groups, resources, verbs and names`,
    );
  const missing: PolicyRule[] = [];
  for (const single of uncovered.flatMap(breakDown)) if (!(yield* isCovered(single))) missing.push(single);
  return compact(missing);
}

function combinationsOf({ apiGroups, resources, resourceNames, nonResourceURLs, verbs }: PolicyRule): number {
  const targets = (apiGroups?.length ?? 0) * (resources?.length ?? 0) * Math.max(1, resourceNames?.length ?? 0);
  return (targets + (nonResourceURLs?.length ?? 0)) * verbs.length;
}

/** Returns the rule if one rule may cover it. A rule about both resources and URLs is never covered by one rule. */
function wholeOf({ nonResourceURLs, ...rule }: PolicyRule): PolicyRule | undefined {
  const hasUrls = (nonResourceURLs?.length ?? 0) > 0;
  const hasResources = (rule.apiGroups?.length ?? 0) > 0 && (rule.resources?.length ?? 0) > 0;
  if (hasUrls === hasResources) return undefined;
  return hasUrls && nonResourceURLs !== undefined ? { verbs: rule.verbs, nonResourceURLs } : rule;
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

/** A rule that a client holds. Its lists are sets, because each may have thousands of items. */
interface HeldRule {
  readonly verbs: ReadonlySet<string>;
  readonly groups: ReadonlySet<string>;
  readonly resources: ReadonlySet<string>;
  readonly names: ReadonlySet<string>;
  readonly urls: ReadonlySet<string>;
  readonly urlPatterns: readonly string[];
}

function heldRule({ verbs, apiGroups, resources, resourceNames, nonResourceURLs }: PolicyRule): HeldRule {
  return {
    verbs: setOf(verbs),
    groups: setOf(apiGroups),
    resources: setOf(resources),
    names: setOf(resourceNames),
    urls: setOf(nonResourceURLs),
    urlPatterns: nonResourceURLs?.filter((url) => url.endsWith(ALL)) ?? NONE,
  };
}

const NONE: readonly string[] = [];
const EMPTY: ReadonlySet<string> = new Set();

function setOf(items: readonly string[] = NONE): ReadonlySet<string> {
  return items.length === 0 ? EMPTY : new Set(items);
}

function covers(owner: HeldRule, single: PolicyRule, steps: Steps): boolean {
  const hasAll = (owned: ReadonlySet<string>, items: readonly string[] = []): boolean => {
    steps.spend(1 + (owned.has(ALL) ? 0 : items.length));
    return owned.has(ALL) || items.every((item) => owned.has(item));
  };
  if (!hasAll(owner.verbs, single.verbs)) return false;
  if (single.nonResourceURLs !== undefined) {
    return single.nonResourceURLs.every((url) => {
      steps.spend(1 + owner.urlPatterns.length);
      return owner.urls.has(url) || owner.urlPatterns.some((pattern) => urlMatches(pattern, url));
    });
  }
  if (!hasAll(owner.groups, single.apiGroups)) return false;
  const resourcesCovered = (single.resources ?? []).every((resource) => {
    steps.spend(1);
    const slash = resource.indexOf('/');
    return (
      owner.resources.has(ALL) ||
      owner.resources.has(resource) ||
      (slash >= 0 && owner.resources.has(`*/${resource.slice(slash + 1)}`))
    );
  });
  if (!resourcesCovered) return false;
  if (owner.names.size === 0) return true;
  const names = single.resourceNames ?? [];
  // `*` is no pattern among the names of objects.
  steps.spend(1 + names.length);
  return names.length > 0 && names.every((name) => owner.names.has(name));
}

/**
 * Merges rules that are about the same single group, resource and name into one rule with all their verbs. All other rules
 * stay as they are, and come first.
 */
export function compact(rules: readonly PolicyRule[]): PolicyRule[] {
  const simple = new Map<string, { readonly rule: PolicyRule; readonly verbs: Set<string> }>();
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
    if (found === undefined) simple.set(key, { rule, verbs: new Set(rule.verbs) });
    else for (const verb of rule.verbs) found.verbs.add(verb);
  }
  return [...others, ...[...simple.values()].map(({ rule, verbs }) => ({ ...rule, verbs: [...verbs] }))];
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
