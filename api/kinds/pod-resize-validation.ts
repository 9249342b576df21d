/** Validates updates of the subresource `resize`, as `ValidatePodResize` of kube-apiserver does. */
import { forbidden, invalid, type FieldError } from '../meta/field-error.ts';
import { equalAs, POD_SPEC } from '../schema/semantic-equality.ts';
import { qosClassOf } from './pod-qos.ts';
import type { Container, Pod, PodSpec, Quantities } from './pod-types.ts';
import { isMirror, podErrors, WHOLE } from './pod-update-validation.ts';

type Resources = NonNullable<PodSpec['resources']>;

const KINDS = ['requests', 'limits'] as const;
/** The resources that a resize may change. */
export const RESIZABLE = ['cpu', 'memory'] as const;
const ONLY_AMOUNTS = 'only cpu and memory resources';

/** Whether a list has the same containers in the same order. */
export const hasSameNames = (now: readonly Container[] = [], stored: readonly Container[] = []): boolean =>
  now.length === stored.length && now.every(({ name }, index) => name === stored[index]?.name);

/** Returns the errors of a resize. `old` is the stored pod. */
export function podResizeErrors(pod: Pod, old: Pod): FieldError[] {
  const spec = pod.spec ?? {};
  const before = old.spec ?? {};
  if (isMirror(old)) return [forbidden(WHOLE, 'static pods cannot be resized')];
  if (before.os?.name === 'windows') return [forbidden(WHOLE, 'windows pods cannot be resized')];
  const errors = podErrors(pod);
  const qos = old.status?.qosClass ?? qosClassOf(before);
  if (qosClassOf(spec) !== qos)
    errors.push(invalid('spec', qos, 'Pod QOS Class may not change as a result of resizing'));
  // A kubelet that supports resize reports the resources of running containers.
  const running = (old.status?.containerStatuses ?? []).find(({ state }) => state?.running !== undefined);
  if (running !== undefined && running.resources === undefined)
    errors.push(forbidden('spec', 'Pod running on node without support for resize'));
  errors.push(...podLevelErrors(spec.resources, before.resources));
  const orderErrors = (['containers', 'initContainers'] as const).flatMap((list) =>
    containerOrderErrors(spec[list], before[list], list),
  );
  if (orderErrors.length > 0) return [...errors, ...orderErrors];
  for (const list of ['initContainers', 'containers'] as const)
    for (const [index, { resources }] of (spec[list] ?? []).entries())
      errors.push(...removedAmounts(resources, before[list]?.[index]?.resources, `spec.${list}[${index}].resources`));
  errors.push(...otherChanges(spec, before));
  if (errors.length > 0) return errors;
  const isSame = equalAs(POD_SPEC, withAmountsOf(spec, before), withAmountsOf(before, before));
  return isSame ? [] : [forbidden('spec', `${ONLY_AMOUNTS} are mutable`)];
}

function podLevelErrors(now: Resources | undefined, stored: Resources | undefined): FieldError[] {
  if (!hasAmounts(now) && !hasAmounts(stored)) return [];
  if (stored !== undefined && now === undefined)
    return [forbidden('spec.resources', 'pod-level resources cannot be removed')];
  const errors = removedAmounts(now, stored, 'spec.resources', 'pod-level resource');
  const isSame = equalAs(POD_SPEC, { resources: withAmounts(now, stored) }, { resources: withAmounts(stored, stored) });
  return isSame ? errors : [...errors, forbidden('spec', `${ONLY_AMOUNTS} are mutable at pod-level`)];
}

const hasAmounts = (resources: Resources | undefined): boolean =>
  KINDS.some((kind) => Object.keys(resources?.[kind] ?? {}).length > 0);

function containerOrderErrors(
  now: readonly Container[] = [],
  stored: readonly Container[] = [],
  list: 'containers' | 'initContainers',
): FieldError[] {
  if (now.length !== stored.length) return [forbidden(`spec.${list}`, `${list} may not be added or removed on resize`)];
  return stored.flatMap(({ name }, index) =>
    now[index]?.name === name
      ? []
      : [forbidden(`spec.${list}[${index}].name`, `${list} may not be renamed or reordered on resize`)],
  );
}

/** Reports each list that has lost an amount, because a resize can only change amounts. */
function removedAmounts(
  now: Resources | undefined,
  stored: Resources | undefined,
  path: string,
  what = 'resource',
): FieldError[] {
  return KINDS.filter((kind) => {
    const left = (now?.[kind] ?? {}) as Quantities;
    return Object.keys(stored?.[kind] ?? {}).some((name) => left[name] === undefined);
  }).map((kind) => forbidden(`${path}.${kind}`, `${what} ${kind} cannot be removed`));
}

/** Reports containers that differ from the stored ones in more than amounts of CPU and memory. */
function otherChanges(spec: PodSpec, before: PodSpec): FieldError[] {
  const isSame = (now: Container, stored: Container): boolean =>
    equalAs(POD_SPEC, { containers: [now] }, { containers: [stored] });
  const differs = (now: Container, stored: Container): boolean =>
    !isSame(withoutClaims(withAmountsOfContainer(now, stored)), stored);
  const errors = (spec.containers ?? []).flatMap((container, index) => {
    const stored = before.containers?.[index];
    return stored !== undefined && differs(container, stored) ? [forbidden('spec', `${ONLY_AMOUNTS} are mutable`)] : [];
  });
  for (const [index, container] of (spec.initContainers ?? []).entries()) {
    const stored = before.initContainers?.[index];
    if (stored === undefined) continue;
    const path = `spec.initContainers[${index}]`;
    if (differs(container, stored))
      errors.push(forbidden(path, `${ONLY_AMOUNTS} for init or sidecar containers are mutable`));
    if (container.restartPolicy === 'Always' || isSame(container, stored)) continue;
    for (const { restartPolicy } of container.resizePolicy ?? [])
      if (restartPolicy === 'RestartContainer')
        errors.push(
          forbidden(path, 'non-sidecar init containers with a resize policy of RestartContainer cannot be resized'),
        );
  }
  return errors;
}

/**
 * Returns a container without its claims. kube-apiserver removes them from the new container alone before it compares, so that
 * a container with claims cannot be resized.
 */
function withoutClaims(container: Container): Container {
  const { claims: _claims, ...resources } = container.resources ?? {};
  return { ...container, resources };
}

/** Returns `spec` with the CPU and memory of `before`. */
function withAmountsOf(spec: PodSpec, before: PodSpec): PodSpec {
  const copy = { ...spec, resources: withAmounts(spec.resources, before.resources) };
  for (const list of ['containers', 'initContainers'] as const)
    copy[list] = spec[list]?.map((container, index) => withAmountsOfContainer(container, before[list]?.[index]));
  return copy;
}

const withAmountsOfContainer = (container: Container, stored: Container | undefined): Container => ({
  ...container,
  resources: withAmounts(container.resources ?? {}, stored?.resources),
});

function withAmounts(now: Resources | undefined, stored: Resources | undefined): Resources | undefined {
  if (now === undefined) return undefined;
  const resources = { ...now };
  for (const kind of KINDS) {
    const amounts: Record<string, string | undefined> = { ...now[kind] };
    for (const name of RESIZABLE) {
      const amount = stored?.[kind]?.[name];
      if (amount === undefined) delete amounts[name];
      else amounts[name] = amount;
    }
    if (Object.keys(amounts).length === 0) delete resources[kind];
    else resources[kind] = amounts;
  }
  return stored === undefined && Object.keys(resources).length === 0 ? undefined : resources;
}
