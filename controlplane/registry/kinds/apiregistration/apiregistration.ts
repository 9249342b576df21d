/**
 * Defines the strategy of API services. An API service says which server serves a group and version: this one, or one behind a
 * service.
 */
import { invalid, required, unsupportedValue, type FieldError, quote } from '../../../../api/meta/field-error.ts';
import {
  dnsSubdomainErrors,
  type NameRule,
  pathSegmentErrors,
  rfc1035LabelErrors,
} from '../../../../api/meta/names.ts';
import { apiServiceColumns } from './columns.ts';
import { restore, statusWithoutMetadata } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';

import { servicePortErrors } from '../admissionregistration/webhook-client.ts';
import type { ApiService } from './api-service-types.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const CONDITION_STATES = ['True', 'False', 'Unknown'];

function nameRuleOf({ spec }: ApiService): NameRule {
  const wanted = `${spec?.version ?? ''}.${spec?.group ?? ''}`;
  return (name) => {
    const minimal = pathSegmentErrors(name);
    if (minimal.length > 0 || name === wanted) return minimal;
    return [`must be \`spec.version+"."+spec.group\`: ${quote(wanted)}`];
  };
}

function apiServiceErrors(object: ApiService): FieldError[] {
  const { group = '', version = '', groupPriorityMinimum = 0, versionPriority = 0 } = object.spec ?? {};
  const errors: FieldError[] = [];
  if (group !== '') errors.push(...invalidFor('spec.group', group, dnsSubdomainErrors(group)));
  else if (version !== 'v1')
    errors.push(required('spec.group', 'only v1 may have an empty group and it better be legacy kube'));
  errors.push(...invalidFor('spec.version', version, rfc1035LabelErrors(version)));
  if (groupPriorityMinimum <= 0 || groupPriorityMinimum > 20_000)
    errors.push(invalid('spec.groupPriorityMinimum', groupPriorityMinimum, 'must be positive and less than 20000'));
  if (versionPriority <= 0 || versionPriority > 1000)
    errors.push(invalid('spec.versionPriority', versionPriority, 'must be positive and less than 1000'));
  return [...errors, ...backendErrors(object.spec ?? {})];
}

function backendErrors({ service, caBundle = '', insecureSkipTLSVerify = false }: NonNullable<ApiService['spec']>) {
  const insecure = 'spec.insecureSkipTLSVerify';
  if (service === undefined) {
    const errors: FieldError[] = [];
    if (caBundle !== '') {
      const size = `${Buffer.byteLength(caBundle, 'base64')} bytes`;
      errors.push(invalid('spec.caBundle', size, 'local APIServices may not have a caBundle'));
    }
    if (insecureSkipTLSVerify)
      errors.push(invalid(insecure, true, 'local APIServices may not have insecureSkipTLSVerify'));
    return errors;
  }
  const { namespace = '', name = '' } = service;
  const errors = [
    ...(namespace === '' ? [required('spec.service.namespace')] : []),
    ...(name === '' ? [required('spec.service.name')] : []),
    ...servicePortErrors('spec.service', service),
  ];
  if (insecureSkipTLSVerify && caBundle !== '')
    errors.push(invalid(insecure, true, 'may not be true if caBundle is present'));
  return errors;
}

const apiServices: Strategy<ApiService> = {
  metadataChecks: ['plainUpdate', 'plainWhole'],
  requiresResourceVersion: true,
  nameRuleOf,
  applyDefaults(object) {
    if (object.spec?.service !== undefined) object.spec.service.port ??= 443;
  },
  prepareForCreate(object, { nowMs }) {
    object.status = {};
    if (object.spec?.service !== undefined) return;
    object.status.conditions = [
      {
        type: 'Available',
        status: 'True',
        lastTransitionTime: new Date(nowMs).toISOString().replace(/\.\d+/, ''),
        reason: 'Local',
        message: 'Local APIServices are always available',
      },
    ];
  },
  prepareForUpdate: (object, old) => restore(object, old, 'status'),
  validateCreate: apiServiceErrors,
  validateUpdate: apiServiceErrors,
  resetFields: [['status']],
  columns: apiServiceColumns,
  status: {
    ...(statusWithoutMetadata as UpdateStrategy<ApiService>),
    validateUpdate: (object) =>
      (object.status?.conditions ?? []).flatMap(({ status = '' }, index) =>
        CONDITION_STATES.includes(status)
          ? []
          : [unsupportedValue(`status.conditions[${index}].status`, status, CONDITION_STATES)],
      ),
  },
};

export const apiRegistrationKinds = [kindRow('apiregistration.k8s.io', 'apiservices', apiServices)];
