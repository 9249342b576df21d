/**
 * Reconciles the default roles and bindings at every start. It creates missing objects, and adds missing rules and subjects,
 * unless the object has the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"`. It never removes anything.
 */
import type { Client } from '../../../api/client/client.ts';
import {
  type ResourceOf,
  clusterRoleBindings,
  clusterRoles,
  namespaces,
  roleBindings,
  roles,
  RBAC_GROUP,
} from '../../../api/client/resources.ts';
import { namespacedName } from '../../../api/meta/namespaced-name.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { isAlreadyExists, isConflict, tolerate } from '../../../api/meta/status-error.ts';
import { CONTROLLER_ROLES, CONTROLLER_ROLE_BINDINGS } from './bootstrap-controllers.ts';
import {
  CLUSTER_ROLES,
  CLUSTER_ROLE_BINDINGS,
  NAMESPACED_ROLES,
  NAMESPACED_ROLE_BINDINGS,
} from './bootstrap-policy.ts';
import type { BootstrapBinding, BootstrapRole, BootstrapSubject } from './bootstrap-rules.ts';
import { compact, missingRules, type PolicyRule } from './rbac-rules.ts';
import { NODE_LEASE_NAMESPACE, PUBLIC_NAMESPACE, SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

const AUTOUPDATE = 'rbac.authorization.kubernetes.io/autoupdate';
const SYSTEM_NAMESPACES = ['default', SYSTEM_NAMESPACE, PUBLIC_NAMESPACE, NODE_LEASE_NAMESPACE];

/** Creates the namespaces of the system, which the objects of the other functions of a start need. */
export async function ensureSystemNamespaces(client: Client): Promise<void> {
  await Promise.all(SYSTEM_NAMESPACES.map((name) => ensureNamespace(client, name)));
}

/** Creates and completes the default roles and bindings. Resolves when every object is in place. */
export async function reconcileBootstrapPolicy(client: Client): Promise<void> {
  await Promise.all([
    reconcileAll(client, clusterRoles, [...CLUSTER_ROLES, ...CONTROLLER_ROLES].map(roleObject), mergeRole),
    reconcileAll(client, roles, NAMESPACED_ROLES.map(roleObject), mergeRole),
    reconcileAll(
      client,
      clusterRoleBindings,
      [...CLUSTER_ROLE_BINDINGS, ...CONTROLLER_ROLE_BINDINGS].map(bindingObject),
      mergeBinding,
    ),
    reconcileAll(client, roleBindings, NAMESPACED_ROLE_BINDINGS.map(bindingObject), mergeBinding),
  ]);
}

async function ensureNamespace(client: Client, name: string): Promise<void> {
  await tolerate(
    client.create(namespaces, '', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } }),
    isAlreadyExists,
  );
}

async function reconcileAll<T extends KubeObject>(
  client: Client,
  resource: ResourceOf<T>,
  wanted: readonly KubeObject[],
  merge: (existing: KubeObject, wanted: KubeObject) => KubeObject | undefined,
): Promise<void> {
  const existing = new Map((await client.list(resource)).items.map((object) => [namespacedName(object), object]));
  await Promise.all(
    wanted.map(async (object) => {
      const found = existing.get(namespacedName(object));
      try {
        if (found === undefined) {
          await client.create(resource, object.metadata.namespace ?? '', object);
          return;
        }
        const merged = merge(structuredClone(found), object);
        if (merged !== undefined) await client.update(resource, merged);
      } catch (error) {
        // Another API server created or updated the object at the same time.
        if (!isAlreadyExists(error) && !isConflict(error)) throw error;
      }
    }),
  );
}

function metadata(item: BootstrapRole | BootstrapBinding, labels: Readonly<Record<string, string>> = {}) {
  return {
    name: item.name,
    ...(item.namespace === undefined ? {} : { namespace: item.namespace }),
    annotations: { [AUTOUPDATE]: 'true' },
    labels: { 'kubernetes.io/bootstrapping': 'rbac-defaults', ...labels },
  };
}

/** Returns the object of a default role. */
export function roleObject(role: BootstrapRole): KubeObject {
  const isCluster = role.namespace === undefined;
  return {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: isCluster ? 'ClusterRole' : 'Role',
    metadata: metadata(role, role.labels),
    rules: role.rules ?? [],
    ...(role.aggregates === undefined
      ? {}
      : { aggregationRule: { clusterRoleSelectors: [{ matchLabels: role.aggregates }] } }),
  };
}

/** Returns the object of a default binding. */
export function bindingObject(binding: BootstrapBinding): KubeObject {
  const isCluster = binding.namespace === undefined;
  return {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: isCluster ? 'ClusterRoleBinding' : 'RoleBinding',
    metadata: metadata(binding),
    roleRef: { apiGroup: RBAC_GROUP, kind: isCluster ? 'ClusterRole' : 'Role', name: binding.role },
    subjects: binding.subjects.map((subject) =>
      subject.kind === 'ServiceAccount' ? { ...subject } : { apiGroup: RBAC_GROUP, ...subject },
    ),
  };
}

/** Adds missing labels and annotations. Returns true if it added any. */
function mergeMetadata(existing: KubeObject, wanted: KubeObject): boolean {
  let changed = false;
  for (const field of ['labels', 'annotations'] as const) {
    const target = (existing.metadata[field] ??= {});
    for (const [key, value] of Object.entries(wanted.metadata[field] ?? {})) {
      if (target[key] !== undefined) continue;
      target[key] = value;
      changed = true;
    }
  }
  return changed;
}

const isProtected = (object: KubeObject): boolean => object.metadata.annotations?.[AUTOUPDATE] === 'false';

/** Adds what is missing to `existing`, and returns it. Returns `undefined` if nothing is missing, or if it is protected. */
function mergeRole(existing: KubeObject, wanted: KubeObject): KubeObject | undefined {
  if (isProtected(existing)) return undefined;
  let changed = mergeMetadata(existing, wanted);
  if (wanted['aggregationRule'] !== undefined) {
    // The ClusterRole aggregation controller owns the rules of this role.
    if (existing['aggregationRule'] === undefined || existing['aggregationRule'] === null) {
      existing['aggregationRule'] = wanted['aggregationRule'];
      changed = true;
    }
    return changed ? existing : undefined;
  }
  const rules = (existing['rules'] ?? []) as readonly PolicyRule[];
  const missing = missingRules(rules, (wanted['rules'] ?? []) as readonly PolicyRule[]);
  if (missing.length > 0) {
    existing['rules'] = [...rules, ...compact(missing)];
    changed = true;
  }
  return changed ? existing : undefined;
}

function mergeBinding(existing: KubeObject, wanted: KubeObject): KubeObject | undefined {
  if (isProtected(existing)) return undefined;
  let changed = mergeMetadata(existing, wanted);
  const subjects = (existing['subjects'] ?? []) as readonly BootstrapSubject[];
  const same = (a: BootstrapSubject, b: BootstrapSubject): boolean =>
    a.kind === b.kind && a.name === b.name && (a.namespace ?? '') === (b.namespace ?? '');
  const missing = ((wanted['subjects'] ?? []) as readonly BootstrapSubject[]).filter(
    (subject) => !subjects.some((have) => same(have, subject)),
  );
  if (missing.length > 0) {
    existing['subjects'] = [...subjects, ...missing];
    changed = true;
  }
  return changed ? existing : undefined;
}
