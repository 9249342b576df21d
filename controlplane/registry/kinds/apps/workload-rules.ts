/**
 * Holds the rules that deployments, replica sets, stateful sets and similar workloads share: those of selectors, pod templates
 * and replica counts.
 */
import type { V1LabelSelector } from '@kubernetes/client-node';
import { dropDisabledPodFields } from '../../../../api/kinds/disabled-fields.ts';
import { applyPodTemplateDefaults } from '../../../../api/kinds/pod-defaults.ts';
import { podTemplateErrors } from '../../../../api/kinds/pod-validation.ts';
import type { PodTemplate } from '../../../../api/kinds/pod-types.ts';
import { ownerNameWarnings, podWarnings } from '../../../../api/kinds/pod-warnings.ts';
import type { Wire } from '../../../../api/kinds/wire.ts';
import { type FieldError, forbidden, invalid, required, unsupportedValue } from '../../../../api/meta/field-error.ts';
import { parsePercent } from '../../../../api/meta/intstr.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { fromLabelSelector, validateLabelSelector } from '../../../../api/meta/selector.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { specAndStatus } from '../../generic-strategy.ts';
import { nonNegative, shownMap } from '../field-rules.ts';
import { LABEL_SELECTOR } from '../../../../api/schema/semantic-equality.ts';

/** A workload with the given spec and a template. */
export type Templated<Spec> = KubeObject & {
  spec?: Omit<Wire<Spec>, 'template'> & { template?: PodTemplate };
  status?: Record<string, number | undefined>;
};

type WithTemplate = KubeObject & { spec?: { template?: PodTemplate } };

/** Extends `specAndStatus` for kinds whose spec has a pod template. */
export const templated = {
  ...specAndStatus,
  prepareForCreate(object: WithTemplate): void {
    specAndStatus.prepareForCreate(object);
    dropDisabledPodFields(object.spec?.template?.spec, undefined);
  },
  prepareForUpdate(object: WithTemplate, old: WithTemplate): void {
    specAndStatus.prepareForUpdate(object, old);
    dropDisabledPodFields(object.spec?.template?.spec, old.spec?.template?.spec);
  },
};

/** Returns the warnings for the pod template. An update returns them only if it has changed the generation. */
export function templateWarnings(object: WithTemplate, old?: WithTemplate): string[] {
  if (old !== undefined && isSameGeneration(object, old)) return [];
  const template = object.spec?.template;
  return podWarnings(template?.metadata, template?.spec ?? {}, 'spec.template');
}

/** Whether both objects have the same `metadata.generation`, so that the desired state is unchanged. */
export const isSameGeneration = (object: KubeObject, old: KubeObject): boolean =>
  object.metadata.generation === old.metadata.generation;

/** Returns the warnings for a new object whose name begins the names of its pods. */
export const namedTemplateWarnings = (object: WithTemplate): string[] => [
  ...ownerNameWarnings(object.metadata.name ?? ''),
  ...templateWarnings(object),
];

/** Sets the defaults of the pod template in place. */
export function templateDefaults(object: { spec?: { template?: PodTemplate } }): void {
  object.spec ??= {};
  object.spec.template ??= {};
  applyPodTemplateDefaults(object.spec.template);
}

/** Validates that the selector is present, valid and not empty. */
export function selectorErrors(selector: Wire<V1LabelSelector> | undefined, emptyText: string): FieldError[] {
  if (selector === undefined) return [required('spec.selector')];
  const errors = validateLabelSelector(selector as V1LabelSelector, 'spec.selector');
  const empty = Object.keys(selector.matchLabels ?? {}).length === 0 && (selector.matchExpressions ?? []).length === 0;
  if (empty) errors.push(invalid('spec.selector', shownSelector(selector), emptyText));
  return errors;
}

/** Returns the selector as an error shows it: fields in the order of the type, labels sorted. */
export const shownSelector = (selector: Wire<V1LabelSelector>): object | null => internalForm(LABEL_SELECTOR, selector);

const isValidSelector = (selector: Wire<V1LabelSelector>): boolean =>
  validateLabelSelector(selector as V1LabelSelector, '').length === 0;

/** Validates that a valid selector matches the labels of the template. A missing selector matches nothing. */
export function templateMatchErrors(
  selector: Wire<V1LabelSelector> | undefined,
  template: PodTemplate | undefined,
): FieldError[] {
  const labels = template?.metadata?.labels;
  if (selector !== undefined) {
    if (!isValidSelector(selector)) return [];
    if (fromLabelSelector(selector as V1LabelSelector).matches(labels ?? {})) return [];
  }
  return [invalid('spec.template.metadata.labels', shownMap(labels), '`selector` does not match template `labels`')];
}

/**
 * Validates the selector and the pod template of a controller, whose labels the selector must match. The template is not
 * validated if the selector is invalid.
 */
export function selectedTemplateErrors(
  spec: { selector?: Wire<V1LabelSelector> | undefined; template?: PodTemplate },
  kind: string,
): FieldError[] {
  const { selector, template } = spec;
  const errors = invalidSelectorErrors(selector, 'invalid label selector');
  if (errors.length > 0) return errors;
  return [...templateMatchErrors(selector, template), ...controllerTemplateErrors(template, kind)];
}

/** Returns the error of a selector that cannot be parsed. `text` is its detail, which differs between kinds. */
export function invalidSelectorErrors(selector: Wire<V1LabelSelector> | undefined, text: string): FieldError[] {
  return selector === undefined || isValidSelector(selector)
    ? []
    : [invalid('spec.selector', shownSelector(selector), text)];
}

/** Validates the pod template of a controller. */
export function controllerTemplateErrors(template: PodTemplate | undefined, kind: string): FieldError[] {
  return [...podTemplateErrors(template, 'spec.template'), ...controllerPolicyErrors(template, kind)];
}

/** Validates that the pods of a template restart always and have no deadline. */
export function controllerPolicyErrors(template: PodTemplate | undefined, kind: string): FieldError[] {
  const errors: FieldError[] = [];
  const policy = template?.spec?.restartPolicy;
  if (policy !== 'Always') errors.push(unsupportedValue('spec.template.spec.restartPolicy', policy ?? '', ['Always']));
  if (template?.spec?.activeDeadlineSeconds !== undefined) {
    errors.push(
      forbidden('spec.template.spec.activeDeadlineSeconds', `activeDeadlineSeconds in ${kind} is not Supported`),
    );
  }
  return errors;
}

/** Validates a count of pods: a number that is not negative, or a percentage such as `25%`. An absent value is valid. */
export function countOrPercentErrors(field: string, value: string | number | undefined): FieldError[] {
  if (typeof value === 'string') {
    if (parsePercent(value) !== undefined) return [];
    return [
      invalid(
        field,
        value,
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
      ),
    ];
  }
  return nonNegative(field, value);
}

/** Returns the error of a percentage above 100. Numbers are not limited. */
export function notAbove100(field: string, value: string | number | undefined): FieldError[] {
  const percent = typeof value === 'string' ? parsePercent(value) : undefined;
  return percent !== undefined && percent > 100 ? [invalid(field, value, 'must not be greater than 100%')] : [];
}

/** Returns whether the value is zero. A text that cannot be parsed counts as zero, and an absent value does not. */
export function isZero(value: string | number | undefined): boolean {
  if (typeof value !== 'string') return value === 0;
  const count = parsePercent(value) ?? (/^[+-]?\d+$/.test(value) ? Number(value) : 0);
  return count === 0;
}

type Counts = Readonly<Record<string, number | undefined>> | undefined;

/** Validates a change of the counter of name collisions, which never decreases. */
export function collisionErrors(status: Counts, old: Counts): FieldError[] {
  const before = old?.['collisionCount'];
  const now = status?.['collisionCount'];
  if (before === undefined || (now !== undefined && now >= before)) return [];
  return [invalid('status.collisionCount', now ?? 0, 'cannot be decremented')];
}

/** Validates that the named fields of the status are not negative. */
export function countErrors(
  status: Readonly<Record<string, unknown>> | undefined,
  fields: readonly string[],
): FieldError[] {
  return fields.flatMap((field) => nonNegative(`status.${field}`, status?.[field] as number | undefined));
}

/** Returns an error for each of the named fields of the status that exceeds `status.replicas`. */
export function notMoreThanReplicas(
  status: Readonly<Record<string, number | undefined>> | undefined,
  fields: readonly string[],
): FieldError[] {
  const total = status?.['replicas'] ?? 0;
  return fields.flatMap((field) =>
    (status?.[field] ?? 0) > total
      ? [invalid(`status.${field}`, status?.[field] ?? 0, 'cannot be greater than status.replicas')]
      : [],
  );
}

/** Validates that `availableReplicas` does not exceed the ready replicas. `ready` is the name of that field in the message. */
export function notMoreThanReady(
  status: Readonly<Record<string, number | undefined>> | undefined,
  ready: string,
): FieldError[] {
  const available = status?.['availableReplicas'] ?? 0;
  return available > (status?.['readyReplicas'] ?? 0)
    ? [invalid('status.availableReplicas', available, `cannot be greater than ${ready}`)]
    : [];
}
