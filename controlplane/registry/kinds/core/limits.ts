/**
 * Defines the strategies of limit ranges and resource quotas, which limit the resources of single objects and of a namespace.
 */
import { randomUUID } from 'node:crypto';
import type { V1LimitRangeSpec, V1ResourceQuotaSpec, V1ResourceQuotaStatus } from '@kubernetes/client-node';
import type { Quantities } from '../../../../api/kinds/pod-types.ts';
import {
  isExtendedResource,
  isStandardContainerResource,
  isOvercommitAllowed,
  isStandardQuotaResource,
  resourceNameErrors,
  resourceValueErrors,
} from '../../../../api/kinds/resource-validation.ts';
import type { Kind, Wire } from '../../../../api/kinds/wire.ts';
import { duplicate, type FieldError, forbidden, invalid, required } from '../../../../api/meta/field-error.ts';
import { qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { ownMember, setMember } from '../../../../api/meta/own-member.ts';
import { compareQuantities, parseQuantity, quotient } from '../../../../api/meta/quantity.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { quotaColumns } from './quota-columns.ts';
import { specAndStatus, statusOnly } from '../../generic-strategy.ts';
import { kindRow, type Strategy } from '../../strategy.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';
import { IMMUTABLE } from '../field-rules.ts';

type LimitRange = Kind<{ spec: V1LimitRangeSpec }>;
type Limit = NonNullable<NonNullable<NonNullable<LimitRange['spec']>['limits']>[number]>;

/** Returns `into` with those members of `from` that it lacks. */
function fill(into: Quantities | undefined, from: Quantities | undefined): Record<string, string> {
  const filled = { ...(into as Record<string, string> | undefined) };
  for (const [name, value] of Object.entries(from ?? {}))
    if (value !== undefined && ownMember(filled, name) === undefined) setMember(filled, name, value);
  return filled;
}

function limitDefaults(limit: Limit): void {
  if (limit.type !== 'Container') return;
  const limits = fill(limit.default, limit.max);
  const requests = fill(fill(limit.defaultRequest, limits), limit.min);
  if (Object.keys(limits).length > 0) limit.default = limits;
  if (Object.keys(requests).length > 0) limit.defaultRequest = requests;
}

function limitNameErrors(type: string, name: string, field: string): FieldError[] {
  const errors = resourceNameErrors(field, name);
  if ((type === 'Pod' || type === 'Container') && !name.includes('/') && !isStandardContainerResource(name)) {
    errors.push(invalid(field, name, 'must be a standard resource for containers'));
  } else if (
    (type === 'Pod' || type === 'Container') &&
    name.includes('/') &&
    !name.includes('kubernetes.io/') &&
    !isExtendedResource(name)
  ) {
    errors.push(invalid(field, name, "doesn't follow extended resource name standard"));
  }
  return errors;
}

function limitErrors(limit: Limit, at: string): FieldError[] {
  const type = limit.type ?? '';
  const errors: FieldError[] = [];
  const lists = {
    max: limit.max,
    min: limit.min,
    default: limit.default,
    defaultRequest: limit.defaultRequest,
    maxLimitRequestRatio: limit.maxLimitRequestRatio,
  };
  for (const [list, values] of Object.entries(lists)) {
    if (type === 'Pod' && (list === 'default' || list === 'defaultRequest')) {
      if (Object.keys(values ?? {}).length > 0)
        errors.push(forbidden(`${at}.${list}`, "may not be specified when `type` is 'Pod'"));
      continue;
    }
    for (const name of Object.keys(values ?? {}).sort())
      errors.push(...limitNameErrors(type, name, `${at}.${list}[${name}]`));
  }
  if (
    type === 'PersistentVolumeClaim' &&
    limit.min?.['storage'] === undefined &&
    limit.max?.['storage'] === undefined
  ) {
    errors.push(
      required(`${at}.limits`, 'either minimum or maximum storage value is required, but neither was provided'),
    );
  }
  const names = new Set(Object.values(lists).flatMap((values) => Object.keys(values ?? {})));
  for (const name of [...names].sort()) errors.push(...boundErrors(limit, name, at));
  return errors;
}

/**
 * Validates that min <= default request <= default <= max, and that the ratio is at least 1 and at most max/min. For resources
 * that cannot be overcommitted, the default must equal the default request.
 */
function boundErrors(limit: Limit, name: string, at: string): FieldError[] {
  const errors: FieldError[] = [];
  const read = (list: Quantities | undefined): string | undefined => ownMember(list, name);
  const min = read(limit.min);
  const max = read(limit.max);
  const request = read(limit.defaultRequest);
  const defaultLimit = read(limit.default);
  const ratio = read(limit.maxLimitRequestRatio);
  const above = (a: string | undefined, b: string | undefined): boolean =>
    a !== undefined && b !== undefined && compareQuantities(parseQuantity(a), parseQuantity(b)) > 0;
  if (above(min, max))
    errors.push(invalid(`${at}.min[${name}]`, min, `min value ${min} is greater than max value ${max}`));
  if (above(min, request))
    errors.push(
      invalid(
        `${at}.defaultRequest[${name}]`,
        request,
        `min value ${min} is greater than default request value ${request}`,
      ),
    );
  if (above(request, max))
    errors.push(
      invalid(
        `${at}.defaultRequest[${name}]`,
        request,
        `default request value ${request} is greater than max value ${max}`,
      ),
    );
  if (above(request, defaultLimit))
    errors.push(
      invalid(
        `${at}.defaultRequest[${name}]`,
        request,
        `default request value ${request} is greater than default limit value ${defaultLimit}`,
      ),
    );
  if (above(min, defaultLimit))
    errors.push(
      invalid(`${at}.default[${name}]`, min, `min value ${min} is greater than default value ${defaultLimit}`),
    );
  if (above(defaultLimit, max))
    errors.push(
      invalid(`${at}.default[${name}]`, max, `default value ${defaultLimit} is greater than max value ${max}`),
    );
  if (ratio !== undefined && above('1', ratio))
    errors.push(invalid(`${at}.maxLimitRequestRatio[${name}]`, ratio, `ratio ${ratio} is less than 1`));
  if (ratio !== undefined && min !== undefined && max !== undefined) {
    const { ratio: maxRatio, third: requestedRatio } = quotient(
      parseQuantity(max),
      parseQuantity(min),
      parseQuantity(ratio),
    );
    if (requestedRatio > maxRatio) {
      errors.push(
        invalid(
          `${at}.maxLimitRequestRatio[${name}]`,
          ratio,
          `ratio ${ratio} is greater than max/min = ${maxRatio.toFixed(6)}`,
        ),
      );
    }
  }
  if (!isOvercommitAllowed(name) && (above(defaultLimit, request) || above(request, defaultLimit))) {
    const text = `default value ${defaultLimit} must equal to defaultRequest value ${request} in ${name}`;
    errors.push(invalid(`${at}.defaultRequest[${name}]`, request, text));
  }
  return errors;
}

const TYPES = ['Pod', 'Container', 'PersistentVolumeClaim'];

function typeErrors(field: string, type: string): FieldError[] {
  const errors = invalidFor(field, type, qualifiedNameErrors(type));
  if (errors.length > 0 || type.includes('/') || TYPES.includes(type)) return errors;
  return [invalid(field, type, 'must be a standard limit type or fully qualified')];
}

function limitRangeErrors(object: LimitRange): FieldError[] {
  const errors: FieldError[] = [];
  const types = new Set<string>();
  for (const [index, limit] of (object.spec?.limits ?? []).entries()) {
    const at = `spec.limits[${index}]`;
    const { type = '' } = limit;
    errors.push(...typeErrors(`${at}.type`, type));
    if (types.has(type)) errors.push(duplicate(`${at}.type`, type));
    types.add(type);
    errors.push(...limitErrors(limit, at));
  }
  return errors;
}

const limitRanges: Strategy<LimitRange> = {
  metadataChecks: ['whole'],
  allowCreateOnUpdate: true,
  applyDefaults(object) {
    for (const limit of object.spec?.limits ?? []) limitDefaults(limit);
  },
  prepareForCreate(object) {
    if ((object.metadata.name ?? '') === '') object.metadata.name = randomUUID();
  },
  validateCreate: limitRangeErrors,
  validateUpdate: limitRangeErrors,
};

type ResourceQuota = Kind<{ spec: V1ResourceQuotaSpec; status: V1ResourceQuotaStatus }>;
type QuotaSpec = Wire<V1ResourceQuotaSpec>;

const SCOPES: ReadonlySet<string> = new Set([
  'Terminating',
  'NotTerminating',
  'BestEffort',
  'NotBestEffort',
  'PriorityClass',
  'CrossNamespacePodAffinity',
  'VolumeAttributesClass',
]);
const EXISTS_ONLY: ReadonlySet<string> = new Set([
  'BestEffort',
  'NotBestEffort',
  'Terminating',
  'NotTerminating',
  'CrossNamespacePodAffinity',
]);
const POD_RESOURCES: ReadonlySet<string> = new Set([
  'cpu',
  'memory',
  'requests.cpu',
  'requests.memory',
  'limits.cpu',
  'limits.memory',
  'pods',
]);
const CLAIM_RESOURCES: ReadonlySet<string> = new Set(['persistentvolumeclaims', 'requests.storage']);

function scopeFits(scope: string, name: string): boolean {
  if (scope === 'BestEffort') return name === 'pods';
  if (scope === 'VolumeAttributesClass') return CLAIM_RESOURCES.has(name);
  return !SCOPES.has(scope) || POD_RESOURCES.has(name);
}

function quotaListErrors(list: Quantities | undefined, path: string): FieldError[] {
  return Object.entries(list ?? {}).flatMap(([name, value]) => {
    const field = `${path}[${name}]`;
    const errors = resourceNameErrors(field, name);
    if (!name.includes('/') && !isStandardQuotaResource(name))
      errors.push(invalid(field, name, 'must be a standard resource for quota'));
    return [...errors, ...resourceValueErrors(field, name, value ?? '0')];
  });
}

function quotaSpecErrors(spec: QuotaSpec): FieldError[] {
  return [...quotaListErrors(spec.hard, 'spec.hard'), ...scopeErrors(spec), ...scopeSelectorErrors(spec)];
}

function conflicting(scopes: ReadonlySet<string>): boolean {
  return (
    (scopes.has('BestEffort') && scopes.has('NotBestEffort')) ||
    (scopes.has('Terminating') && scopes.has('NotTerminating'))
  );
}

const standardResources = (spec: QuotaSpec): string[] =>
  Object.keys(spec.hard ?? {})
    .filter(isStandardQuotaResource)
    .sort();

function scopeErrors(spec: QuotaSpec): FieldError[] {
  const scopes = spec.scopes ?? [];
  const resources = standardResources(spec);
  const errors: FieldError[] = [];
  for (const scope of scopes) {
    if (!SCOPES.has(scope)) errors.push(invalid('spec.scopes', scopes, 'unsupported scope'));
    for (const name of resources) {
      if (!scopeFits(scope, name)) errors.push(invalid('spec.scopes', scopes, 'unsupported scope applied to resource'));
    }
  }
  if (conflicting(new Set(scopes))) errors.push(invalid('spec.scopes', scopes, 'conflicting scopes'));
  return errors;
}

function scopeSelectorErrors(spec: QuotaSpec): FieldError[] {
  const errors: FieldError[] = [];
  const path = 'spec.scopeSelector.matchExpressions';
  const scopes = new Set<string>();
  const resources = standardResources(spec);
  // Many errors may show the whole selector, so they share its form.
  const shown = internalForm('io.k8s.api.core.v1.ScopeSelector', spec.scopeSelector ?? {});
  for (const { scopeName = '', operator = '', values } of spec.scopeSelector?.matchExpressions ?? []) {
    if (!SCOPES.has(scopeName)) errors.push(invalid(`${path}.scopeName`, scopeName, 'unsupported scope'));
    for (const name of resources) {
      if (!scopeFits(scopeName, name)) errors.push(invalid(path, shown, 'unsupported scope applied to resource'));
    }
    if (EXISTS_ONLY.has(scopeName) && operator !== 'Exists') {
      errors.push(
        invalid(
          `${path}.operator`,
          operator,
          "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
        ),
      );
    }
    const count = (values ?? []).length;
    if (operator === 'In' || operator === 'NotIn') {
      if (count === 0)
        errors.push(
          required(
            `${path}.values`,
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
          ),
        );
    } else if (operator === 'Exists' || operator === 'DoesNotExist') {
      if (count > 0)
        errors.push(
          invalid(
            `${path}.values`,
            values,
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
          ),
        );
    } else errors.push(invalid(`${path}.operator`, operator, 'not a valid selector operator'));
    scopes.add(scopeName);
  }
  // kube-apiserver reports the value of `spec.scopes`.
  if (conflicting(scopes)) errors.push(invalid(path, spec.scopes ?? null, 'conflicting scopes'));
  return errors;
}

const resourceQuotas: Strategy<ResourceQuota> = {
  metadataChecks: ['update'],
  ...specAndStatus,
  managesGeneration: false,
  changesGeneration: () => false,
  validateCreate: (object) => quotaSpecErrors(object.spec ?? {}),
  validateUpdate(object, old) {
    const errors = quotaSpecErrors(object.spec ?? {});
    const scopes = object.spec?.scopes;
    if (new Set(scopes ?? []).symmetricDifference(new Set(old.spec?.scopes ?? [])).size > 0)
      errors.push(invalid('spec.scopes', scopes, IMMUTABLE));
    return errors;
  },
  status: {
    ...statusOnly,
    validateUpdate: (object) => [
      ...quotaListErrors(object.status?.hard, 'status.hard'),
      ...quotaListErrors(object.status?.used, 'status.used'),
    ],
  },
  returnsDeleted: true,
  columns: quotaColumns,
};

export const limitKinds = [kindRow('', 'limitranges', limitRanges), kindRow('', 'resourcequotas', resourceQuotas)];
