/**
 * Returns the warnings of deprecated resources. Those of custom resources are part of their definitions.
 *
 * kube-apiserver knows from the definition of each kind when a version of it is deprecated and when it is no longer served.
 * The tables have those of 1.36 that are deprecated in 1.36 or before.
 */
import type { ResourceInfo } from '../../api/schema/schema.ts';

interface Deprecation {
  /** The text of the warning. Empty if the resource is not deprecated. */
  readonly warning: string;
  /** The first release that no longer serves the resource. Empty if no release is decided. */
  readonly removedRelease: string;
}

/** The warnings of deprecated resources of the core group, version v1, whose removal is not decided. */
const CORE_WARNINGS: ReadonlyMap<string, string> = new Map([
  ['componentstatuses', 'v1 ComponentStatus is deprecated in v1.19+'],
  ['endpoints', 'v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice'],
]);

/** The releases that deprecate and remove a version of a group. */
interface Lifecycle {
  readonly deprecated: string;
  readonly removed: string;
  /** The version that replaces this one. */
  readonly replacement?: string;
  /** The resources of the version to which this applies. Without them it applies to all. */
  readonly resources?: readonly string[];
}

const LIFECYCLES: ReadonlyMap<string, Lifecycle> = new Map<string, Lifecycle>([
  ['admissionregistration.k8s.io/v1alpha1', { deprecated: '1.35', removed: '1.38' }],
  ['certificates.k8s.io/v1alpha1', { deprecated: '1.34', removed: '1.37' }],
  ['coordination.k8s.io/v1alpha2', { deprecated: '1.35', removed: '1.38' }],
  ['coordination.k8s.io/v1beta1', { deprecated: '1.36', removed: '1.39' }],
  ['networking.k8s.io/v1beta1', { deprecated: '1.34', removed: '1.37' }],
  ['resource.k8s.io/v1alpha3', { deprecated: '1.36', removed: '1.39', resources: ['devicetaintrules'] }],
  ['resource.k8s.io/v1beta1', { deprecated: '1.35', removed: '1.38' }],
  [
    'resource.k8s.io/v1beta2',
    {
      deprecated: '1.36',
      removed: '1.39',
      resources: ['deviceclasses', 'resourceclaims', 'resourceclaimtemplates', 'resourceslices'],
    },
  ],
  ['storage.k8s.io/v1beta1', { deprecated: '1.34', removed: '1.37', replacement: 'storage.k8s.io/v1' }],
]);

const NONE: Deprecation = { warning: '', removedRelease: '' };

/** Returns the deprecation of a resource, with empty texts if it is not deprecated. */
export function deprecationOf({ group, version, resource, kind, custom }: ResourceInfo): Deprecation {
  if (custom !== undefined) return { warning: custom.deprecation, removedRelease: '' };
  if (group === '') return version === 'v1' ? { warning: CORE_WARNINGS.get(resource) ?? '', removedRelease: '' } : NONE;
  const lifecycle = LIFECYCLES.get(`${group}/${version}`);
  if (lifecycle === undefined || lifecycle.resources?.includes(resource) === false) return NONE;
  const { deprecated, removed, replacement } = lifecycle;
  const instead = replacement === undefined ? '' : `; use ${replacement} ${kind}`;
  return {
    warning: `${group}/${version} ${kind} is deprecated in v${deprecated}+, unavailable in v${removed}+${instead}`,
    removedRelease: removed,
  };
}
