/** Defines the strategies of storage classes and volume attributes classes. */
import type { V1StorageClass, V1VolumeAttributesClass } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import {
  duplicate,
  type FieldError,
  forbidden,
  invalid,
  notSupported,
  required,
  tooLong,
} from '../../../../api/meta/field-error.ts';
import { stringifyJson } from '../../../../api/codec/json.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { validateLabelName } from '../../../../api/meta/selector.ts';
import type { Strategy } from '../../strategy.ts';
import { immutable } from '../field-rules.ts';
import { attributesClassColumns, storageClassColumns } from './columns.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

/** The maximum number of parameters, and of bytes of all of them together. */
const MAX_PARAMETERS = 512;
const MAX_PARAMETER_BYTES = 256 * 1024;

/** Validates the parameters of a class: their names, their number and their total size. If `needed`, there must be some. */
function parameterErrors(
  parameters: Readonly<Record<string, string>> | undefined,
  { needed }: { readonly needed: boolean },
): FieldError[] {
  const entries = Object.entries(parameters ?? {});
  if (needed && entries.length === 0) return [required('parameters', 'must contain at least one key/value pair')];
  if (entries.length > MAX_PARAMETERS) return [tooLong('parameters', MAX_PARAMETERS)];
  const errors = entries.flatMap(([key]) =>
    key === '' ? [invalid('parameters', key, 'field can not be empty.')] : [],
  );
  const size = entries.reduce((sum, [key, value]) => sum + Buffer.byteLength(key) + Buffer.byteLength(value), 0);
  if (size > MAX_PARAMETER_BYTES) errors.push(tooLong('parameters', MAX_PARAMETER_BYTES));
  return errors;
}

const texts = (map: object | undefined): Readonly<Record<string, string>> | undefined =>
  map as Record<string, string> | undefined;

type StorageClass = Kind<
  Pick<V1StorageClass, 'provisioner' | 'parameters' | 'reclaimPolicy' | 'volumeBindingMode' | 'allowedTopologies'>
>;

/** The number of errors from which on a repeated term is reported once only. */
const MAX_REPEATED = 1000;

function topologyErrors(topologies: StorageClass['allowedTopologies']): FieldError[] {
  const errors: FieldError[] = [];
  // kube-apiserver compares each term with as many empty ones as there are terms, and with all terms before it.
  const seen = new Map([['[]', (topologies ?? []).length]]);
  for (const [index, term] of (topologies ?? []).entries()) {
    const at = `allowedTopologies[${index}].matchLabelExpressions`;
    const keys = new Set<string>();
    const values = new Map<string, readonly string[]>();
    for (const [place, expression] of (term.matchLabelExpressions ?? []).entries()) {
      const { key = '', values: list = [] } = expression;
      errors.push(...topologyExpressionErrors(key, list, `${at}[${place}]`));
      if (keys.has(key)) errors.push(duplicate(`${at}[${place}].key`, key));
      keys.add(key);
      values.set(key, [...list].sort());
    }
    const text = stringifyJson([...values].sort(([a], [b]) => (a < b ? -1 : 1)));
    const times = seen.get(text) ?? 0;
    for (let count = 0; count < times && (count === 0 || errors.length < MAX_REPEATED); count += 1)
      errors.push(duplicate(at, ''));
    seen.set(text, times + 1);
  }
  return errors;
}

function topologyExpressionErrors(key: string, values: readonly string[], at: string): FieldError[] {
  const errors: FieldError[] = [];
  if (values.length === 0) errors.push(required(`${at}.values`));
  const seen = new Set<string>();
  for (const [index, value] of values.entries()) {
    if (seen.has(value)) errors.push(duplicate(`${at}.values[${index}]`, value));
    seen.add(value);
  }
  errors.push(...validateLabelName(key, `${at}.key`));
  return errors;
}

/** Validates the provisioner: a qualified name that may have capital letters. */
function provisionerErrors(field: string, name: string): FieldError[] {
  const lower = name.toLowerCase();
  return name === '' ? [required(field)] : invalidFor(field, lower, qualifiedNameErrors(lower));
}

function classErrors(object: StorageClass): FieldError[] {
  const { provisioner = '', reclaimPolicy = '', volumeBindingMode: binding } = object;
  const errors = provisionerErrors('provisioner', provisioner);
  errors.push(...parameterErrors(texts(object.parameters), { needed: false }));
  if (reclaimPolicy !== '' && !['Delete', 'Retain'].includes(reclaimPolicy))
    errors.push(notSupported('reclaimPolicy', reclaimPolicy, ['Delete', 'Retain']));
  if (binding === undefined) errors.push(required('volumeBindingMode'));
  else if (!['Immediate', 'WaitForFirstConsumer'].includes(binding))
    errors.push(notSupported('volumeBindingMode', binding, ['Immediate', 'WaitForFirstConsumer']));
  errors.push(...topologyErrors(object.allowedTopologies));
  return errors;
}

export const storageClasses: Strategy<StorageClass> = {
  metadataChecks: ['whole', 'update'],
  applyDefaults(object) {
    object.reclaimPolicy ??= 'Delete';
    object.volumeBindingMode ??= 'Immediate';
  },
  validateCreate: classErrors,
  validateUpdate: (object, old) => [
    ...classErrors(object),
    ...immutable('parameters', object.parameters ?? null, old.parameters ?? null),
    ...immutable('provisioner', object.provisioner, old.provisioner),
    ...immutable('reclaimPolicy', object.reclaimPolicy, old.reclaimPolicy),
    ...immutable('volumeBindingMode', object.volumeBindingMode, old.volumeBindingMode),
  ],
  warningsOnCreate: topologyWarnings,
  warningsOnUpdate: topologyWarnings,
  returnsDeleted: true,
  columns: storageClassColumns,
};

const OLD_TOPOLOGY: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'failure-domain.beta.kubernetes.io/region': 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    'failure-domain.beta.kubernetes.io/zone': 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
  }),
);

function topologyWarnings(object: StorageClass): string[] {
  return (object.allowedTopologies ?? []).flatMap((term, index) =>
    (term.matchLabelExpressions ?? []).flatMap(({ key = '' }, place) => {
      const text = OLD_TOPOLOGY.get(key);
      return text === undefined
        ? []
        : [`allowedTopologies[${index}].matchLabelExpressions[${place}].key: ${key} is ${text}`];
    }),
  );
}

type AttributesClass = Kind<Pick<V1VolumeAttributesClass, 'driverName' | 'parameters'>>;

const attributesClassErrors = (object: AttributesClass): FieldError[] => [
  ...provisionerErrors('driverName', object.driverName ?? ''),
  ...parameterErrors(texts(object.parameters), { needed: true }),
];

export const attributesClasses: Strategy<AttributesClass> = {
  validateCreate: attributesClassErrors,
  validateUpdate: (object, old) => [
    ...(object.driverName === old.driverName ? [] : [forbidden('driverName', 'updates to driverName are forbidden.')]),
    ...(jsonEqual(object.parameters ?? {}, old.parameters ?? {})
      ? []
      : [forbidden('parameters', 'updates to parameters are forbidden.')]),
    ...attributesClassErrors(object),
  ],
  returnsDeleted: true,
  columns: attributesClassColumns,
};
