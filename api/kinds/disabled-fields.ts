/**
 * Removes pod fields whose feature gate is off in this version. It drops new uses of a field before validation and
 * keeps a field that the stored object already has.
 */
import type { Container, PodSpec } from './pod-types.ts';

const allContainers = (spec: PodSpec | undefined): Pick<Container, 'lifecycle'>[] => [
  ...(spec?.containers ?? []),
  ...(spec?.initContainers ?? []),
  ...(spec?.ephemeralContainers ?? []),
];

/** Removes the fields from `spec`, unless `old`, the stored spec, has them. */
export function dropDisabledPodFields(spec: PodSpec | undefined, old: PodSpec | undefined): void {
  if (spec === undefined) return;
  if (!allContainers(old).some(({ lifecycle }) => lifecycle?.stopSignal !== undefined)) dropStopSignals(spec);
  for (const source of ['clusterTrustBundle', 'podCertificate'] as const) {
    if (!hasProjection(old, source)) dropProjections(spec, source);
  }
  const fields = spec as Record<string, unknown>;
  for (const field of ['schedulingGroup', 'workloadRef']) {
    if ((old as Record<string, unknown> | undefined)?.[field] === undefined) drop(fields, field);
  }
}

/** Deletes a member. Deleting one that is absent takes longer than the check. */
function drop<Name extends string>(object: { [Key in Name]?: unknown }, name: Name): void {
  if (object[name] !== undefined) delete object[name];
}

function dropStopSignals(spec: PodSpec): void {
  for (const container of allContainers(spec)) {
    if (container.lifecycle?.stopSignal === undefined) continue;
    delete container.lifecycle.stopSignal;
    if (Object.keys(container.lifecycle).length === 0) delete container.lifecycle;
  }
}

type Projection = 'clusterTrustBundle' | 'podCertificate';

function hasProjection(spec: PodSpec | undefined, source: Projection): boolean {
  return (spec?.volumes ?? []).some(({ projected }) =>
    (projected?.sources ?? []).some((one) => one[source] !== undefined),
  );
}

function dropProjections(spec: PodSpec, source: Projection): void {
  for (const { projected } of spec.volumes ?? []) for (const one of projected?.sources ?? []) drop(one, source);
}
