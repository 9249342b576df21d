/** Defines the strategy of daemon sets: defaults, generations of the template, and validation. */
import type { V1DaemonSetSpec, V1LabelSelector } from '@kubernetes/client-node';
import { type FieldError, invalid, required, unsupportedValue } from '../../../../api/meta/field-error.ts';
import { validateLabelSelector } from '../../../../api/meta/selector.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { daemonSetColumns } from './columns.ts';
import { statusOnly } from '../../generic-strategy.ts';
import type { Strategy, UpdateStrategy } from '../../strategy.ts';
import { immutable, nonNegative } from '../field-rules.ts';
import { equalAs, LABEL_SELECTOR, POD_TEMPLATE } from '../../../../api/schema/semantic-equality.ts';
import {
  collisionErrors,
  controllerTemplateErrors,
  countErrors,
  countOrPercentErrors,
  isZero,
  notAbove100,
  shownSelector,
  templateDefaults,
  templated,
  templateMatchErrors,
  templateWarnings,
  type Templated,
} from './workload-rules.ts';

type DaemonSet = Templated<V1DaemonSetSpec>;

function daemonSetErrors(object: DaemonSet): FieldError[] {
  const spec = object.spec ?? {};
  const errors =
    spec.selector === undefined ? [] : validateLabelSelector(spec.selector as V1LabelSelector, 'spec.selector');
  errors.push(...templateMatchErrors(spec.selector, spec.template));
  const { matchLabels, matchExpressions } = spec.selector ?? {};
  if (
    spec.selector !== undefined &&
    Object.keys(matchLabels ?? {}).length === 0 &&
    (matchExpressions ?? []).length === 0
  ) {
    errors.push(invalid('spec.selector', shownSelector(spec.selector), 'empty selector is invalid for daemonset'));
  }
  errors.push(
    ...controllerTemplateErrors(spec.template, 'DaemonSet'),
    ...nonNegative('spec.minReadySeconds', spec.minReadySeconds),
  );
  errors.push(
    ...daemonUpdateErrors(spec.updateStrategy),
    ...nonNegative('spec.revisionHistoryLimit', spec.revisionHistoryLimit),
  );
  return errors;
}

function daemonUpdateErrors(strategy: NonNullable<DaemonSet['spec']>['updateStrategy']): FieldError[] {
  const path = 'spec.updateStrategy';
  if (strategy?.type === 'OnDelete') return [];
  if (strategy?.type !== 'RollingUpdate')
    return [
      unsupportedValue(path, internalForm('io.k8s.api.apps.v1.DaemonSetUpdateStrategy', strategy ?? {}), [
        'RollingUpdate',
        'OnDelete',
      ]),
    ];
  const rolling = strategy.rollingUpdate as
    | { maxSurge?: string | number; maxUnavailable?: string | number }
    | undefined;
  if (rolling === undefined) return [required(`${path}.rollingUpdate`)];
  const at = `${path}.rollingUpdate`;
  const errors = [
    ...countOrPercentErrors(`${at}.maxUnavailable`, rolling.maxUnavailable),
    ...countOrPercentErrors(`${at}.maxSurge`, rolling.maxSurge),
  ];
  errors.push(
    ...notAbove100(`${at}.maxUnavailable`, rolling.maxUnavailable),
    ...notAbove100(`${at}.maxSurge`, rolling.maxSurge),
  );
  if (!isZero(rolling.maxSurge) && !isZero(rolling.maxUnavailable)) {
    errors.push(invalid(`${at}.maxSurge`, rolling.maxSurge, 'may not be set when maxUnavailable is non-zero'));
  }
  if (isZero(rolling.maxSurge) && isZero(rolling.maxUnavailable))
    errors.push(required(`${at}.maxUnavailable`, 'cannot be 0 when maxSurge is 0'));
  return errors;
}

/** The annotation that counts changes of the template. Only the server writes it. */
const TEMPLATE_GENERATION = 'deprecated.daemonset.template.generation';

function setTemplateGeneration(object: DaemonSet, generation: number): void {
  object.metadata.annotations = { ...object.metadata.annotations, [TEMPLATE_GENERATION]: String(generation) };
}

function templateGeneration(object: DaemonSet): number {
  const count = Number(object.metadata.annotations?.[TEMPLATE_GENERATION] ?? 0);
  return Number.isSafeInteger(count) ? count : 0;
}

export const daemonSets: Strategy<DaemonSet> = {
  metadataChecks: ['update'],
  ...templated,
  applyDefaults(object) {
    templateDefaults(object);
    const spec = (object.spec ??= {});
    spec.updateStrategy ??= {};
    if ((spec.updateStrategy.type ?? '') === '') spec.updateStrategy.type = 'RollingUpdate';
    const rolls = spec.updateStrategy.type === 'RollingUpdate';
    if (rolls) spec.updateStrategy.rollingUpdate ??= {};
    const rolling = spec.updateStrategy.rollingUpdate as
      | { maxSurge?: string | number; maxUnavailable?: string | number }
      | undefined;
    if (rolling !== undefined) {
      rolling.maxUnavailable ??= rolls ? 1 : 0;
      rolling.maxSurge ??= 0;
    }
    spec.revisionHistoryLimit ??= 10;
    setTemplateGeneration(object, templateGeneration(object));
  },
  prepareForCreate(object) {
    templated.prepareForCreate(object);
    setTemplateGeneration(object, Math.max(1, templateGeneration(object)));
  },
  prepareForUpdate(object, old) {
    templated.prepareForUpdate(object, old);
    const isChanged = !equalAs(POD_TEMPLATE, object.spec?.template, old.spec?.template);
    setTemplateGeneration(object, templateGeneration(old) + (isChanged ? 1 : 0));
  },
  validateCreate: daemonSetErrors,
  validateUpdate: (object, old) => [
    ...immutable('spec.selector', object.spec?.selector, old.spec?.selector, LABEL_SELECTOR),
    ...daemonSetErrors(object),
  ],
  warningsOnCreate: (object) => templateWarnings(object),
  warningsOnUpdate: (object, old) =>
    templateGeneration(object) === templateGeneration(old) ? [] : templateWarnings(object),
  columns: daemonSetColumns,
  status: {
    ...(statusOnly as UpdateStrategy<DaemonSet>),
    prepareForUpdate(object, old, context) {
      (statusOnly as UpdateStrategy<DaemonSet>).prepareForUpdate?.(object, old, context);
      setTemplateGeneration(object, templateGeneration(old));
    },
    validateUpdate: (object, old) => [
      ...countErrors(object.status, [
        'currentNumberScheduled',
        'numberMisscheduled',
        'desiredNumberScheduled',
        'numberReady',
        'observedGeneration',
        'updatedNumberScheduled',
        'numberAvailable',
        'numberUnavailable',
        'collisionCount',
      ]),
      ...collisionErrors(object.status, old.status),
    ],
  },
};
