/** Validates updates of existing pods: of the pod itself, its status and its ephemeral containers. */
import { stringifyJson } from '../codec/json.ts';
import { forbidden, invalid, required, type FieldError } from '../meta/field-error.ts';
import { internalForm } from '../schema/internal-form.ts';
import { typeDiff } from '../schema/spec-diff.ts';
import { cloneJson, semanticEqual } from '../meta/json-equality.ts';
import { dnsSubdomainErrors, qualifiedNameErrors, rangeError } from '../meta/names.ts';
import { equalAs, POD_SPEC } from '../schema/semantic-equality.ts';
import { imageSpaceErrors } from './container-validation.ts';
import { podAnnotationErrors, podAnnotationUpdateErrors } from './pod-annotation-validation.ts';
import { initAndMainContainers } from './pod-containers.ts';
import { podReportErrors } from './pod-status-validation.ts';
import { podOnlyErrors, podSpecErrors } from './pod-validation.ts';
import type { Container, EphemeralContainer, Pod, PodSpec, Toleration } from './pod-types.ts';
import { tolerationErrors } from './scheduling-validation.ts';
import { invalidFor } from './validation-rules.ts';
import { MIRROR_ANNOTATION } from './pod-annotations.ts';
import { INT32_MAX } from '../meta/integers.ts';

const MUTABLE =
  'pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,' +
  '`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),' +
  '`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)';
const NOT_NEGATIVE = 'must be a non-negative integer';

/** Validates an update of the pod itself. `old` is the stored pod. */
export function podUpdateErrors(pod: Pod, old: Pod): FieldError[] {
  const spec = pod.spec ?? {};
  const before = old.spec ?? {};
  const errors = [
    ...podErrors(pod),
    ...podAnnotationUpdateErrors(pod.metadata.annotations, old.metadata.annotations, spec),
  ];
  for (const list of ['containers', 'initContainers'] as const) {
    const found = containerUpdateErrors(spec[list] ?? [], before[list] ?? [], `spec.${list}`);
    errors.push(...found.errors);
    if (found.stop) return errors;
  }
  const deadline = deadlineErrors(spec, before);
  errors.push(...deadline.errors);
  if (deadline.stop) return errors;
  errors.push(...tolerationUpdateErrors(spec.tolerations ?? [], before.tolerations ?? []));
  errors.push(...schedulingGateErrors(spec, before));
  if (equalAs(POD_SPEC, spec, before)) return errors;
  const munged = mungedSpec(spec, before);
  if ((before.schedulingGates ?? []).length > 0) errors.push(...gatedErrors(munged, before));
  if (!equalAs(POD_SPEC, munged, before))
    errors.push(forbidden('spec', () => `${MUTABLE}${typeDiff(POD_SPEC, before, munged)}`));
  return errors;
}

/** Validates the rules that hold on create and on update. */
export function podErrors(pod: Pod): FieldError[] {
  const spec = pod.spec ?? {};
  return [
    ...podAnnotationErrors(pod.metadata.annotations, spec, 'metadata.annotations'),
    ...podSpecErrors(spec, 'spec', pod.metadata.name),
    ...podOnlyErrors(spec),
  ];
}

/** Returns the errors of a list of containers. `stop` means that kube-apiserver validates nothing further after them. */
function containerUpdateErrors(
  containers: readonly Container[],
  old: readonly Container[],
  path: string,
): { errors: FieldError[]; stop: boolean } {
  if (containers.length !== old.length)
    return { errors: [forbidden(path, 'pod updates may not add or remove containers')], stop: true };
  const errors = containers.flatMap((one, index) =>
    (one.image ?? '') === '' ? [required(`${path}[${index}].image`)] : [],
  );
  return { errors: [...errors, ...imageSpaceErrors(containers, path)], stop: false };
}

/** Returns the errors of the deadline. `stop` means that kube-apiserver validates nothing further after them. */
function deadlineErrors(spec: PodSpec, old: PodSpec): { errors: FieldError[]; stop: boolean } {
  const field = 'spec.activeDeadlineSeconds';
  const { activeDeadlineSeconds: seconds } = spec;
  if (seconds === undefined) {
    if (old.activeDeadlineSeconds === undefined) return { errors: [], stop: false };
    return { errors: [invalid(field, null, 'must not update from a positive integer to nil value')], stop: false };
  }
  if (seconds < 0 || seconds > INT32_MAX)
    return { errors: [invalid(field, seconds, rangeError(0, INT32_MAX))], stop: true };
  if (old.activeDeadlineSeconds !== undefined && old.activeDeadlineSeconds < seconds) {
    return { errors: [invalid(field, seconds, 'must be less than or equal to previous value')], stop: true };
  }
  return { errors: [], stop: false };
}

function tolerationUpdateErrors(tolerations: readonly Toleration[], old: readonly Toleration[]): FieldError[] {
  const identity = ({ key = '', operator = '', value = '', effect = '' }: Toleration): string =>
    stringifyJson([key, operator, value, effect]);
  const present = new Set(tolerations.map(identity));
  // kube-apiserver validates the tolerations a second time here, which repeats the causes.
  if (old.every((one) => present.has(identity(one)))) return tolerationErrors(tolerations, 'spec.tolerations');
  return [forbidden('spec.tolerations', 'existing toleration can not be modified except its tolerationSeconds')];
}

function schedulingGateErrors(spec: PodSpec, old: PodSpec): FieldError[] {
  // A gate that occurs several times is reported once, at its last place.
  const added = new Map((spec.schedulingGates ?? []).map(({ name = '' }, index) => [name, index]));
  for (const { name = '' } of old.schedulingGates ?? []) added.delete(name);
  return [...added].map(([name, index]) =>
    forbidden(
      `spec.schedulingGates[${index}].name`,
      `only deletion is allowed, but found new scheduling gate '${name}'`,
    ),
  );
}

/** Returns `spec` with all mutable fields set back to their old values. */
function mungedSpec(spec: PodSpec, old: PodSpec): PodSpec {
  const munged = cloneJson(spec);
  for (const list of ['containers', 'initContainers'] as const) {
    for (const [index, container] of (munged[list] ?? []).entries()) {
      const image = old[list]?.[index]?.image;
      if (image !== undefined) container.image = image;
    }
  }
  for (const field of ['activeDeadlineSeconds', 'tolerations', 'schedulingGates'] as const) restore(munged, old, field);
  if ((old.terminationGracePeriodSeconds ?? 0) < 0 && spec.terminationGracePeriodSeconds === 1) {
    restore(munged, old, 'terminationGracePeriodSeconds');
  }
  return munged;
}

function restore<Key extends keyof PodSpec>(spec: PodSpec, old: PodSpec, key: Key): void {
  if (old[key] === undefined) delete spec[key];
  else spec[key] = old[key];
}

/** Validates that a pod with scheduling gates only narrows its node selection. Sets the old node selection in `munged`. */
function gatedErrors(munged: PodSpec, old: PodSpec): FieldError[] {
  const errors: FieldError[] = [];
  if (!semanticEqual(munged.nodeSelector, old.nodeSelector)) {
    const selector = munged.nodeSelector ?? {};
    const keepsAll = Object.entries(old.nodeSelector ?? {}).every(([key, value]) => selector[key] === value);
    if (!keepsAll)
      errors.push(
        invalid(
          'spec.nodeSelector',
          munged.nodeSelector,
          'only additions to spec.nodeSelector are allowed (no mutations or deletions)',
        ),
      );
    restore(munged, old, 'nodeSelector');
  }
  const affinity = munged.affinity?.nodeAffinity;
  const before = old.affinity?.nodeAffinity;
  if (!semanticEqual(affinity, before)) {
    errors.push(...nodeAffinityErrors(affinity, before));
    if (old.affinity === undefined) {
      const { nodeAffinity: _, ...others } = munged.affinity ?? {};
      if (Object.keys(others).length === 0) delete munged.affinity;
    } else if (munged.affinity !== undefined) {
      if (before === undefined) delete munged.affinity.nodeAffinity;
      else munged.affinity.nodeAffinity = before;
    } else munged.affinity = { ...(before === undefined ? {} : { nodeAffinity: before }) };
  }
  return errors;
}

type NodeAffinity = NonNullable<NonNullable<PodSpec['affinity']>['nodeAffinity']>;

const shownTerm = (term: object): object | null => internalForm('io.k8s.api.core.v1.NodeSelectorTerm', term);

function nodeAffinityErrors(affinity: NodeAffinity | undefined, old: NodeAffinity | undefined): FieldError[] {
  const needed = affinity?.requiredDuringSchedulingIgnoredDuringExecution;
  const before = old?.requiredDuringSchedulingIgnoredDuringExecution;
  if (before === undefined) return [];
  const path = 'spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms';
  const terms = needed?.nodeSelectorTerms ?? [];
  const oldTerms = before.nodeSelectorTerms ?? [];
  if (oldTerms.length > 0 && terms.length !== oldTerms.length) {
    return [
      invalid(
        path,
        needed?.nodeSelectorTerms?.map(shownTerm) ?? null,
        'no additions/deletions to non-empty NodeSelectorTerms list are allowed',
      ),
    ];
  }
  return oldTerms.flatMap((term, index) => {
    const now = terms[index] ?? {};
    const lists = ['matchExpressions', 'matchFields'] as const;
    const wasEmpty = lists.every((list) => (term[list] ?? []).length === 0);
    // An empty term matches nothing, so adding an expression to it would widen the selection.
    const keepsAll = wasEmpty
      ? lists.every((list) => (now[list] ?? []).length === 0)
      : lists.every((list) => (term[list] ?? []).every((one, at) => semanticEqual(one, now[list]?.[at])));
    if (keepsAll) return [];
    return [invalid(`${path}[${index}]`, shownTerm(now), 'only additions are allowed (no mutations or deletions)')];
  });
}

/** Validates an update of the subresource `status`. */
export function podStatusUpdateErrors(pod: Pod, old: Pod): FieldError[] {
  const errors = podAnnotationUpdateErrors(pod.metadata.annotations, old.metadata.annotations, pod.spec);
  const status = pod.status ?? {};
  for (const [index, { type = '', observedGeneration: observed = 0 }] of (status.conditions ?? []).entries()) {
    const at = `status.conditions[${index}]`;
    if (observed < 0) errors.push(invalid(`${at}.observedGeneration`, observed, NOT_NEGATIVE));
    errors.push(...invalidFor(`${at}.Type`, type, qualifiedNameErrors(type)));
  }
  const { nominatedNodeName = '', observedGeneration = 0 } = status;
  if (observedGeneration < 0) errors.push(invalid('status.observedGeneration', observedGeneration, NOT_NEGATIVE));
  if (nominatedNodeName !== '')
    errors.push(...invalidFor('status.nominatedNodeName', nominatedNodeName, dnsSubdomainErrors(nominatedNodeName)));
  const moved = nominatedNodeName !== '' && nominatedNodeName !== (old.status?.nominatedNodeName ?? '');
  if (moved && (pod.spec?.nodeName ?? '') !== '')
    errors.push(forbidden('status.nominatedNodeName', 'may not be set on pods that are already bound to a node'));
  if ((pod.spec?.nodeName ?? '') !== (old.spec?.nodeName ?? ''))
    errors.push(forbidden('status.nodeName', 'may not be changed directly'));
  if (old.status?.qosClass !== undefined && status.qosClass !== old.status.qosClass) {
    errors.push(invalid('status.qosClass', status.qosClass ?? '', 'field is immutable'));
  }
  for (const list of ['initContainerStatuses', 'containerStatuses', 'ephemeralContainerStatuses'] as const)
    errors.push(...terminationErrors(pod, old, list));
  errors.push(...podReportErrors(pod, old));
  return errors;
}

/** Refuses a status in which a container runs again although its restart policy forbids that. */
function terminationErrors(
  pod: Pod,
  old: Pod,
  list: 'containerStatuses' | 'initContainerStatuses' | 'ephemeralContainerStatuses',
): FieldError[] {
  const policy = list === 'ephemeralContainerStatuses' ? 'Never' : (old.spec?.restartPolicy ?? 'Always');
  if (policy === 'Always') return [];
  const containersByName = new Map(initAndMainContainers(old.spec).map((one) => [one.name, one] as const));
  // A container with this rule can restart all containers of the pod.
  const restartsAll = [...containersByName.values()].some((one) =>
    (one.restartPolicyRules ?? []).some(({ action }) => action === 'RestartAllContainers'),
  );
  if (restartsAll && list !== 'ephemeralContainerStatuses') return [];
  const errors: FieldError[] = [];
  const running = new Map<string | undefined, number[]>();
  for (const [index, { name, state }] of (pod.status?.[list] ?? []).entries()) {
    if (state?.terminated !== undefined) continue;
    const indexes = running.get(name);
    if (indexes === undefined) running.set(name, [index]);
    else indexes.push(index);
  }
  for (const before of old.status?.[list] ?? []) {
    const ended = before.state?.terminated;
    if (ended === undefined || (policy === 'OnFailure' && ended.exitCode !== 0)) continue;
    const container = containersByName.get(before.name);
    if (container?.restartPolicy !== undefined || (container?.restartPolicyRules ?? []).length > 0) continue;
    for (const index of running.get(before.name) ?? []) {
      const text = 'may not be transitioned to non-terminated state';
      errors.push(forbidden(`status.${list}[${index}].state`, text));
    }
  }
  return errors;
}

/** The path of an error of the whole pod. */
export const WHOLE = '[]';
/** Whether the pod only shows a static pod at the API server. */
export const isMirror = (pod: Pod): boolean => pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined;

/** Validates an update of the subresource `ephemeralcontainers`, which only adds containers. */
export function ephemeralContainerUpdateErrors(pod: Pod, old: Pod): FieldError[] {
  const spec = pod.spec ?? {};
  if (isMirror(old)) return [forbidden(WHOLE, 'static pods do not support ephemeral containers')];
  const errors = [
    ...podErrors(pod),
    ...podAnnotationUpdateErrors(pod.metadata.annotations, old.metadata.annotations, spec),
  ];
  const names = new Map((spec.ephemeralContainers ?? []).map((one) => [one.name, one] as const));
  for (const container of old.spec?.ephemeralContainers ?? []) {
    const now = names.get(container.name);
    if (now === undefined)
      errors.push(
        forbidden(
          'spec.ephemeralContainers',
          `existing ephemeral containers ${stringifyJson(container.name)} may not be removed\n`,
        ),
      );
    else if (!equalAs(EPHEMERAL, now, container))
      errors.push(forbidden('spec.ephemeralContainers', () => changed(container, now)));
  }
  return errors;
}

const EPHEMERAL = 'io.k8s.api.core.v1.EphemeralContainer';

const changed = (old: EphemeralContainer, now: EphemeralContainer): string =>
  `existing ephemeral containers ${stringifyJson(old.name)} may not be changed` + typeDiff(EPHEMERAL, old, now);
