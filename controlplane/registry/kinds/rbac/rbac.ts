/**
 * Defines the strategies of roles and bindings. Their names may contain colons and capital letters, and the role of a binding
 * is immutable.
 */
import type { V1LabelSelector } from '@kubernetes/client-node';
import { invalid, required, unsupportedValue, type FieldError } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { dnsSubdomainErrors, nameIsPathSegment, pathSegmentErrors } from '../../../../api/meta/names.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { fromLabelSelector, validateLabelSelector } from '../../../../api/meta/selector.ts';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { clusterRoleBindingColumns, roleBindingColumns } from './columns.ts';
import { kindRow, type Strategy } from '../../strategy.ts';

import { RBAC_GROUP } from '../../../../api/client/resources.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

interface PolicyRule {
  readonly verbs?: readonly string[];
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly nonResourceURLs?: readonly string[];
}

type Role = KubeObject & { rules?: readonly PolicyRule[] | null };
type ClusterRole = Role & { aggregationRule?: { readonly clusterRoleSelectors?: readonly V1LabelSelector[] } };

const isEmpty = (list: readonly unknown[] | null | undefined): boolean => (list ?? []).length === 0;

/** The scope of the validated kind. */
interface Scope {
  readonly namespaced: boolean;
}

function ruleErrors(rule: PolicyRule, at: string, { namespaced }: Scope): FieldError[] {
  const errors: FieldError[] = [];
  if (isEmpty(rule.verbs)) errors.push(required(`${at}.verbs`, 'verbs must contain at least one value'));
  if (!isEmpty(rule.nonResourceURLs)) {
    const urls = `${at}.nonResourceURLs`;
    if (namespaced)
      errors.push(invalid(urls, rule.nonResourceURLs, 'namespaced rules cannot apply to non-resource URLs'));
    if (!isEmpty(rule.apiGroups) || !isEmpty(rule.resources) || !isEmpty(rule.resourceNames))
      errors.push(
        invalid(urls, rule.nonResourceURLs, 'rules cannot apply to both regular resources and non-resource URLs'),
      );
    return errors;
  }
  if (isEmpty(rule.apiGroups))
    errors.push(required(`${at}.apiGroups`, 'resource rules must supply at least one api group'));
  if (isEmpty(rule.resources))
    errors.push(required(`${at}.resources`, 'resource rules must supply at least one resource'));
  return errors;
}

function rulesErrors(object: Role, scope: Scope): FieldError[] {
  return (object.rules ?? []).flatMap((rule, index) => ruleErrors(rule, `rules[${index}]`, scope));
}

function aggregationErrors({ aggregationRule }: ClusterRole): FieldError[] {
  if (aggregationRule === undefined) return [];
  const path = 'aggregationRule.clusterRoleSelectors';
  const selectors = aggregationRule.clusterRoleSelectors ?? [];
  if (selectors.length === 0)
    return [required(path, 'at least one clusterRoleSelector required if aggregationRule is non-nil')];
  return selectors.flatMap((selector, index) => {
    const errors = validateLabelSelector(selector, `${path}[${index}]`);
    if (!isReadable(selector)) errors.push(invalid(`${path}[${index}]`, null, 'invalid label selector.'));
    return errors;
  });
}

function isReadable(selector: V1LabelSelector): boolean {
  try {
    fromLabelSelector(selector);
    return true;
  } catch (error) {
    if (isStatusError(error)) return false;
    throw error;
  }
}

const roles: Strategy<Role> = {
  metadataChecks: ['whole', 'update'],
  nameRule: nameIsPathSegment,
  allowCreateOnUpdate: true,
  validateCreate: (object) => rulesErrors(object, { namespaced: true }),
  validateUpdate: (object) => rulesErrors(object, { namespaced: true }),
};

const clusterRoleErrors = (object: ClusterRole): FieldError[] => [
  ...rulesErrors(object, { namespaced: false }),
  ...aggregationErrors(object),
];

const clusterRoles: Strategy<ClusterRole> = {
  metadataChecks: ['whole', 'update'],
  nameRule: nameIsPathSegment,
  allowCreateOnUpdate: true,
  validateCreate: clusterRoleErrors,
  validateUpdate: clusterRoleErrors,
};

interface Subject {
  kind?: string;
  apiGroup?: string;
  name?: string;
  namespace?: string;
}

type Binding = KubeObject & {
  roleRef?: { apiGroup?: string; kind?: string; name?: string };
  subjects?: Subject[];
};

const SUBJECT_KINDS = ['ServiceAccount', 'User', 'Group'];

function bindingDefaults(object: Binding): void {
  const ref = (object.roleRef ??= {});
  if ((ref.apiGroup ?? '') === '') ref.apiGroup = RBAC_GROUP;
  for (const subject of object.subjects ?? []) {
    if ((subject.kind === 'User' || subject.kind === 'Group') && (subject.apiGroup ?? '') === '')
      subject.apiGroup = RBAC_GROUP;
  }
}

function bindingErrors(object: Binding, roleKinds: readonly string[], scope: Scope): FieldError[] {
  const { apiGroup = '', kind = '', name = '' } = object.roleRef ?? {};
  const errors: FieldError[] = [];
  if (apiGroup !== RBAC_GROUP) errors.push(unsupportedValue('roleRef.apiGroup', apiGroup, [RBAC_GROUP]));
  if (!roleKinds.includes(kind)) errors.push(unsupportedValue('roleRef.kind', kind, roleKinds));
  if (name === '') errors.push(required('roleRef.name'));
  else errors.push(...invalidFor('roleRef.name', name, pathSegmentErrors(name)));
  for (const [index, subject] of (object.subjects ?? []).entries())
    errors.push(...subjectErrors(subject, `subjects[${index}]`, scope));
  return errors;
}

function subjectErrors(subject: Subject, at: string, { namespaced }: Scope): FieldError[] {
  const { kind = '', apiGroup = '', name = '', namespace = '' } = subject;
  const errors: FieldError[] = name === '' ? [required(`${at}.name`)] : [];
  switch (kind) {
    case 'ServiceAccount':
      if (name !== '') errors.push(...invalidFor(`${at}.name`, name, dnsSubdomainErrors(name)));
      if (apiGroup !== '') errors.push(unsupportedValue(`${at}.apiGroup`, apiGroup, ['']));
      if (!namespaced && namespace === '') errors.push(required(`${at}.namespace`));
      break;
    case 'User':
    case 'Group':
      if (apiGroup !== RBAC_GROUP) errors.push(unsupportedValue(`${at}.apiGroup`, apiGroup, [RBAC_GROUP]));
      break;
    default:
      errors.push(unsupportedValue(`${at}.kind`, kind, SUBJECT_KINDS));
  }
  return errors;
}

function bindingStrategy(roleKinds: readonly string[], scope: Scope): Strategy<Binding> {
  return {
    metadataChecks: ['whole', 'update'],
    nameRule: nameIsPathSegment,
    allowCreateOnUpdate: true,
    applyDefaults: bindingDefaults,
    validateCreate: (object) => bindingErrors(object, roleKinds, scope),
    validateUpdate(object, old) {
      const errors = bindingErrors(object, roleKinds, scope);
      if (!jsonEqual(object.roleRef, old.roleRef))
        errors.push(
          invalid('roleRef', internalForm('io.k8s.api.rbac.v1.RoleRef', object.roleRef), 'cannot change roleRef'),
        );
      return errors;
    },
    columns: scope.namespaced ? roleBindingColumns : clusterRoleBindingColumns,
  };
}

export const rbacKinds = [
  kindRow(RBAC_GROUP, 'roles', roles),
  kindRow(RBAC_GROUP, 'clusterroles', clusterRoles),
  kindRow(RBAC_GROUP, 'rolebindings', bindingStrategy(['Role', 'ClusterRole'], { namespaced: true })),
  kindRow(RBAC_GROUP, 'clusterrolebindings', bindingStrategy(['ClusterRole'], { namespaced: false })),
];
