/** Defines the table columns of webhook configurations, policies and bindings. */
import type { V1LabelSelector } from '@kubernetes/client-node';
import type {
  MutatingPolicy,
  ParamKind,
  ParamRef,
  ValidatingBinding,
  ValidatingPolicy,
  WebhookConfiguration,
} from './admission-types.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, nameColumn, nameOf } from '../../columns/column.ts';

const UNSET = '<unset>';

export const webhookConfigurationColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Webhooks', 'Webhooks indicates the number of webhooks registered in this configuration', {
      type: 'integer',
    }),
    ageColumn,
  ],
  cells: (object) => [nameOf(object), ((object as WebhookConfiguration).webhooks ?? []).length, age(object)],
};

const paramKindColumn = column(
  'ParamKind',
  'ParamKind specifies the kind of resources used to parameterize this policy',
);
const paramKindText = (kind: ParamKind | undefined): string =>
  kind === undefined ? UNSET : `${kind.apiVersion ?? ''}/${kind.kind ?? ''}`;

export const validatingPolicyColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Validations', 'Validations indicates the number of validation rules defined in this configuration', {
      type: 'integer',
    }),
    paramKindColumn,
    ageColumn,
  ],
  cells(object) {
    const { spec } = object as ValidatingPolicy;
    return [nameOf(object), (spec?.validations ?? []).length, paramKindText(spec?.paramKind), age(object)];
  },
};

export const mutatingPolicyColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Mutations', 'Mutation indicates the number of mutations rules defined in this configuration', {
      type: 'integer',
    }),
    paramKindColumn,
    ageColumn,
  ],
  cells(object) {
    const { spec } = object as MutatingPolicy;
    return [nameOf(object), (spec?.mutations ?? []).length, paramKindText(spec?.paramKind), age(object)];
  },
};

export const bindingColumns: TableColumns = {
  columns: [
    nameColumn,
    column('PolicyName', 'PolicyName indicates the policy definition which the policy binding binded to'),
    column('ParamRef', 'ParamRef indicates the param resource which sets the configuration param'),
    ageColumn,
  ],
  cells(object) {
    const { spec } = object as ValidatingBinding;
    return [nameOf(object), spec?.policyName ?? '', paramRefText(spec?.paramRef), age(object)];
  },
};

function paramRefText(ref: ParamRef | undefined): string {
  const { name = '', namespace = '', selector } = ref ?? {};
  // A reference without a namespace can refer to an object of any namespace.
  if (name !== '') return `${namespace === '' ? '*' : namespace}/${name}`;
  return selector === undefined ? UNSET : selectorText(selector as V1LabelSelector);
}

/** Formats the selector as kube-apiserver prints the Go struct. */
function selectorText({ matchLabels = {}, matchExpressions = [] }: V1LabelSelector): string {
  const labels = Object.keys(matchLabels)
    .sort()
    .map((key) => `${key}: ${matchLabels[key] ?? ''},`);
  const expressions = matchExpressions.map(
    ({ key, operator, values = [] }) =>
      `LabelSelectorRequirement{Key:${key},Operator:${operator},Values:[${values.join(' ')}],},`,
  );
  return `&LabelSelector{MatchLabels:map[string]string{${labels.join('')}},MatchExpressions:[]LabelSelectorRequirement{${expressions.join('')}},}`;
}
