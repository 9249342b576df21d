/**
 * Implements the RBAC authorizer: an index of roles and bindings by subject, which informer events keep current.
 *
 * A decision only visits the bindings of the caller's name and groups, in the request's namespace and cluster-wide.
 */
import type { ClusterRole, ClusterRoleBinding, Role, RoleBinding } from '../../../api/kinds/kinds.ts';
import { clusterRoleBindings, clusterRoles, roleBindings, roles, RBAC_GROUP } from '../../../api/client/resources.ts';
import { quote } from '../../../api/meta/field-error.ts';
import type { Lister, ListerChange, Listers } from '../../model/listers.ts';
import type { UserInfo } from '../../model/user-info.ts';
import { ruleAllows, ruleQuery, type PolicyRule } from './rbac-rules.ts';
import type {
  AuthorizationAttributes,
  Authorizer,
  Decision,
  NonResourceRule,
  ResourceRule,
  RuleResolver,
} from './authorization.ts';

interface RoleRef {
  readonly kind: string;
  readonly name: string;
}

/** A binding, as indexed for one of its subjects. */
interface Grant {
  /** Empty for a ClusterRoleBinding. */
  readonly namespace: string;
  readonly bindingName: string;
  readonly roleRef: RoleRef;
  /** A key that all grants of one role in one namespace share, or all cluster-wide ones. */
  readonly roleKey: string;
  readonly subject: string;
}

type Binding = RoleBinding | ClusterRoleBinding;
type Subject = NonNullable<Binding['subjects']>[number];

interface ResolvedRules {
  readonly rules: readonly PolicyRule[];
  readonly errors: readonly string[];
}

/** Subscribes to bindings in its constructor. A binding whose role does not exist grants nothing. */
export class RbacAuthorizer implements Authorizer, RuleResolver {
  readonly #roles: Lister<Role>;
  readonly #clusterRoles: Lister<ClusterRole>;
  /** Grants by namespace (`''` for cluster-wide), subject and name of the binding. */
  readonly #grants = new Map<string, Map<string, Map<string, Grant>>>();

  constructor(listers: Listers) {
    this.#roles = listers.of(roles);
    this.#clusterRoles = listers.of(clusterRoles);
    listers.of(roleBindings).subscribe((change) => this.#take(change));
    listers.of(clusterRoleBindings).subscribe((change) => this.#take(change));
  }

  #take({ current, previous }: ListerChange<Binding>): void {
    if (previous !== undefined) this.#remove(previous);
    if (current !== undefined) this.#add(current);
  }

  #add(binding: Binding): void {
    const namespace = binding.metadata.namespace ?? '';
    const bindingName = binding.metadata.name ?? '';
    let bySubject = this.#grants.get(namespace);
    if (bySubject === undefined) this.#grants.set(namespace, (bySubject = new Map()));
    for (const subject of binding.subjects ?? []) {
      const key = subjectKey(subject, namespace);
      if (key === undefined) continue;
      let grants = bySubject.get(key);
      if (grants === undefined) bySubject.set(key, (grants = new Map()));
      if (!grants.has(bindingName)) {
        grants.set(bindingName, {
          namespace,
          bindingName,
          roleRef: binding.roleRef,
          roleKey: `${namespace}/${binding.roleRef.kind}/${binding.roleRef.name}`,
          subject: describe(subject, namespace),
        });
      }
    }
  }

  #remove(binding: Binding): void {
    const namespace = binding.metadata.namespace ?? '';
    const bySubject = this.#grants.get(namespace);
    if (bySubject === undefined) return;
    for (const subject of binding.subjects ?? []) {
      const key = subjectKey(subject, namespace);
      const grants = key === undefined ? undefined : bySubject.get(key);
      if (key === undefined || grants === undefined) continue;
      grants.delete(binding.metadata.name ?? '');
      if (grants.size === 0) bySubject.delete(key);
    }
    if (bySubject.size === 0) this.#grants.delete(namespace);
  }

  /**
   * Visits the grants of the user, cluster-wide grants first. Stops when `visitor` returns true. After the first `few` grants,
   * each role is visited once: thousands of bindings may name the same large role.
   */
  #visit(user: UserInfo, namespace: string, visitor: (grant: Grant) => boolean, few = FEW_GRANTS): void {
    const visit = eachRoleOnce(visitor, few);
    for (const scope of namespace === '' ? [''] : ['', namespace]) {
      const bySubject = this.#grants.get(scope);
      if (bySubject === undefined) continue;
      const userGrants = bySubject.get(`u:${user.name}`);
      if (userGrants !== undefined) for (const grant of userGrants.values()) if (visit(grant)) return;
      for (const group of user.groups) {
        const grants = bySubject.get(`g:${group}`);
        if (grants !== undefined) for (const grant of grants.values()) if (visit(grant)) return;
      }
    }
  }

  /** Returns the rules of the referenced role, or an error text if the role does not exist. */
  roleRules(ref: RoleRef, namespace: string): readonly PolicyRule[] | string {
    const isCluster = ref.kind === 'ClusterRole';
    const role = isCluster ? this.#clusterRoles.get('', ref.name) : this.#roles.get(namespace, ref.name);
    if (role === undefined) return `${isCluster ? 'clusterrole' : 'role'}.${RBAC_GROUP} ${quote(ref.name)} not found`;
    return role.rules ?? [];
  }

  authorize(attributes: AuthorizationAttributes): Decision {
    const query = ruleQuery(attributes);
    const errors: string[] = [];
    let allowedBy: Grant | undefined;
    this.#visit(attributes.user, attributes.isResourceRequest ? attributes.namespace : '', (grant) => {
      const rules = this.roleRules(grant.roleRef, grant.namespace);
      if (typeof rules === 'string') {
        errors.push(rules);
        return false;
      }
      for (const rule of rules) {
        if (!ruleAllows(rule, query)) continue;
        allowedBy = grant;
        return true;
      }
      return false;
    });
    if (allowedBy !== undefined) return { decision: 'allow', reason: reasonOf(allowedBy) };
    return { decision: 'no-opinion', reason: errors.length === 0 ? '' : `RBAC: ${aggregate(errors)}` };
  }

  /** Returns all rules of the user in the namespace. With `''`, only cluster-wide rules. */
  resolve(user: UserInfo, namespace: string): ResolvedRules {
    const rules: PolicyRule[] = [];
    const errors: string[] = [];
    const take = (grant: Grant): boolean => {
      const found = this.roleRules(grant.roleRef, grant.namespace);
      if (typeof found === 'string') errors.push(found);
      // Non-resource rules only take effect through a ClusterRoleBinding.
      else rules.push(...found.filter((rule) => grant.namespace === '' || (rule.nonResourceURLs?.length ?? 0) === 0));
      return false;
    };
    this.#visit(user, namespace, take, 0);
    return { rules, errors };
  }

  rulesFor(user: UserInfo, namespace: string): ReturnType<RuleResolver['rulesFor']> {
    const { rules, errors } = this.resolve(user, namespace);
    const resourceRules: ResourceRule[] = [];
    const nonResourceRules: NonResourceRule[] = [];
    let left = MAX_SHOWN;
    for (const rule of rules) {
      left -= itemsOf(rule);
      if (left < 0) break;
      if ((rule.resources?.length ?? 0) > 0) {
        resourceRules.push({
          verbs: rule.verbs,
          apiGroups: rule.apiGroups ?? [],
          resources: rule.resources ?? [],
          ...((rule.resourceNames?.length ?? 0) === 0 ? {} : { resourceNames: rule.resourceNames ?? [] }),
        });
      }
      if ((rule.nonResourceURLs?.length ?? 0) > 0) {
        nonResourceRules.push({ verbs: rule.verbs, nonResourceURLs: rule.nonResourceURLs ?? [] });
      }
    }
    const incomplete = left < 0;
    const all = incomplete
      ? [...errors, `the rules have more than ${MAX_SHOWN} items, and the rest is left out`]
      : errors;
    const evaluationError = all.length === 0 ? {} : { evaluationError: aggregate(all) };
    return { resourceRules, nonResourceRules, incomplete, ...evaluationError };
  }
}

/**
 * The maximum number of items, over all lists of the rules, that a review shows. The roles of one namespace may have hundreds
 * of megabytes.
 */
const MAX_SHOWN = 100_000;

function itemsOf({ verbs, apiGroups, resources, resourceNames, nonResourceURLs }: PolicyRule): number {
  return [verbs, apiGroups, resources, resourceNames, nonResourceURLs].reduce(
    (sum, list) => sum + (list?.length ?? 0),
    0,
  );
}

/** The number of grants that a decision visits before it looks for grants of one role among them. */
const FEW_GRANTS = 16;

function eachRoleOnce(visit: (grant: Grant) => boolean, few: number): (grant: Grant) => boolean {
  let count = 0;
  let visited: Set<string> | undefined;
  return (grant) => {
    count += 1;
    if (count > few) {
      visited ??= new Set();
      if (visited.has(grant.roleKey)) return false;
      visited.add(grant.roleKey);
    }
    return visit(grant);
  };
}

/** Formats several errors as a list in brackets, without duplicates. */
export function aggregate(errors: readonly string[]): string {
  const texts = [...new Set(errors)];
  return texts.length === 1 ? (texts[0] ?? '') : `[${texts.join(', ')}]`;
}

/**
 * Returns the index key of a subject. A service account has the key of the user that its tokens authenticate as. Returns
 * `undefined` for an unknown kind, and for a service account without a namespace in a ClusterRoleBinding.
 */
function subjectKey(subject: Subject, namespace: string): string | undefined {
  switch (subject.kind) {
    case 'User':
      return `u:${subject.name}`;
    case 'Group':
      return `g:${subject.name}`;
    case 'ServiceAccount': {
      const accountNamespace =
        subject.namespace === undefined || subject.namespace === '' ? namespace : subject.namespace;
      return accountNamespace === '' ? undefined : `u:system:serviceaccount:${accountNamespace}:${subject.name}`;
    }
    default:
      return undefined;
  }
}

function describe(subject: Subject, namespace: string): string {
  if (subject.kind !== 'ServiceAccount') return `${subject.kind} ${quote(subject.name)}`;
  const accountNamespace = subject.namespace === undefined || subject.namespace === '' ? namespace : subject.namespace;
  return `${subject.kind} ${quote(`${subject.name}/${accountNamespace}`)}`;
}

function reasonOf(grant: Grant): string {
  const kind = grant.namespace === '' ? 'ClusterRoleBinding' : 'RoleBinding';
  const name = grant.namespace === '' ? grant.bindingName : `${grant.bindingName}/${grant.namespace}`;
  return `RBAC: allowed by ${kind} ${quote(name)} of ${grant.roleRef.kind} ${quote(grant.roleRef.name)} to ${grant.subject}`;
}
