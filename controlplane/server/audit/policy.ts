/**
 * Parses and evaluates the audit policy, which determines the audit level of each request. The first matching rule
 * applies; without one, the level is None. Pure.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { parseYaml } from '../../../api/codec/yaml.ts';

/** The levels of `audit.k8s.io/v1`, from the least to the most detail. */
const LEVELS = ['None', 'Metadata', 'Request', 'RequestResponse'] as const;
/** How much of a request is recorded. */
export type Level = (typeof LEVELS)[number];
/** The stages of a request at which events are sent. */
const STAGES = ['RequestReceived', 'ResponseStarted', 'ResponseComplete', 'Panic'] as const;
/** A stage of `audit.k8s.io/v1`. */
export type Stage = (typeof STAGES)[number];

/** What the rules of a policy match. */
export interface AuditedRequest {
  readonly user: { readonly name: string; readonly groups: readonly string[] };
  readonly info: {
    readonly isResource: boolean;
    readonly verb: string;
    readonly path: string;
    readonly group: string;
    readonly resource: string;
    readonly subresource: string;
    readonly namespace: string;
    readonly name: string;
  };
}

/** What the first matching rule determines, with the defaults of the policy. */
export interface AuditDecision {
  readonly level: Level;
  readonly omitStages: ReadonlySet<string>;
  readonly omitManagedFields: boolean;
}

/** A parsed policy. Deciding has no side effects. */
export interface AuditPolicy {
  decide(request: AuditedRequest): AuditDecision;
}

interface GroupResources {
  readonly group: string;
  readonly resources: readonly string[];
  readonly resourceNames: readonly string[];
}

interface Rule {
  readonly decision: AuditDecision;
  readonly users: readonly string[];
  readonly userGroups: readonly string[];
  readonly verbs: readonly string[];
  readonly resources: readonly GroupResources[];
  readonly namespaces: readonly string[];
  readonly nonResourceURLs: readonly string[];
}

const NOTHING: AuditDecision = { level: 'None', omitStages: new Set(), omitManagedFields: false };

/** Parses an audit policy. Throws an error with the file name and the reason. */
export function parseAuditPolicy(text: string, path: string): AuditPolicy {
  const refuse = (why: string): never => {
    throw new Error(`${path}: ${why}`);
  };
  const value = parsedYaml(text, refuse);
  if (!isJsonObject(value) || value['kind'] !== 'Policy' || value['apiVersion'] !== 'audit.k8s.io/v1')
    return refuse('not a Policy of audit.k8s.io/v1');
  const { rules } = value;
  if (!Array.isArray(rules) || rules.length === 0) return refuse('an audit policy needs at least one rule');
  const stages = stagesOf(value['omitStages'], 'omitStages', refuse);
  const omitManagedFields = value['omitManagedFields'] === true;
  const compiled = rules.map((rule: unknown, i) =>
    compileRule(rule, `rules[${i}]`, { stages, omitManagedFields }, refuse),
  );
  return { decide: (request) => compiled.find((rule) => matches(rule, request))?.decision ?? NOTHING };
}

function parsedYaml(text: string, refuse: (why: string) => never): unknown {
  try {
    return parseYaml(text).value;
  } catch (error) {
    return refuse(errorMessage(error));
  }
}

function compileRule(
  rule: unknown,
  at: string,
  outer: { readonly stages: readonly string[]; readonly omitManagedFields: boolean },
  refuse: (why: string) => never,
): Rule {
  if (!isJsonObject(rule)) return refuse(`${at} must be an object`);
  const level = LEVELS.find((one) => one === rule['level']);
  if (level === undefined) return refuse(`${at}.level must be one of ${LEVELS.join(', ')}`);
  const list = (field: string): string[] => {
    const value = rule[field] ?? [];
    if (!Array.isArray(value) || !value.every((one): one is string => typeof one === 'string'))
      return refuse(`${at}.${field} must be a list of strings`);
    return value;
  };
  const resources = rule['resources'] ?? [];
  const nonResourceURLs = list('nonResourceURLs');
  if (!Array.isArray(resources)) return refuse(`${at}.resources must be a list`);
  if (nonResourceURLs.length > 0 && (resources.length > 0 || list('namespaces').length > 0))
    return refuse(`${at}: rules cannot apply to both regular resources and non-resource URLs`);
  for (const url of nonResourceURLs) {
    if (url !== '*' && !url.startsWith('/')) return refuse(`${at}.nonResourceURLs: "${url}" must begin with a slash`);
    if (/\*./.test(url)) return refuse(`${at}.nonResourceURLs: "${url}" may have a * at its end only`);
  }
  const omitStages = new Set([...outer.stages, ...stagesOf(rule['omitStages'], `${at}.omitStages`, refuse)]);
  const omitManagedFields =
    typeof rule['omitManagedFields'] === 'boolean' ? rule['omitManagedFields'] : outer.omitManagedFields;
  return {
    decision: { level, omitStages, omitManagedFields },
    users: list('users'),
    userGroups: list('userGroups'),
    verbs: list('verbs'),
    resources: resources.map((one: unknown, i) => groupResources(one, `${at}.resources[${i}]`, refuse)),
    namespaces: list('namespaces'),
    nonResourceURLs,
  };
}

function groupResources(value: unknown, at: string, refuse: (why: string) => never): GroupResources {
  if (!isJsonObject(value)) return refuse(`${at} must be an object`);
  const { group = '', resources = [], resourceNames = [] } = value;
  if (typeof group !== 'string' || !Array.isArray(resources) || !Array.isArray(resourceNames))
    return refuse(`${at} must have the string group and the lists resources and resourceNames`);
  if (group.includes('/')) return refuse(`${at}.group: "${group}" must be a group without version`);
  if (resourceNames.length > 0 && resources.length === 0)
    return refuse(`${at}.resourceNames: resource names require at least one resource`);
  return { group, resources: resources.map(String), resourceNames: resourceNames.map(String) };
}

function stagesOf(value: unknown, at: string, refuse: (why: string) => never): string[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) return refuse(`${at} must be a list`);
  return value.map((stage: unknown) =>
    STAGES.includes(stage as Stage) ? String(stage) : refuse(`${at}: "${String(stage)}" is not a stage`),
  );
}

const isIn = (list: readonly string[], value: string): boolean => list.length === 0 || list.includes(value);

function matches(rule: Rule, { user, info }: AuditedRequest): boolean {
  if (!isIn(rule.users, user.name)) return false;
  if (rule.userGroups.length > 0 && !rule.userGroups.some((group) => user.groups.includes(group))) return false;
  if (!isIn(rule.verbs, info.verb)) return false;
  if (rule.namespaces.length > 0 || rule.resources.length > 0) {
    if (!info.isResource || !isIn(rule.namespaces, info.namespace)) return false;
    return rule.resources.length === 0 || rule.resources.some((one) => coversResource(one, info));
  }
  if (rule.nonResourceURLs.length > 0) {
    return !info.isResource && rule.nonResourceURLs.some((pattern) => coversPath(pattern, info.path));
  }
  return true;
}

function coversResource({ group, resources, resourceNames }: GroupResources, info: AuditedRequest['info']): boolean {
  if (group !== info.group) return false;
  if (resources.length === 0) return true;
  if (!isIn(resourceNames, info.name)) return false;
  const { resource, subresource } = info;
  const combined = subresource === '' ? resource : `${resource}/${subresource}`;
  return resources.some(
    (one) =>
      one === combined ||
      one === '*' ||
      (subresource !== '' && (one === `*/${subresource}` || one === `${resource}/*`)),
  );
}

const coversPath = (pattern: string, path: string): boolean =>
  pattern === '*' ||
  pattern === path ||
  (pattern.endsWith('*') && path.startsWith(pattern.slice(0, -1).replace(/\/$/, '')));
