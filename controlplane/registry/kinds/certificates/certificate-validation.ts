/**
 * Validates certificate signing requests: the request itself, usages, signer and conditions, and the changes that an endpoint
 * allows.
 */
import { errorMessage } from '../../../../api/meta/error-message.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import type { V1CertificateSigningRequestSpec, V1CertificateSigningRequestStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import {
  duplicate,
  forbidden,
  invalid,
  notSupported,
  required,
  tooLong,
  type FieldError,
} from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import {
  dnsLabelErrors,
  dnsSubdomainErrors,
  MAX_LABEL_LENGTH,
  MAX_SUBDOMAIN_LENGTH,
} from '../../../../api/meta/names.ts';
import { parseCertificate } from '../../../../api/pki/certificate.ts';
import { parseCsr } from '../../../../api/pki/certificate-request.ts';
import { EXTENDED_KEY_USAGES, KEY_USAGES } from '../../../../api/pki/extensions.ts';
import { readPem } from '../../../../api/pki/pem.ts';

export type SigningRequest = Kind<{ spec: V1CertificateSigningRequestSpec; status: V1CertificateSigningRequestStatus }>;
export type Condition = NonNullable<NonNullable<SigningRequest['status']>['conditions']>[number];

/** Returns what identifies a condition in one state. */
export const stateOf = ({ type, status }: Condition): string => `${type ?? ''}/${status ?? ''}`;

/** Returns the conditions of the status; empty if there are none. */
export const conditionsOf = (request: SigningRequest): readonly Condition[] => request.status?.conditions ?? [];

const LEGACY_SIGNER = 'kubernetes.io/legacy-unknown';
const MIN_EXPIRATION_SECONDS = 600;
const USAGES: readonly string[] = [...KEY_USAGES, ...EXTENDED_KEY_USAGES.keys(), 'signing'];
const DECISIONS = ['Approved', 'Denied'];
const FINAL = [...DECISIONS, 'Failed'];

/** Validates a new request, with nothing tolerated. */
export function createErrors(request: SigningRequest): FieldError[] {
  return requestErrors(request, undefined);
}

/** Validates an update. `sets` names the fields that the endpoint may change. */
export function updateErrors(
  request: SigningRequest,
  old: SigningRequest,
  sets: { readonly decisions?: boolean; readonly certificate?: boolean } = {},
): FieldError[] {
  const errors = requestErrors(request, old);
  const at = 'status.conditions';
  const pick = (from: SigningRequest, type: string): Condition[] =>
    conditionsOf(from).filter((condition) => condition.type === type);
  for (const type of FINAL) {
    if (pick(request, type).length < pick(old, type).length)
      errors.push(forbidden(at, `updates may not remove a condition of type ${quoteText(type)}`));
  }
  if (sets.decisions !== true) {
    for (const type of DECISIONS) {
      const now = pick(request, type);
      const before = pick(old, type);
      if (now.length > before.length)
        errors.push(forbidden(at, `updates may not add a condition of type ${quoteText(type)}`));
      else if (now.length === before.length && !jsonEqual(now, before))
        errors.push(forbidden(at, `updates may not modify a condition of type ${quoteText(type)}`));
    }
  }
  const certificate = request.status?.certificate ?? '';
  const before = old.status?.certificate ?? '';
  if (certificate !== before) {
    if (sets.certificate !== true)
      errors.push(forbidden('status.certificate', 'updates may not set certificate content'));
    else if (before !== '')
      errors.push(forbidden('status.certificate', 'updates may not modify existing certificate content'));
  }
  return errors;
}

function requestErrors(request: SigningRequest, old: SigningRequest | undefined): FieldError[] {
  return [...specErrors(request, old), ...conditionErrors(request, old), ...certificateErrors(request, old)];
}

function specErrors({ spec }: SigningRequest, old: SigningRequest | undefined): FieldError[] {
  const errors: FieldError[] = [];
  const why = requestFault(spec?.request ?? '');
  if (why !== undefined) errors.push(invalid('spec.request', spec?.request, why));
  const usages: readonly string[] = spec?.usages ?? [];
  if (usages.length === 0) errors.push(required('spec.usages'));
  const before: readonly string[] = old?.spec?.usages ?? [];
  if (before.every((usage) => USAGES.includes(usage))) {
    for (const [i, usage] of usages.entries())
      if (!USAGES.includes(usage)) errors.push(notSupported(`spec.usages[${i}]`, usage, USAGES));
  }
  if (new Set(before).size === before.length) {
    const seen = new Set<string>();
    for (const [i, usage] of usages.entries()) {
      if (seen.has(usage)) errors.push(duplicate(`spec.usages[${i}]`, usage));
      seen.add(usage);
    }
  }
  const signer = spec?.signerName ?? '';
  if (signer === LEGACY_SIGNER && old?.spec?.signerName !== LEGACY_SIGNER) {
    errors.push(invalid('spec.signerName', signer, 'the legacy signerName is not allowed via this API version'));
  } else errors.push(...signerNameErrors('spec.signerName', signer));
  const seconds = spec?.expirationSeconds;
  if (seconds !== undefined && seconds !== null && seconds < MIN_EXPIRATION_SECONDS) {
    const why = `may not specify a duration less than ${MIN_EXPIRATION_SECONDS} seconds (10 minutes)`;
    errors.push(invalid('spec.expirationSeconds', seconds, why));
  }
  return errors;
}

function requestFault(base64: string): string | undefined {
  try {
    const request = parseCsr(Buffer.from(base64, 'base64').toString('latin1'));
    return request.signatureValid ? undefined : signatureFault(request.publicKey.asymmetricKeyType);
  } catch (error) {
    return errorMessage(error);
  }
}

/** Returns Go's error for a signature that does not verify. */
function signatureFault(keyType: string | undefined): string {
  if (keyType === 'ec') return 'x509: ECDSA verification failure';
  return keyType === 'ed25519' ? 'x509: Ed25519 verification failure' : 'crypto/rsa: verification error';
}

/** Validates a signer name, for example `example.com/signer-name`. */
export function signerNameErrors(field: string, name: string): FieldError[] {
  if (name === '') return [required(field)];
  const segments = name.split('/');
  const [domain = '', path = ''] = segments;
  if (segments.length !== 2) {
    const why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    return [invalid(field, name, why)];
  }
  const errors: FieldError[] = [];
  const check = (segment: string, rule: (label: string) => string[]): void => {
    for (const label of segment.split('.')) {
      const faults = rule(label);
      if (faults.length === 0) continue;
      errors.push(...faults.map((fault) => invalid(field, segment, `validating label ${quoteText(label)}: ${fault}`)));
      return;
    }
  };
  if (domain.length > MAX_SUBDOMAIN_LENGTH) errors.push(tooLong(field, MAX_SUBDOMAIN_LENGTH));
  check(domain, dnsLabelErrors);
  if (!domain.includes('.'))
    errors.push(invalid(field, domain, 'should be a domain with at least two segments separated by dots'));
  check(path, dnsSubdomainErrors);
  const maxLength = 2 * MAX_SUBDOMAIN_LENGTH + MAX_LABEL_LENGTH + 2;
  if (name.length > maxLength) errors.push(tooLong(field, maxLength));
  return errors;
}

const hasBoth = (conditions: readonly Condition[]): boolean =>
  DECISIONS.every((type) => conditions.some((condition) => condition.type === type));

const hasDuplicates = (conditions: readonly Condition[]): boolean =>
  new Set(conditions.map(({ type }) => type)).size < conditions.length;

function conditionErrors(request: SigningRequest, old: SigningRequest | undefined): FieldError[] {
  const errors: FieldError[] = [];
  const conditions = conditionsOf(request);
  const before = old === undefined ? [] : conditionsOf(old);
  const mayBeBoth = hasBoth(before);
  const mayRepeat = hasDuplicates(before);
  const mayBeEmpty = before.some(({ type }) => (type ?? '') === '');
  const storedStates = new Set(before.map(stateOf));
  const earlier = new Set<string>();
  for (const [i, condition] of conditions.entries()) {
    const { type = '', status = '' } = condition;
    const at = `status.conditions[${i}]`;
    if (type === '' && !mayBeEmpty) errors.push(required(`${at}.type`));
    const allowed = FINAL.includes(type) ? ['True'] : ['False', 'True', 'Unknown'];
    if (!storedStates.has(stateOf(condition))) {
      if (status === '') errors.push(required(`${at}.status`));
      else if (!allowed.includes(status)) errors.push(notSupported(`${at}.status`, status, allowed));
    }
    const opposite = DECISIONS.includes(type) && DECISIONS.some((one) => one !== type && earlier.has(one));
    if (opposite && !mayBeBoth)
      errors.push(invalid('status.conditions', type, 'Approved and Denied conditions are mutually exclusive'));
    if (earlier.has(type) && !mayRepeat) errors.push(duplicate(`${at}.type`, type));
    earlier.add(type);
  }
  return errors;
}

function certificateErrors(request: SigningRequest, old: SigningRequest | undefined): FieldError[] {
  const certificate = request.status?.certificate ?? '';
  if (certificate === '' || certificate === old?.status?.certificate) return [];
  const why = certificateFault(Buffer.from(certificate, 'base64').toString('latin1'));
  return why === undefined ? [] : [invalid('status.certificate', '<certificate data>', why)];
}

/** Returns an error unless the text consists of PEM blocks without headers that contain RFC 5280 certificates. */
function certificateFault(pem: string): string | undefined {
  const blocks = readPem(pem);
  if (blocks.length === 0) return 'must contain at least one CERTIFICATE PEM block';
  for (const { label, hasHeaders, der } of blocks) {
    if (label !== 'CERTIFICATE') return `only CERTIFICATE PEM blocks are allowed, found ${quoteText(label)}`;
    if (hasHeaders) return 'no PEM block headers are permitted';
    if (der.length === 0) return 'found CERTIFICATE PEM block containing 0 certificates';
    try {
      parseCertificate(der);
    } catch (error) {
      if (error instanceof Error) return 'x509: malformed certificate';
      throw error;
    }
  }
  return undefined;
}
