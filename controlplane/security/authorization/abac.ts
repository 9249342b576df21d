/**
 * Authorizes by ABAC: a file with one policy as a JSON object per line, read at start. A policy applies to anonymous callers
 * only if it names them.
 */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type {
  AuthorizationAttributes,
  Authorizer,
  NonResourceRule,
  ResourceRule,
  RuleResolver,
} from './authorization.ts';
import { AUTHENTICATED_GROUP } from '../../../api/meta/system-users.ts';

interface AbacPolicy {
  readonly user: string;
  readonly group: string;
  readonly readonly: boolean;
  readonly apiGroup: string;
  readonly resource: string;
  readonly namespace: string;
  readonly nonResourcePath: string;
}

const KIND = 'Policy';
const VERSION = 'abac.authorization.kubernetes.io/v1beta1';
const OLD_VERSION = 'abac.authorization.kubernetes.io/v0';
const READ_VERBS = new Set(['get', 'list', 'watch']);

/** Creates the authorizer from the text of a policy file. Throws an error with the line number for an invalid policy. */
export function abacAuthorizer(text: string, path: string): Authorizer & RuleResolver {
  const policies: AbacPolicy[] = [];
  for (const [i, raw] of text.split('\n').entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    policies.push(readPolicy(line, `${path}, line ${i + 1}`));
  }
  return {
    authorize(attributes) {
      const allowed = policies.some((policy) => subjectMatches(policy, attributes.user) && matches(policy, attributes));
      return allowed ? { decision: 'allow', reason: '' } : { decision: 'no-opinion', reason: 'No policy matched.' };
    },
    rulesFor(user, namespace) {
      const resourceRules: ResourceRule[] = [];
      const nonResourceRules: NonResourceRule[] = [];
      for (const policy of policies) {
        if (!subjectMatches(policy, user)) continue;
        const verbs = policy.readonly ? [...READ_VERBS] : ['*'];
        if (policy.resource !== '' && (policy.namespace === '*' || policy.namespace === namespace)) {
          resourceRules.push({ verbs, apiGroups: [policy.apiGroup], resources: [policy.resource] });
        }
        if (policy.nonResourcePath !== '') nonResourceRules.push({ verbs, nonResourceURLs: [policy.nonResourcePath] });
      }
      return { resourceRules, nonResourceRules, incomplete: false };
    },
  };
}

function readPolicy(line: string, where: string): AbacPolicy {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw new Error(`${where}: not valid JSON`, { cause: error });
  }
  if (!isJsonObject(value)) throw new Error(`${where}: not an object`);
  const { kind, apiVersion } = value;
  const isOld = (kind === undefined && apiVersion === undefined) || (kind === KIND && apiVersion === OLD_VERSION);
  const text = (source: Record<string, unknown>, field: string): string => {
    const found = source[field] ?? '';
    if (typeof found !== 'string') throw new Error(`${where}: ${field} must be a string`);
    return found;
  };
  if (isOld) return oldPolicy(value, (field) => text(value as Record<string, unknown>, field));
  if (kind !== KIND || apiVersion !== VERSION)
    throw new Error(`${where}: not a ${KIND} of ${VERSION} or ${OLD_VERSION}`);
  const { spec } = value;
  if (!isJsonObject(spec)) throw new Error(`${where}: spec is missing`);
  const field = (name: string): string => text(spec, name);
  return {
    user: field('user'),
    group: field('group'),
    readonly: spec['readonly'] === true,
    apiGroup: field('apiGroup'),
    resource: field('resource'),
    namespace: field('namespace'),
    nonResourcePath: field('nonResourcePath'),
  };
}

/**
 * Converts a policy of version v0, which is also that of a line without a version. Its fields stand beside `kind`, not in a
 * `spec`. An empty resource or namespace matches all of them, and a policy with neither also matches all paths. Throws if a
 * field is not a string.
 */
function oldPolicy(value: Record<string, unknown>, text: (field: string) => string): AbacPolicy {
  const user = text('user');
  const group = text('group');
  const isEveryone = (user === '' && group === '') || user === '*' || group === '*';
  return {
    user: isEveryone ? '' : user,
    group: isEveryone ? AUTHENTICATED_GROUP : group,
    readonly: value['readonly'] === true,
    apiGroup: '*',
    resource: text('resource') === '' ? '*' : text('resource'),
    namespace: text('namespace') === '' ? '*' : text('namespace'),
    nonResourcePath: text('resource') === '' && text('namespace') === '' ? '*' : '',
  };
}

function subjectMatches(policy: AbacPolicy, user: AuthorizationAttributes['user']): boolean {
  // A wildcard matches every authenticated user, but not anonymous callers.
  const isAuthenticated = user.groups.includes(AUTHENTICATED_GROUP);
  let matched = false;
  if (policy.user !== '') {
    matched = policy.user === '*' ? isAuthenticated : policy.user === user.name;
    if (!matched) return false;
  }
  if (policy.group !== '') {
    matched = policy.group === '*' ? isAuthenticated : user.groups.includes(policy.group);
    if (!matched) return false;
  }
  return matched;
}

function matches(policy: AbacPolicy, attributes: AuthorizationAttributes): boolean {
  if (policy.readonly && !READ_VERBS.has(attributes.verb)) return false;
  if (!attributes.isResourceRequest) {
    const { nonResourcePath } = policy;
    if (nonResourcePath === '*' || nonResourcePath === attributes.path) return nonResourcePath !== '';
    return nonResourcePath.endsWith('*') && attributes.path.startsWith(nonResourcePath.slice(0, -1));
  }
  const covers = (pattern: string, value: string): boolean => pattern === '*' || pattern === value;
  return (
    policy.resource !== '' &&
    covers(policy.namespace, attributes.namespace) &&
    covers(policy.resource, attributes.resource) &&
    covers(policy.apiGroup, attributes.group)
  );
}
