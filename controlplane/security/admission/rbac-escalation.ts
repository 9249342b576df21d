/**
 * Prevents privilege escalation: a client can only write roles and bindings whose rules it holds itself, unless it has the verb
 * `escalate` (roles) or `bind` (the role). It is always on for RBAC objects, and runs after the other mutating plugins, so that
 * it sees the object that will be stored. Members of `system:masters` pass, and so do updates that change only finalizers or
 * owner references.
 */
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { quote } from '../../../api/meta/field-error.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { inSlices, TimeSlice } from '../../../api/machinery/time-slice.ts';
import { pathSegmentErrors } from '../../../api/meta/names.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { newBadRequest, newErrorWithoutReason, newNotFound } from '../../../api/meta/status-error.ts';
import type { UserInfo } from '../../model/user-info.ts';
import type { Authorizer } from '../authorization/authorization.ts';
import { aggregate, type RbacAuthorizer } from '../authorization/rbac.ts';
import {
  compact,
  formatRule,
  missingInSlices,
  TooManyCombinations,
  type PolicyRule,
} from '../authorization/rbac-rules.ts';
import { refusal } from './pod-attributes.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import { MASTERS_GROUP } from '../../../api/meta/system-users.ts';
import { RBAC_GROUP } from '../../../api/client/resources.ts';

const EVERYTHING: readonly PolicyRule[] = [
  { verbs: ['*'], apiGroups: ['*'], resources: ['*'] },
  { verbs: ['*'], nonResourceURLs: ['*'] },
];

interface RoleRef {
  readonly kind: string;
  readonly name: string;
}

const ROLES: ReadonlyMap<string, string> = new Map([
  ['Role', 'roles'],
  ['ClusterRole', 'clusterroles'],
]);

/**
 * Throws for a reference by which kube-apiserver cannot look up a role. It looks the role up before it validates the binding,
 * and its error for another kind has no reason.
 */
function checkReference({ kind, name }: RoleRef, namespace: string): void {
  if (!ROLES.has(kind)) throw newErrorWithoutReason(`unsupported role reference kind: ${quote(kind)}`);
  if (kind === 'Role' && namespace === '') throw newBadRequest('Namespace parameter required.');
  if (name === '') throw newBadRequest('Name parameter required.');
  const errors = pathSegmentErrors(name);
  if (errors.length > 0) throw newBadRequest(`Name parameter invalid: ${quote(name)}: ${errors.join(';')}`);
}

/** Builds the plugin. `rbac` resolves the rules that the client holds; `authorizer` answers for `escalate` and `bind`. */
export function rbacEscalation(
  rbac: RbacAuthorizer,
  authorizer: Authorizer,
  clock: Pick<Clock, 'monotonic'>,
): AdmissionPlugin {
  const isAllowed = async (
    attributes: AdmissionAttributes,
    verb: 'escalate' | 'bind',
    role: { readonly resource: string; readonly name: string },
  ): Promise<boolean> => {
    const decision = await authorizer.authorize({
      user: attributes.user,
      verb,
      isResourceRequest: true,
      group: RBAC_GROUP,
      version: '*',
      ...role,
      subresource: '',
      namespace: attributes.namespace,
      path: '',
    });
    return decision.decision === 'allow';
  };
  return {
    name: 'RBACEscalation',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    async admit(attributes) {
      const { group, resource } = attributes.resource;
      const object = attributes.object;
      if (group !== RBAC_GROUP || attributes.subresource !== '' || object === undefined) return;
      if (attributes.user.groups.includes(MASTERS_GROUP)) return;
      if (attributes.oldObject !== undefined && onlyCollectorFields(object, attributes.oldObject)) return;
      if (resource === 'roles' || resource === 'clusterroles') {
        // The path of a create request has no name, so a permission for a single name does not match it.
        const name = attributes.operation === 'CREATE' ? '' : attributes.name;
        if (await isAllowed(attributes, 'escalate', { resource, name })) return;
        await checkRole(attributes, object, { rbac, clock });
      } else if (resource === 'rolebindings' || resource === 'clusterrolebindings') {
        const { kind = '', name = '' } = (object['roleRef'] ?? {}) as Partial<RoleRef>;
        const ref: RoleRef = { kind, name };
        const roles = ROLES.get(ref.kind);
        if (roles !== undefined && (await isAllowed(attributes, 'bind', { resource: roles, name: ref.name }))) return;
        checkReference(ref, attributes.namespace);
        const rules = rbac.roleRules(ref, attributes.namespace);
        if (typeof rules === 'string') throw newNotFound({ group, resource }, ref.name);
        await requireHeld(attributes, rules, { rbac, clock });
      }
    },
  };
}

/** What the checks read. */
interface Checks {
  readonly rbac: RbacAuthorizer;
  readonly clock: Pick<Clock, 'monotonic'>;
}

async function checkRole(attributes: AdmissionAttributes, object: KubeObject, checks: Checks): Promise<void> {
  await requireHeld(attributes, (object['rules'] ?? []) as readonly PolicyRule[], checks);
  const aggregates = (one: KubeObject | undefined): boolean => {
    const rule = one?.['aggregationRule'] as { clusterRoleSelectors?: readonly unknown[] } | undefined | null;
    return (rule?.clusterRoleSelectors?.length ?? 0) > 0;
  };
  if (attributes.resource.resource !== 'clusterroles' || (!aggregates(object) && !aggregates(attributes.oldObject)))
    return;
  const held = checks.rbac.resolve(attributes.user, attributes.namespace).rules;
  if ((await missingIn(attributes, held, EVERYTHING, checks)).length > 0)
    throw refusal(attributes, 'must have cluster-admin privileges to use the aggregationRule');
}

/** Throws a 403 if the client does not hold all of the rules. */
async function requireHeld(
  attributes: AdmissionAttributes,
  rules: readonly PolicyRule[],
  checks: Checks,
): Promise<void> {
  const held = checks.rbac.resolve(attributes.user, attributes.namespace);
  const missing = await missingIn(attributes, held.rules, compact(rules), checks);
  if (missing.length === 0) return;
  const lines = [...new Set(missing.map(formatRule))].sort().join('\n');
  const errors = held.errors.length === 0 ? '' : `; resolution errors: ${aggregate(held.errors)}`;
  throw refusal(
    attributes,
    `user ${quote(attributes.user.name)} (groups=${groupsOf(attributes.user)}) is attempting to grant RBAC permissions not currently held:\n${lines}${errors}`,
  );
}

async function missingIn(
  attributes: AdmissionAttributes,
  held: readonly PolicyRule[],
  wanted: readonly PolicyRule[],
  { clock }: Checks,
): Promise<readonly PolicyRule[]> {
  const slice = new TimeSlice(clock);
  try {
    return await inSlices(missingInSlices(held, wanted, slice), slice);
  } catch (error) {
    if (error instanceof TooManyCombinations) throw refusal(attributes, error.message);
    throw error;
  }
}

const groupsOf = (user: UserInfo): string => `[${user.groups.map(quote).join(' ')}]`;

/** Whether an update changes finalizers or owner references alone, which the garbage collector must be able to remove. */
function onlyCollectorFields(object: KubeObject, old: KubeObject): boolean {
  const strip = (one: KubeObject): object => {
    const { finalizers: _f, ownerReferences: _o, managedFields: _m, resourceVersion: _r, ...metadata } = one.metadata;
    return { ...one, metadata };
  };
  const a = strip(object);
  const b = strip(old);
  const isChanged =
    !jsonEqual(object.metadata.finalizers ?? [], old.metadata.finalizers ?? []) ||
    !jsonEqual(object.metadata.ownerReferences ?? [], old.metadata.ownerReferences ?? []);
  return isChanged && jsonEqual(a, b);
}
