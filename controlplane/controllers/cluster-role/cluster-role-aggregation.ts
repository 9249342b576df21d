/** Sets the rules of cluster roles with an aggregation rule to the rules of the roles that it selects. */
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { fromLabelSelector } from '../../../api/meta/selector.ts';
import type { ClusterRole } from '../../../api/kinds/kinds.ts';
import { clusterRoles } from '../../../api/client/resources.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';

/** Returns the rules in the order of selectors and names, each once. Pure. */
function aggregatedRules(role: ClusterRole, all: readonly ClusterRole[]): NonNullable<ClusterRole['rules']> {
  const rules: NonNullable<ClusterRole['rules']> = [];
  const sorted = all.toSorted((a, b) => ((a.metadata.name ?? '') < (b.metadata.name ?? '') ? -1 : 1));
  for (const labelSelector of role.aggregationRule?.clusterRoleSelectors ?? []) {
    const selector = fromLabelSelector(labelSelector);
    for (const other of sorted) {
      if (other.metadata.name === role.metadata.name || !selector.matches(other.metadata.labels)) continue;
      for (const rule of other.rules ?? []) if (!rules.some((one) => semanticEqual(one, rule))) rules.push(rule);
    }
  }
  return rules;
}

/** Writes a role only if its rules differ. */
export const runClusterRoleAggregation: RunController = (environment, signal) => {
  const { client, informers } = environment;
  const roles = informers.for(clusterRoles);
  const loop = new ReconcileLoop(environment, {
    workers: 5,
    reconcile: async (name) => {
      const role = roles.get('', name);
      if (role?.aggregationRule === undefined) return;
      const rules = aggregatedRules(role, roles.list());
      if (!semanticEqual(rules, role.rules))
        await client.update(clusterRoles, { ...role, rules: structuredClone(rules) });
    },
  });
  const changed = (): void => {
    for (const role of roles.list()) if (role.aggregationRule !== undefined) loop.enqueue(role);
  };
  roles.addHandler({ add: changed, update: changed, delete: changed });
  return loop.run(signal, roles);
};
