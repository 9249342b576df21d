/** Defines the priorities of the built-in groups and versions in their API services. Clients prefer versions by them. */

interface ApiPriorities {
  readonly groupPriorityMinimum: number;
  readonly versionPriority: number;
}

/** The priorities by group, from the most preferred one. Versions that are not listed get the priority of their stability. */
const GROUPS: Readonly<
  Record<string, { readonly group: number; readonly versions?: Readonly<Record<string, number>> }>
> = {
  '': { group: 18_000, versions: { v1: 1 } },
  apps: { group: 17_800 },
  'events.k8s.io': { group: 17_750 },
  'authentication.k8s.io': { group: 17_700 },
  'authorization.k8s.io': { group: 17_600 },
  autoscaling: { group: 17_500, versions: { v2: 30 } },
  batch: { group: 17_400 },
  'certificates.k8s.io': { group: 17_300 },
  'networking.k8s.io': { group: 17_200 },
  policy: { group: 17_100 },
  'rbac.authorization.k8s.io': { group: 17_000 },
  'storage.k8s.io': { group: 16_800 },
  'apiextensions.k8s.io': { group: 16_700 },
  'admissionregistration.k8s.io': { group: 16_700, versions: { v1beta1: 12, v1alpha1: 9 } },
  'scheduling.k8s.io': { group: 16_600 },
  'coordination.k8s.io': { group: 16_500, versions: { v1beta1: 13, v1alpha2: 12 } },
  'node.k8s.io': { group: 16_300 },
  'discovery.k8s.io': { group: 16_200 },
  'resource.k8s.io': { group: 16_200, versions: { v1: 21, v1beta2: 15 } },
  'flowcontrol.apiserver.k8s.io': { group: 16_100, versions: { v1: 21 } },
  'internal.apiserver.k8s.io': { group: 16_000, versions: { v1alpha1: 9 } },
  'storagemigration.k8s.io': { group: 15_800 },
  'metrics.k8s.io': { group: 100, versions: { v1beta1: 100 } },
};

/**
 * Returns the priorities of a group and version that this server serves itself. A group without a row gets 15,000. A version
 * without a row gets 15, or 9 if it is beta, or 1 if it is alpha.
 */
export function localApiPriorities(group: string, version: string): ApiPriorities {
  const row = GROUPS[group];
  const stability = version.includes('alpha') ? 1 : version.includes('beta') ? 9 : 15;
  return { groupPriorityMinimum: row?.group ?? 15_000, versionPriority: row?.versions?.[version] ?? stability };
}
