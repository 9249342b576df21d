/**
 * Defines the strategy of pod certificate requests, by which an agent asks a signer for a pod's certificate. The spec is
 * immutable. Once the request is issued, denied or failed, the status is immutable, too.
 */
import type { V1beta1PodCertificateRequestSpec, V1beta1PodCertificateRequestStatus } from '@kubernetes/client-node';
import { formatTime } from '../../../../api/machinery/clock.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { conditionErrors } from '../../../../api/meta/conditions.ts';
import { type FieldError, invalid, notSupported, required, tooLong } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { dnsSubdomainErrors, qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { MAX_ANNOTATIONS_BYTES } from '../../../../api/meta/validation.ts';
import { statusWithoutMetadata, restore } from '../../generic-strategy.ts';
import type { Strategy, UpdateStrategy } from '../../strategy.ts';
import { podCertificateRequestColumns } from './columns.ts';
import { signerNameErrors } from './certificate-validation.ts';
import { immutable, maxBytes } from '../field-rules.ts';
import { possessionErrors } from './proof-of-possession.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Request = Kind<{ spec: V1beta1PodCertificateRequestSpec; status: V1beta1PodCertificateRequestStatus }>;

const ENDS = ['Denied', 'Failed', 'Issued'];
const HOUR_SECONDS = 3600;
const DAY_SECONDS = 86_400;
/** The longest `maxExpirationSeconds` for signers that are not of `kubernetes.io`. */
const MAX_EXPIRATION_SECONDS = 91 * DAY_SECONDS;
const MAX_UID_BYTES = 128;

function uidErrors(field: string, uid: string): FieldError[] {
  if (uid === '') return [invalid(field, uid, 'must not be empty')];
  return maxBytes(field, uid, MAX_UID_BYTES);
}

/** Validates the annotations of the pod's author: domain-prefixed keys, whose case does not matter, and the size of all. */
function userAnnotationErrors(annotations: Readonly<Record<string, string | undefined>>, field: string): FieldError[] {
  const keys = Object.keys(annotations).map((key) => key.toLowerCase());
  const errors = keys.sort().flatMap((key) => {
    if (key === '') return [required(field)];
    const faults = invalidFor(field, key, qualifiedNameErrors(key));
    if (faults.length > 0 || key.includes('/')) return faults;
    return [invalid(field, key, 'must be a domain-prefixed key (such as "acme.io/foo")')];
  });
  const sizes = Object.entries(annotations).map(
    ([key, value = '']) => Buffer.byteLength(key) + Buffer.byteLength(value),
  );
  const sizeBytes = sizes.reduce((sum, size) => sum + size, 0);
  return sizeBytes > MAX_ANNOTATIONS_BYTES ? [...errors, tooLong(field, MAX_ANNOTATIONS_BYTES)] : errors;
}

function createErrors({ spec }: Request): FieldError[] {
  const { signerName = '', podName = '', serviceAccountName = '', nodeName = '' } = spec ?? {};
  const errors = [
    ...signerNameErrors('spec.signerName', signerName),
    ...userAnnotationErrors(spec?.unverifiedUserAnnotations ?? {}, 'spec.unverifiedUserAnnotations'),
    ...invalidFor('spec.podName', podName, dnsSubdomainErrors(podName)),
    ...uidErrors('spec.podUID', spec?.podUID ?? ''),
    ...invalidFor('spec.serviceAccountName', serviceAccountName, dnsSubdomainErrors(serviceAccountName)),
    ...uidErrors('spec.serviceAccountUID', spec?.serviceAccountUID ?? ''),
    ...invalidFor('spec.nodeName', nodeName, dnsSubdomainErrors(nodeName)),
    ...uidErrors('spec.nodeUID', spec?.nodeUID ?? ''),
  ];
  const seconds = spec?.maxExpirationSeconds;
  const at = 'spec.maxExpirationSeconds';
  if (seconds === undefined) return [...errors, required(at, 'must be set')];
  const maxSeconds = /^([a-z0-9.-]+\.)?kubernetes\.io\//.test(signerName) ? DAY_SECONDS : MAX_EXPIRATION_SECONDS;
  if (seconds < HOUR_SECONDS || seconds > maxSeconds)
    errors.push(invalid(at, seconds, `must be in the range [${HOUR_SECONDS}, ${maxSeconds}]`));
  return [...errors, ...possessionErrors(spec)];
}

const conditionsOf = ({ status }: Request) => status?.conditions ?? [];
const hasEnded = (request: Request): boolean =>
  conditionsOf(request).some(({ type, status }) => ENDS.includes(type ?? '') && status === 'True');

function statusErrors(object: Request, old: Request): FieldError[] {
  const errors: FieldError[] = [];
  let ends = 0;
  for (const [index, { type = '', status = '' }] of conditionsOf(object).entries()) {
    const at = `status.conditions[${index}]`;
    if (!ENDS.includes(type)) {
      errors.push(notSupported(`${at}.type`, type, ENDS));
      continue;
    }
    ends += 1;
    if (ends > 1) {
      const text = 'There may be at most one condition with type "Issued", "Denied", or "Failed"';
      errors.push(invalid(`${at}.type`, type, text));
    }
    if (status !== 'True') errors.push(notSupported(`${at}.status`, status, ['True']));
  }
  errors.push(...conditionErrors(conditionsOf(object), 'status.conditions'));
  if (errors.length > 0) return errors;
  if (hasEnded(old)) {
    if (jsonEqual(object.status ?? {}, old.status ?? {})) return [];
    const text = 'immutable after PodCertificateRequest is issued, denied, or failed';
    return [invalid('status', object.status, text)];
  }
  const [end] = conditionsOf(object);
  const { conditions: _conditions, ...otherFields } = object.status ?? {};
  if (end !== undefined && end.type !== 'Issued' && Object.keys(otherFields).length > 0) {
    const text = 'non-condition status fields must be empty when denying or failing the PodCertificateRequest';
    return [invalid('status', object.status, text)];
  }
  return [];
}

const status: UpdateStrategy<Request> = {
  ...(statusWithoutMetadata as UpdateStrategy<Request>),
  prepareForUpdate(object, old, context) {
    (statusWithoutMetadata as UpdateStrategy<Request>).prepareForUpdate?.(object, old, context);
    for (const condition of conditionsOf(object)) {
      if (typeof condition.lastTransitionTime === 'string') continue;
      const before = conditionsOf(old).find((one) => one.type === condition.type && one.status === condition.status);
      condition.lastTransitionTime = before?.lastTransitionTime ?? formatTime(context.nowMs);
    }
  },
  validateUpdate: statusErrors,
  resetFields: [['spec']],
};

export const podCertificateRequests: Strategy<Request> = {
  requiresResourceVersion: true,
  prepareForCreate: (object) => void delete object.status,
  prepareForUpdate: (object, old) => restore(object, old, 'status'),
  validateCreate: createErrors,
  validateUpdate: (object, old) =>
    immutable('spec', object.spec, old.spec, 'io.k8s.api.certificates.v1beta1.PodCertificateRequestSpec'),
  resetFields: [['status']],
  columns: podCertificateRequestColumns,
  selectableFields: {
    'spec.signerName': ({ spec }) => spec?.signerName ?? '',
    'spec.podName': ({ spec }) => spec?.podName ?? '',
    'spec.nodeName': ({ spec }) => spec?.nodeName ?? '',
  },
  status,
};
