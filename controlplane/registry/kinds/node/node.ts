/**
 * Defines the strategy of runtime classes. The handler of a class is immutable. Its overhead and its scheduling rules may
 * change.
 */
import type { V1RuntimeClass } from '@kubernetes/client-node';
import {
  isHugePage,
  isStandardContainerResource,
  resourceNameErrors,
  resourceValueErrors,
} from '../../../../api/kinds/resource-validation.ts';
import { stringifyJson } from '../../../../api/codec/json.ts';
import { tolerationErrors } from '../../../../api/kinds/scheduling-validation.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { DEPRECATED_LABELS } from '../../../../api/kinds/pod-warnings.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { duplicate, type FieldError, forbidden, invalid, required } from '../../../../api/meta/field-error.ts';
import { dnsLabelErrors } from '../../../../api/meta/names.ts';
import { validateLabels } from '../../../../api/meta/selector.ts';
import { runtimeClassColumns } from './columns.ts';
import { kindRow, type Strategy } from '../../strategy.ts';
import { immutable } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type RuntimeClass = Kind<Pick<V1RuntimeClass, 'handler' | 'overhead' | 'scheduling'>>;

type Scheduling = NonNullable<RuntimeClass['scheduling']>;

function overheadErrors(podFixed: Readonly<Record<string, string | undefined>>): FieldError[] {
  const errors: FieldError[] = [];
  const names = Object.keys(podFixed).sort();
  for (const name of names) {
    const field = `overhead.limits[${name}]`;
    errors.push(...resourceNameErrors(field, name));
    if (!name.includes('/') && !isStandardContainerResource(name))
      errors.push(invalid(field, name, 'must be a standard resource for containers'));
    errors.push(...resourceValueErrors(field, name, podFixed[name] ?? '0'));
  }
  if (names.some(isHugePage) && !names.includes('cpu') && !names.includes('memory'))
    errors.push(forbidden('overhead', 'HugePages require cpu or memory'));
  return errors;
}

function schedulingErrors(scheduling: Scheduling): FieldError[] {
  const errors = validateLabels(
    scheduling.nodeSelector as Record<string, string> | undefined,
    'scheduling.nodeSelector',
  );
  const path = 'scheduling.tolerations';
  const tolerations = scheduling.tolerations ?? [];
  errors.push(...tolerationErrors(tolerations, path));
  const seen = new Set<string>();
  for (const [index, toleration] of tolerations.entries()) {
    const { key = '', operator = '', value = '', effect = '', tolerationSeconds: seconds = null } = toleration;
    const text = stringifyJson([key, operator, value, effect, seconds]);
    if (seen.has(text))
      errors.push(duplicate(`${path}[${index}]`, internalForm('io.k8s.api.core.v1.Toleration', toleration)));
    seen.add(text);
  }
  return errors;
}

function labelWarnings({ scheduling }: RuntimeClass): string[] {
  return Object.keys(scheduling?.nodeSelector ?? {})
    .sort()
    .flatMap((key) => {
      const text = DEPRECATED_LABELS.get(key);
      return text === undefined ? [] : [`scheduling.nodeSelector: ${text}`];
    });
}

function classErrors({ handler = '', overhead, scheduling }: RuntimeClass): FieldError[] {
  return [
    ...(handler === '' ? [required('handler')] : invalidFor('handler', handler, dnsLabelErrors(handler))),
    ...(overhead === undefined ? [] : overheadErrors(overhead.podFixed ?? {})),
    ...(scheduling === undefined ? [] : schedulingErrors(scheduling)),
  ];
}

const runtimeClasses: Strategy<RuntimeClass> = {
  metadataChecks: ['plainWhole', 'plainUpdate'],
  allowCreateOnUpdate: true,
  requiresResourceVersion: true,
  validateCreate: classErrors,
  validateUpdate: (object, old) => [...classErrors(object), ...immutable('handler', object.handler ?? '', old.handler)],
  warningsOnCreate: labelWarnings,
  warningsOnUpdate: labelWarnings,
  columns: runtimeClassColumns,
};

export const nodeKinds = [kindRow('node.k8s.io', 'runtimeclasses', runtimeClasses)];
