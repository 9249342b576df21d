/** Validates admission policies and their bindings. */
import type { V1LabelSelector } from '@kubernetes/client-node';
import {
  duplicate,
  forbidden,
  invalid,
  notSupported,
  required,
  unsupportedValue,
  type FieldError,
} from '../../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import {
  dnsSubdomainErrors,
  pathSegmentErrors,
  qualifiedNameErrors,
  rfc1035LabelErrors,
} from '../../../../api/meta/names.ts';
import { validateLabelSelector } from '../../../../api/meta/selector.ts';
import {
  FAILURE_POLICIES,
  matchConditionErrors,
  matchResourcesErrors,
  REINVOCATION_POLICIES,
} from './admission-match-validation.ts';
import type {
  MatchResources,
  MutatingPolicySpec,
  ParamKind,
  ParamRef,
  PolicySpec,
  ValidatingBinding,
} from './admission-types.ts';
import { expressionErrors, type ExpressionChecker, type NamedExpression } from './expression-checks.ts';
import { optionalOneOf } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const REASONS = ['Forbidden', 'Invalid', 'RequestEntityTooLarge'];
const ACTIONS = ['Audit', 'Deny', 'Warn'];
const PATCH_TYPES = ['ApplyConfiguration', 'JSONPatch'];
const MAX_AUDIT_ANNOTATIONS = 20;
const MAX_AUDIT_EXPRESSION_BYTES = 5 * 1024;

type Validation = NonNullable<PolicySpec['validations']>[number];
type AuditAnnotation = NonNullable<PolicySpec['auditAnnotations']>[number];
type Mutation = NonNullable<MutatingPolicySpec['mutations']>[number];

/** The environment in which the expressions of one policy are checked. */
interface Scope {
  readonly check: ExpressionChecker;
  readonly params: boolean;
  readonly variables: readonly NamedExpression[];
  readonly visible: number;
}

/** Validates the first fields of the spec, which both kinds of policies have. */
function headErrors(scope: Scope, spec: PolicySpec | MutatingPolicySpec, old: typeof spec | undefined) {
  const { failurePolicy, paramKind, matchConstraints: constraints, matchConditions = [] } = spec;
  const errors: FieldError[] = [
    ...(failurePolicy === undefined
      ? [required('spec.failurePolicy')]
      : optionalOneOf('spec.failurePolicy', failurePolicy, FAILURE_POLICIES)),
    ...(paramKind === undefined ? [] : paramKindErrors(paramKind, 'spec.paramKind')),
  ];
  if (constraints === undefined) errors.push(required('spec.matchConstraints'));
  else {
    errors.push(...matchResourcesErrors(constraints, 'spec.matchConstraints'));
    if ((constraints.resourceRules ?? []).length === 0) errors.push(required('spec.matchConstraints.resourceRules'));
  }
  const same =
    old !== undefined && semanticEqual(paramKind, old.paramKind) && semanticEqual(matchConditions, old.matchConditions);
  if (!same) {
    const rules = { check: scope.check, params: paramKind !== undefined };
    errors.push(...matchConditionErrors(matchConditions, 'spec.matchConditions', rules));
  }
  return [...errors, ...variableErrors(scope)];
}

const CEL_RESERVED = new Set(
  (
    'true false null in as break const continue else for function if import let loop package namespace return var ' +
    'void while'
  ).split(' '),
);

function variableErrors({ check, params, variables }: Scope): FieldError[] {
  return variables.flatMap(({ name, expression }, index) => {
    const at = `spec.variables[${index}]`;
    const errors: FieldError[] = [];
    if (name.trim() === '') errors.push(required(`${at}.name`, 'name is not specified'));
    else if (!/^[_a-zA-Z][_a-zA-Z0-9]*$/.test(name) || CEL_RESERVED.has(name))
      errors.push(invalid(`${at}.name`, name, 'must be a valid CEL identifier'));
    if (expression.trim() === '') errors.push(required(`${at}.expression`, 'expression is not specified'));
    else {
      const question = { place: 'variable', expression, params, variables, visible: index } as const;
      errors.push(...expressionErrors(check, `${at}.expression`, question));
    }
    return errors;
  });
}

function scopeOf(check: ExpressionChecker, spec: PolicySpec | MutatingPolicySpec): Scope {
  const variables = (spec.variables ?? []).map(({ name = '', expression = '' }) => ({ name, expression }));
  return { check, params: spec.paramKind !== undefined, variables, visible: variables.length };
}

function paramKindErrors({ apiVersion = '', kind = '' }: ParamKind, at: string): FieldError[] {
  const field = `${at}.apiVersion`;
  const errors: FieldError[] = [];
  const [first = '', second] = apiVersion.split('/');
  const group = second === undefined ? '' : first;
  const version = second ?? first;
  if (apiVersion === '') errors.push(required(field));
  else if (apiVersion.split('/').length > 2)
    errors.push(invalid(field, apiVersion, `unexpected GroupVersion string: ${apiVersion}`));
  else {
    const groupErrors = group === '' ? [] : dnsSubdomainErrors(group);
    if (groupErrors.length > 0) errors.push(invalid(field, group, groupErrors.join(',')));
    const versionErrors = rfc1035LabelErrors(version);
    if (version === '') errors.push(invalid(field, apiVersion, 'version must be specified'));
    else if (versionErrors.length > 0) errors.push(invalid(field, version, versionErrors.join(',')));
  }
  const kindErrors = rfc1035LabelErrors(kind.toLowerCase());
  if (kind === '') errors.push(required(`${at}.kind`));
  else if (kindErrors.length > 0) {
    const text = `may have mixed case, but should otherwise match: ${kindErrors.join(',')}`;
    errors.push(invalid(`${at}.kind`, kind, text));
  }
  return errors;
}

/**
 * Returns the errors of a validating policy. `old` is the stored spec. Match conditions are not validated again if they and
 * `paramKind` are the same in it.
 */
export function validatingPolicyErrors(
  check: ExpressionChecker,
  policyName: string,
  spec: PolicySpec,
  old?: PolicySpec,
): FieldError[] {
  const { validations = [], auditAnnotations = [] } = spec;
  const scope = scopeOf(check, spec);
  const errors = headErrors(scope, spec, old);
  if (validations.length === 0 && auditAnnotations.length === 0) {
    const text = 'validations or auditAnnotations must contain at least one item';
    return [...errors, required('spec.validations', text), required('spec.auditAnnotations', text)];
  }
  for (const [index, validation] of validations.entries())
    errors.push(...validationErrors(validation, `spec.validations[${index}]`, scope));
  if (auditAnnotations.length > MAX_AUDIT_ANNOTATIONS) {
    const text = `must not have more than ${MAX_AUDIT_ANNOTATIONS} auditAnnotations`;
    errors.push(invalid('spec.auditAnnotations', auditAnnotations, text));
  }
  const keys = new Set<string>();
  for (const [index, annotation] of auditAnnotations.entries()) {
    const at = `spec.auditAnnotations[${index}]`;
    const { key = '' } = annotation;
    errors.push(...annotationErrors(annotation, at, policyName, scope));
    if (keys.has(key)) errors.push(duplicate(`${at}.key`, key));
    keys.add(key);
  }
  return errors;
}

function validationErrors(validation: Validation, at: string, { check, ...scope }: Scope): FieldError[] {
  const { expression = '', message = '', messageExpression = '', reason } = validation;
  const errors: FieldError[] = [];
  if (expression.trim() === '') errors.push(required(`${at}.expression`, 'expression is not specified'));
  else errors.push(...expressionErrors(check, `${at}.expression`, { place: 'validation', expression, ...scope }));
  if (messageExpression !== '') {
    const field = `${at}.messageExpression`;
    const question = { place: 'messageExpression', expression: messageExpression, authorizer: false } as const;
    if (messageExpression.trim() === '')
      errors.push(invalid(field, messageExpression, 'must be non-empty if specified'));
    else errors.push(...expressionErrors(check, field, { ...question, ...scope }));
  }
  if (message !== '' && message.trim() === '')
    errors.push(invalid(`${at}.message`, message, 'must be non-empty if specified'));
  else if (/[\n\r]/.test(message.trim()))
    errors.push(invalid(`${at}.message`, message, 'must not contain line breaks'));
  if (reason !== undefined) errors.push(...optionalOneOf(`${at}.reason`, reason, REASONS));
  return errors;
}

function annotationErrors(annotation: AuditAnnotation, at: string, policyName: string, scope: Scope): FieldError[] {
  const { key = '', valueExpression = '' } = annotation;
  const { check, ...visibleScope } = scope;
  const errors: FieldError[] = [];
  if (policyName === '') errors.push(invalid(`${at}.key`, key, 'requires metadata.name be non-empty'));
  else {
    const full = `${policyName}/${key}`;
    errors.push(...invalidFor(`${at}.key`, full, qualifiedNameErrors(full)));
  }
  const field = `${at}.valueExpression`;
  const expression = valueExpression.trim();
  if (expression === '') errors.push(required(field, 'valueExpression is not specified'));
  else if (Buffer.byteLength(expression) > MAX_AUDIT_EXPRESSION_BYTES)
    errors.push(required(field, `must not exceed ${MAX_AUDIT_EXPRESSION_BYTES} bytes in length`));
  else errors.push(...expressionErrors(check, field, { place: 'auditAnnotation', expression, ...visibleScope }));
  return errors;
}

/**
 * Validates a mutating policy. Its operations are limited to those that can change an object. `old` is used as in
 * `validatingPolicyErrors`.
 */
export function mutatingPolicyErrors(
  check: ExpressionChecker,
  spec: MutatingPolicySpec,
  old?: MutatingPolicySpec,
): FieldError[] {
  const scope = scopeOf(check, spec);
  const errors = headErrors(scope, spec, old);
  errors.push(...mutableOperationErrors(spec.matchConstraints, 'spec.matchConstraints'));
  const { mutations = [], reinvocationPolicy = '' } = spec;
  if (mutations.length === 0) errors.push(required('spec.mutations', 'mutations must contain at least one item'));
  for (const [index, mutation] of mutations.entries())
    errors.push(...mutationErrors(mutation, `spec.mutations[${index}]`, scope));
  if (reinvocationPolicy === '') errors.push(required('spec.reinvocationPolicy'));
  else if (!REINVOCATION_POLICIES.includes(reinvocationPolicy))
    errors.push(notSupported('spec.reinvocationPolicy', reinvocationPolicy, REINVOCATION_POLICIES));
  return errors;
}

const MUTABLE_OPERATIONS = ['*', 'CONNECT', 'CREATE', 'UPDATE'];

/**
 * Refuses unknown operations in a mutating policy, and the operation DELETE, because an object that is being deleted cannot be
 * mutated.
 */
function mutableOperationErrors(match: MatchResources | undefined, at: string): FieldError[] {
  return (match?.resourceRules ?? []).flatMap(({ operations = [] }) =>
    operations
      .filter((operation) => !MUTABLE_OPERATIONS.includes(operation))
      .map((operation) => notSupported(`${at}.resourceRules.operations`, operation, MUTABLE_OPERATIONS)),
  );
}

function mutationErrors(mutation: Mutation, at: string, { check, ...scope }: Scope): FieldError[] {
  const { patchType = '' } = mutation;
  if (patchType === '') return [required(`${at}.patchType`)];
  if (!PATCH_TYPES.includes(patchType)) return [notSupported(`${at}.patchType`, patchType, PATCH_TYPES)];
  const [patchField, other] =
    patchType === 'JSONPatch'
      ? (['jsonPatch', 'applyConfiguration'] as const)
      : (['applyConfiguration', 'jsonPatch'] as const);
  const errors: FieldError[] = [];
  const patch = mutation[patchField];
  if (patch === undefined)
    errors.push(required(`${at}.${patchField}`, `must be specified when patchType is ${patchType}`));
  else {
    const expression = (patch.expression ?? '').trim();
    const field = `${at}.${patchField}.expression`;
    if (expression === '') errors.push(required(field));
    else errors.push(...expressionErrors(check, field, { place: patchField, expression, ...scope }));
  }
  if (mutation[other] !== undefined)
    errors.push(invalid(`${at}.${other}`, `{${other}}`, `must not be specified when patchType is ${patchType}`));
  return errors;
}

interface BindingSpec {
  readonly policyName?: string | undefined;
  readonly paramRef?: ParamRef | undefined;
  readonly matchResources?: MatchResources | undefined;
}

/** Validates the bindings of both kinds of policies. */
export function bindingErrors({ policyName = '', paramRef, matchResources }: BindingSpec): FieldError[] {
  return [
    ...(policyName === ''
      ? [required('spec.policyName')]
      : invalidFor('spec.policyName', policyName, dnsSubdomainErrors(policyName))),
    ...(paramRef === undefined ? [] : paramRefErrors(paramRef, 'spec.paramRef')),
    ...(matchResources === undefined ? [] : matchResourcesErrors(matchResources, 'spec.matchResources')),
  ];
}

/** Validates the binding of a mutating policy: as every binding, and without the operation DELETE. */
export function mutatingBindingErrors(spec: BindingSpec): FieldError[] {
  return [...bindingErrors(spec), ...mutableOperationErrors(spec.matchResources, 'spec.matchResources')];
}

function paramRefErrors({ name = '', selector, parameterNotFoundAction: action = '' }: ParamRef, at: string) {
  const exclusive = 'name and selector are mutually exclusive';
  const errors: FieldError[] = name === '' ? [] : invalidFor(`${at}.name`, name, pathSegmentErrors(name));
  if (selector !== undefined) {
    if (name !== '') errors.push(forbidden(`${at}.name`, exclusive));
    errors.push(...validateLabelSelector(selector as V1LabelSelector, `${at}.selector`));
    if (name !== '') errors.push(forbidden(`${at}.selector`, exclusive));
  } else if (name === '') errors.push(required(at, 'one of name or selector must be specified'));
  const field = `${at}.parameterNotFoundAction`;
  const actions = ['Deny', 'Allow'];
  if (action === '') errors.push(required(field));
  else if (!actions.includes(action)) errors.push(unsupportedValue(field, action, actions));
  return errors;
}

/** Requires at least one action. Actions must be unique, and Deny excludes Warn. */
export function validationActionErrors(spec: NonNullable<ValidatingBinding['spec']>): FieldError[] {
  const field = 'spec.validationActions';
  const actions = spec.validationActions ?? [];
  const seen = new Set<string>();
  const errors = actions.flatMap((action, index) => {
    const at = `${field}[${index}]`;
    const found: FieldError[] = ACTIONS.includes(action) ? [] : [notSupported(at, action, ACTIONS)];
    if (seen.has(action)) found.push(duplicate(at, action));
    seen.add(action);
    return found;
  });
  if (seen.has('Deny') && seen.has('Warn')) {
    const text =
      'must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)';
    errors.push(invalid(field, actions, text));
  }
  if (seen.size === 0) errors.push(required(field, 'at least one validation action is required'));
  return errors;
}
