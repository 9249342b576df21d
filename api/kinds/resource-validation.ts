/** Validates the compute resources of containers and pods: the names and the amounts. */
import { quoteText } from '../meta/quote.ts';
import { duplicate, FieldError, forbidden, invalid, notFound, required } from '../meta/field-error.ts';
import { dnsLabelErrors, qualifiedNameErrors } from '../meta/names.ts';
import { ownMember } from '../meta/own-member.ts';
import { compareQuantities, parseQuantity, QuantityError, wholeUnits, isWhole } from '../meta/quantity.ts';
import type { Quantities, ResourceRequirements } from './pod-types.ts';
import { invalidFor, isBlank } from './validation-rules.ts';

const COMPUTE = ['cpu', 'memory', 'ephemeral-storage'];
const STANDARD_CONTAINER: ReadonlySet<string> = new Set(COMPUTE);
/** The resources that count objects. */
const INTEGER: ReadonlySet<string> = new Set([
  'pods',
  'resourcequotas',
  'services',
  'replicationcontrollers',
  'secrets',
  'configmaps',
  'persistentvolumeclaims',
  'services.nodeports',
  'services.loadbalancers',
]);
const STANDARD: ReadonlySet<string> = new Set([
  ...COMPUTE,
  ...COMPUTE.flatMap((name) => [`requests.${name}`, `limits.${name}`]),
  'storage',
  'requests.storage',
  ...INTEGER,
]);
const HUGE_PAGES = 'hugepages-';
/** One unit in billionths, in which quantities are counted. */
const WHOLE = 1_000_000_000n;

/** Whether the resource is one of huge pages. */
export const isHugePage = (name: string): boolean => name.startsWith(HUGE_PAGES);
/** Whether the resource is a standard one of containers. */
export const isStandardContainerResource = (name: string): boolean => STANDARD_CONTAINER.has(name) || isHugePage(name);
const isQuotaHugePage = (name: string): boolean => isHugePage(name) || name.startsWith(`requests.${HUGE_PAGES}`);
const isStandardResource = (name: string): boolean => STANDARD.has(name) || isQuotaHugePage(name);
/** Whether the resource is a standard one that quotas count. `storage` is not, because it is ambiguous without a prefix. */
export const isStandardQuotaResource = (name: string): boolean => name !== 'storage' && isStandardResource(name);
/** Whether the resource belongs to Kubernetes: it has no domain, or one that ends with kubernetes.io. */
const isNativeResource = (name: string): boolean => !name.includes('/') || name.includes('kubernetes.io/');

/**
 * Whether the resource is an extended one: its domain does not end with kubernetes.io, and its name does not begin with
 * `requests.` and stays valid with that prefix, by which quotas name it.
 */
export function isExtendedResource(name: string): boolean {
  if (isNativeResource(name) || name.startsWith('requests.')) return false;
  return qualifiedNameErrors(`requests.${name}`).length === 0;
}

const isIntegerResource = (name: string): boolean => INTEGER.has(name) || isExtendedResource(name);
/** Whether the limit of the resource may be greater than the request. */
export const isOvercommitAllowed = (name: string): boolean => isNativeResource(name) && !isHugePage(name);

/** Validates the name of a resource for any use. */
export function resourceNameErrors(field: string, name: string): FieldError[] {
  const errors = invalidFor(field, name, qualifiedNameErrors(name));
  if (errors.length > 0) return errors;
  if (!name.includes('/') && !isStandardResource(name)) {
    return [invalid(field, name, 'must be a standard resource type or fully qualified')];
  }
  return [];
}

/** Validates the name of a resource of a container. */
export function containerResourceNameErrors(field: string, name: string): FieldError[] {
  const errors = resourceNameErrors(field, name);
  if (!name.includes('/')) {
    if (!isStandardContainerResource(name))
      errors.push(invalid(field, name, 'must be a standard resource for containers'));
  } else if (!isNativeResource(name) && !isExtendedResource(name)) {
    errors.push(invalid(field, name, "doesn't follow extended resource name standard"));
  }
  return errors;
}

function nonNegativeQuantity(field: string, text: string): FieldError[] {
  return parseQuantity(text).nano < 0n ? [invalid(field, text, 'must be greater than or equal to 0')] : [];
}

/**
 * Validates the amount of a resource, which must not be negative. The amount of a countable resource must be a whole number.
 */
export function resourceValueErrors(field: string, name: string, text: string): FieldError[] {
  const errors = nonNegativeQuantity(field, text);
  if (isIntegerResource(name) && !isWhole(parseQuantity(text))) errors.push(invalid(field, text, 'must be an integer'));
  return errors;
}

interface ResourceOptions {
  /** The names of `spec.resourceClaims`. */
  readonly claims: ReadonlySet<string>;
  /** Pod-level resources support fewer resource names. */
  readonly podLevel?: boolean;
}

const POD_LEVEL: ReadonlySet<string> = new Set(['cpu', 'memory']);

/** Validates requests, limits and claims, of a container or of a pod as a whole. */
export function resourceRequirementErrors(
  requirements: ResourceRequirements | undefined,
  path: string,
  options: ResourceOptions,
): FieldError[] {
  if (requirements === undefined) return [];
  const limits = (requirements.limits ?? {}) as Quantities;
  const requests = (requirements.requests ?? {}) as Quantities;
  const errors: FieldError[] = [];
  if (options.podLevel === true && requirements.claims !== undefined)
    errors.push(forbidden(`${path}.claims`, 'claims may not be set for Resources at pod-level'));
  const check = (list: Quantities, kind: 'limits' | 'requests'): { huge: boolean; basic: boolean } => {
    const seen = { huge: false, basic: false };
    for (const [name, value] of Object.entries(list)) {
      if (value === undefined) continue;
      const field = `${path}.${kind}`;
      const keyed = `${field}[${name}]`;
      if (options.podLevel === true) errors.push(...podResourceNameErrors(keyed, name));
      else errors.push(...containerResourceNameErrors(keyed, name));
      errors.push(...resourceValueErrors(keyed, name, value));
      if (kind === 'requests') errors.push(...requestErrors(keyed, name, value, limits));
      if (isHugePage(name)) {
        seen.huge = true;
        errors.push(...hugePageErrors(keyed, name, value));
      } else if (name === 'cpu' || name === 'memory') seen.basic = true;
    }
    return seen;
  };
  const inLimits = check(limits, 'limits');
  const inRequests = check(requests, 'requests');
  if ((inLimits.huge || inRequests.huge) && !inLimits.basic && !inRequests.basic) {
    errors.push(forbidden(path, 'HugePages require cpu or memory'));
  }
  errors.push(...claimErrors(requirements, path, options));
  return errors;
}

function podResourceNameErrors(field: string, name: string): FieldError[] {
  const errors = resourceNameErrors(field, name);
  if (errors.length > 0) return errors;
  if (!POD_LEVEL.has(name) && !isHugePage(name)) {
    const supported = [...POD_LEVEL, HUGE_PAGES].sort().map((one) => quoteText(one));
    return [new FieldError('FieldValueNotSupported', field, name, `supported values: ${supported.join(', ')}`)];
  }
  return errors;
}

function hugePageErrors(field: string, name: string, value: string): FieldError[] {
  const page = pageSize(name.slice(HUGE_PAGES.length));
  if (page !== undefined && wholeUnits(parseQuantity(value)) % page === 0n) return [];
  return [invalid(field, value, `${value} is not positive integer multiple of ${name}`)];
}

/** Returns the size of pages in bytes, or `undefined` for a size that pages cannot have. */
function pageSize(text: string): bigint | undefined {
  try {
    const { nano } = parseQuantity(text);
    return nano > 0n && nano % WHOLE === 0n ? nano / WHOLE : undefined;
  } catch (error) {
    if (error instanceof QuantityError) return undefined;
    throw error;
  }
}

function requestErrors(field: string, name: string, value: string, limits: Quantities): FieldError[] {
  const limit = ownMember(limits, name);
  if (limit === undefined) {
    if (isOvercommitAllowed(name)) return [];
    const limitsField = listPathOf(field).replace(/requests$/, 'limits');
    return [required(limitsField, 'Limit must be set for non overcommitable resources')];
  }
  const order = compareQuantities(parseQuantity(value), parseQuantity(limit));
  if (order !== 0 && !isOvercommitAllowed(name))
    return [invalid(listPathOf(field), value, `must be equal to ${name} limit of ${limit}`)];
  if (order > 0 && isOvercommitAllowed(name))
    return [invalid(listPathOf(field), value, `must be less than or equal to ${name} limit of ${limit}`)];
  return [];
}

/** Returns the path of the requests without the resource. Errors that compare a request with its limit have this path. */
const listPathOf = (field: string): string => field.slice(0, field.indexOf('.requests[') + '.requests'.length);

function claimErrors(requirements: ResourceRequirements, path: string, options: ResourceOptions): FieldError[] {
  const errors: FieldError[] = [];
  const seen = new Set<string>();
  for (const [index, { name = '', request = '' }] of (requirements.claims ?? []).entries()) {
    const field = `${path}.claims[${index}]`;
    if (isBlank(name)) {
      errors.push(required(field));
      continue;
    }
    errors.push(...repeatedClaimErrors(field, name, request, seen));
    if (options.claims.has(name)) continue;
    const names = [...options.claims].sort();
    const listed = names.length === 0 ? ' which is empty' : `: ${names.join(', ')}`;
    const detail = `must be one of the names in pod.spec.resourceClaims${listed}`;
    errors.push(notFound(field, name, detail));
  }
  return errors;
}

/**
 * Returns the errors of a reference to a claim, which may be referenced once as a whole, or once for each of its requests.
 * `seen` collects the references.
 */
function repeatedClaimErrors(field: string, name: string, request: string, seen: Set<string>): FieldError[] {
  if (seen.has(name)) return [duplicate(field, name)];
  const key = request === '' ? name : `${name}/${request}`;
  const errors = request === '' ? [] : invalidFor(`${field}.request`, request, dnsLabelErrors(request));
  if (seen.has(key)) errors.push(duplicate(field, key));
  else if (request === '' && [...seen].some((one) => one.startsWith(`${name}/`))) errors.push(duplicate(field, name));
  seen.add(key);
  return errors;
}
