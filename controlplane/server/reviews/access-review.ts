/**
 * Implements SubjectAccessReview, SelfSubjectAccessReview and LocalSubjectAccessReview: whether a user may perform an
 * action.
 */
import { FieldError, forbidden, invalid, required } from '../../../api/meta/field-error.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { labelValueErrors, qualifiedNameErrors } from '../../../api/meta/names.ts';
import { isStatusError, newInvalid } from '../../../api/meta/status-error.ts';
import type {
  LocalSubjectAccessReview,
  SelfSubjectAccessReview,
  SubjectAccessReview,
} from '../../../api/kinds/kinds.ts';
import type { UserInfo } from '../../model/user-info.ts';
import type {
  AuthorizationAttributes,
  Authorizer,
  SelectorRequirement,
} from '../../security/authorization/authorization.ts';
import { fieldRequirements, labelRequirements } from '../../security/authorization/selector-requirements.ts';
import type { Reviewer } from './review-rest.ts';

type Spec = NonNullable<SubjectAccessReview['spec']>;
type ResourceAttributes = NonNullable<Spec['resourceAttributes']>;
type SelectorAttributes = NonNullable<ResourceAttributes['labelSelector']>;

/** kube-apiserver names no kind in these errors. */
const KIND = { group: 'authorization.k8s.io', resource: '' };

/** Answers for the user whom the review names, in any namespace. */
export function subjectAccessReviewer(authorizer: Authorizer): Reviewer {
  return async ({ object }) => {
    const { spec } = object as KubeObject as SubjectAccessReview;
    check([...targetErrors(spec), ...subjectErrors(spec), ...selectorsErrors(spec), ...metadataErrors(object)]);
    return decide(authorizer, object, spec, subjectOf(spec));
  };
}

/** Answers for the user of the request. */
export function selfSubjectAccessReviewer(authorizer: Authorizer): Reviewer {
  return async ({ object, user }) => {
    const { spec } = object as KubeObject as SelfSubjectAccessReview;
    check([...targetErrors(spec), ...selectorsErrors(spec), ...metadataErrors(object)]);
    return decide(authorizer, object, spec, user);
  };
}

/** Answers for the user whom the review names, in the namespace of the request alone. */
export function localSubjectAccessReviewer(authorizer: Authorizer): Reviewer {
  return async ({ object, namespace }) => {
    const { spec } = object as KubeObject as LocalSubjectAccessReview;
    const errors = [...targetErrors(spec), ...subjectErrors(spec), ...selectorsErrors(spec), ...metadataErrors(object)];
    const attributes = spec.resourceAttributes;
    if (attributes !== undefined && attributes !== null && (attributes.namespace ?? '') !== namespace) {
      errors.push(
        invalid('spec.resourceAttributes.namespace', attributes.namespace ?? '', 'must match metadata.namespace'),
      );
    }
    if (spec.nonResourceAttributes !== undefined && spec.nonResourceAttributes !== null) {
      errors.push(
        invalid(
          'spec.nonResourceAttributes',
          shownTarget(spec.nonResourceAttributes),
          'disallowed on this kind of request',
        ),
      );
    }
    check(errors);
    return decide(authorizer, object, spec, subjectOf(spec));
  };
}

function check(errors: readonly FieldError[]): void {
  if (errors.length > 0) throw newInvalid(KIND, '', errors);
}

function subjectOf(spec: Spec): UserInfo {
  return {
    name: spec.user ?? '',
    groups: spec.groups ?? [],
    ...(spec.uid === undefined || spec.uid === '' ? {} : { uid: spec.uid }),
    ...(spec.extra === undefined || spec.extra === null ? {} : { extra: spec.extra }),
  };
}

function subjectErrors(spec: Spec): FieldError[] {
  if ((spec.user ?? '') !== '' || (spec.groups ?? []).length > 0) return [];
  return [invalid('spec.user', spec.user ?? '', 'at least one of user or group must be specified')];
}

/** Formats the value like kube-apiserver's internal struct. */
function shownTarget(target: NonNullable<Spec['nonResourceAttributes']>): Record<string, string> {
  return { Path: target.path ?? '', Verb: target.verb ?? '' };
}

function targetErrors(spec: Pick<Spec, 'resourceAttributes' | 'nonResourceAttributes'>): FieldError[] {
  const resource = spec.resourceAttributes ?? undefined;
  const other = spec.nonResourceAttributes ?? undefined;
  if (resource !== undefined && other !== undefined) {
    return [
      invalid(
        'spec.nonResourceAttributes',
        shownTarget(other),
        'cannot be specified in combination with resourceAttributes',
      ),
    ];
  }
  if (resource === undefined && other === undefined) {
    return [
      invalid(
        'spec.resourceAttributes',
        null,
        'exactly one of nonResourceAttributes or resourceAttributes must be specified',
      ),
    ];
  }
  return [];
}

function selectorsErrors({ resourceAttributes }: Pick<Spec, 'resourceAttributes'>): FieldError[] {
  const resource = resourceAttributes ?? undefined;
  if (resource === undefined) return [];
  const at = 'spec.resourceAttributes';
  return [
    ...selectorErrors(resource.fieldSelector ?? undefined, `${at}.fieldSelector`, fieldRequirementErrors),
    ...selectorErrors(resource.labelSelector ?? undefined, `${at}.labelSelector`, labelRequirementErrors),
  ];
}

type Requirement = NonNullable<SelectorAttributes['requirements']>[number];

function selectorErrors(
  selector: SelectorAttributes | undefined,
  at: string,
  errorsOf: (requirement: Requirement, at: string) => FieldError[],
): FieldError[] {
  if (selector === undefined) return [];
  const raw = selector.rawSelector ?? '';
  const requirements = selector.requirements ?? [];
  if (raw === '' && requirements.length === 0) {
    return [required(`${at}.requirements`, `when ${at} is specified, requirements or rawSelector is required`)];
  }
  const hasBoth = raw !== '' && requirements.length > 0;
  return [
    ...(hasBoth ? [invalid(`${at}.rawSelector`, raw, 'may not specified at the same time as requirements')] : []),
    ...requirements.flatMap((requirement, i) => errorsOf(requirement, `${at}.requirements[${i}]`)),
  ];
}

function valueCountErrors(requirement: Requirement, at: string): FieldError[] {
  const values = requirement.values ?? [];
  switch (requirement.operator) {
    case 'In':
    case 'NotIn':
      return values.length === 0
        ? [required(`${at}.values`, "must be specified when `operator` is 'In' or 'NotIn'")]
        : [];
    case 'Exists':
    case 'DoesNotExist':
      return values.length > 0
        ? [forbidden(`${at}.values`, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
        : [];
    default:
      return [];
  }
}

function fieldRequirementErrors(requirement: Requirement, at: string): FieldError[] {
  const errors = (requirement.key ?? '') === '' ? [required(`${at}.key`, 'must be specified')] : [];
  return [...errors, ...valueCountErrors(requirement, at)];
}

function labelRequirementErrors(requirement: Requirement, at: string): FieldError[] {
  const errors = valueCountErrors(requirement, at);
  for (const why of qualifiedNameErrors(requirement.key ?? ''))
    errors.push(invalid(`${at}.key`, requirement.key ?? '', why));
  for (const [i, value] of (requirement.values ?? []).entries()) {
    for (const why of labelValueErrors(value)) errors.push(invalid(`${at}.values[${i}]`, value, why));
  }
  return errors;
}

/** Refuses metadata in a review, except for managed fields, the namespace and the creation timestamp. */
function metadataErrors(object: KubeObject): FieldError[] {
  const { metadata } = object;
  const others = Object.entries(metadata).filter(
    ([key, value]) => !['managedFields', 'namespace', 'creationTimestamp'].includes(key) && value !== undefined,
  );
  if (others.length === 0) return [];
  const { name, generateName, namespace, labels, annotations, ownerReferences, finalizers, managedFields } = metadata;
  const fields = managedFields?.map(({ manager, operation, apiVersion, time, fieldsType, fieldsV1, subresource }) => ({
    manager,
    operation,
    apiVersion,
    time,
    fieldsType,
    fieldsV1,
    subresource,
  }));
  const shown = {
    name,
    generateName,
    namespace,
    labels,
    annotations,
    ownerReferences,
    finalizers,
    managedFields: fields,
  };
  return [invalid('metadata', shown, 'must be empty')];
}

async function decide(
  authorizer: Authorizer,
  object: KubeObject,
  spec: Pick<Spec, 'resourceAttributes' | 'nonResourceAttributes'>,
  user: UserInfo,
): Promise<KubeObject> {
  const { attributes, errors } = attributesOf(spec, user);
  const decision = await authorizer.authorize(attributes);
  const evaluation = [...(decision.evaluationError === undefined ? [] : [decision.evaluationError]), ...errors];
  object['status'] = {
    allowed: decision.decision === 'allow',
    ...(decision.decision === 'deny' ? { denied: true } : {}),
    ...(decision.reason === '' ? {} : { reason: decision.reason }),
    ...(evaluation.length === 0 ? {} : { evaluationError: evaluation.join('; ') }),
  };
  return object;
}

function attributesOf(
  spec: Pick<Spec, 'resourceAttributes' | 'nonResourceAttributes'>,
  user: UserInfo,
): { readonly attributes: AuthorizationAttributes; readonly errors: readonly string[] } {
  const other = spec.nonResourceAttributes ?? undefined;
  const none = { group: '', version: '', resource: '', subresource: '', namespace: '', name: '' };
  if (other !== undefined) {
    return {
      attributes: { ...none, user, verb: other.verb ?? '', isResourceRequest: false, path: other.path ?? '' },
      errors: [],
    };
  }
  const resource = spec.resourceAttributes ?? {};
  const errors: string[] = [];
  const fields = fieldRequirementsOf(resource.fieldSelector ?? undefined, errors);
  const labels = labelRequirementsOf(resource.labelSelector ?? undefined, errors);
  return {
    errors,
    attributes: {
      user,
      verb: resource.verb ?? '',
      isResourceRequest: true,
      group: resource.group ?? '',
      version: resource.version ?? '',
      resource: resource.resource ?? '',
      subresource: resource.subresource ?? '',
      namespace: resource.namespace ?? '',
      name: resource.name ?? '',
      path: '',
      ...(fields.length === 0 ? {} : { fieldSelector: fields }),
      ...(labels.length === 0 ? {} : { labelSelector: labels }),
    },
  };
}

function ignored(selector: string, { partially = false } = {}): string {
  return `spec.resourceAttributes.${selector} ${partially ? 'partially ' : ''}ignored due to parse error`;
}

function fieldRequirementsOf(selector: SelectorAttributes | undefined, errors: string[]): SelectorRequirement[] {
  if (selector === undefined) return [];
  const raw = selector.rawSelector ?? '';
  if (raw !== '') return parsed(() => fieldRequirements(raw), 'fieldSelector', errors);
  const usable: SelectorRequirement[] = [];
  for (const one of selector.requirements ?? []) {
    if ((one.operator === 'In' || one.operator === 'NotIn') && one.values?.length === 1) {
      usable.push({ key: one.key, operator: one.operator, values: one.values });
    }
  }
  if (usable.length < (selector.requirements ?? []).length)
    errors.push(ignored('fieldSelector', { partially: usable.length > 0 }));
  return usable;
}

/** The operators of label requirements. Requirements with another one are ignored, and the review reports that. */
const LABEL_OPERATORS: ReadonlySet<string> = new Set(['In', 'NotIn', 'Exists', 'DoesNotExist']);

function labelRequirementsOf(selector: SelectorAttributes | undefined, errors: string[]): SelectorRequirement[] {
  if (selector === undefined) return [];
  const raw = selector.rawSelector ?? '';
  if (raw !== '') return parsed(() => labelRequirements(raw), 'labelSelector', errors);
  const usable = (selector.requirements ?? []).filter(({ operator }) => LABEL_OPERATORS.has(operator));
  if (usable.length < (selector.requirements ?? []).length)
    errors.push(ignored('labelSelector', { partially: usable.length > 0 }));
  return usable.map(({ key, operator, values }) => ({ key, operator, values: values ?? [] }));
}

/** Omits a selector that cannot be parsed. The review then covers more objects, never fewer. */
function parsed(read: () => SelectorRequirement[], selector: string, errors: string[]): SelectorRequirement[] {
  try {
    return read();
  } catch (error) {
    if (!isStatusError(error)) throw error;
    errors.push(ignored(selector));
    return [];
  }
}
