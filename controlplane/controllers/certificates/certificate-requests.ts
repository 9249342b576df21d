/** Reads certificate signing requests for the controllers that approve, sign and delete them. Pure. */
import type { CertificateRequest } from '../../../api/pki/certificate-request.ts';
import type { CertificateSigningRequest } from '../../../api/kinds/kinds.ts';
import { NODES_GROUP, NODE_USER_PREFIX } from '../../../api/meta/system-users.ts';
import { NODE_CLIENT_SIGNER } from '../../../api/pki/signer-names.ts';

/** Whether the request has a condition of that type, whatever its status is. */
export function hasCondition(request: CertificateSigningRequest, type: string): boolean {
  return request.status?.conditions?.some((condition) => condition.type === type) ?? false;
}

/** Whether the request waits for a decision. */
export function isPending(request: CertificateSigningRequest): boolean {
  return !['Approved', 'Denied', 'Failed'].some((type) => hasCondition(request, type));
}

interface RequestedSubject {
  readonly commonName: string;
  readonly organizations: readonly string[];
  readonly hasNames: boolean;
}

/** Returns the subject and the names of a request, and `undefined` if the request cannot be parsed. */
export function subjectOf(
  request: CertificateSigningRequest,
  parse: (pem: string) => CertificateRequest,
): RequestedSubject | undefined {
  try {
    const { subject, names } = parse(Buffer.from(request.spec?.request ?? '', 'base64').toString('utf8'));
    return {
      commonName: subject.commonName,
      organizations: subject.organizations,
      hasNames: Object.values(names).some((list) => Array.isArray(list) && list.length > 0),
    };
  } catch {
    return undefined;
  }
}

/** Whether the request is for a client certificate of a node, without further usages or names. */
export function isNodeClientRequest(request: CertificateSigningRequest, subject: RequestedSubject): boolean {
  const usages = (request.spec?.usages ?? []).toSorted().join(',');
  return (
    request.spec?.signerName === NODE_CLIENT_SIGNER &&
    subject.organizations.length === 1 &&
    subject.organizations[0] === NODES_GROUP &&
    subject.commonName.startsWith(NODE_USER_PREFIX) &&
    !subject.hasNames &&
    (usages === 'client auth,digital signature' || usages === 'client auth,digital signature,key encipherment')
  );
}

const HOUR_MS = 3600_000;

/**
 * Returns the time at which the cleaner deletes the request, in ms since the epoch. `expiresAt` is the expiry of the issued
 * certificate.
 */
export function removalTime(request: CertificateSigningRequest, expiresAt: number | undefined): number {
  const created = Date.parse(request.metadata.creationTimestamp ?? '') || 0;
  const latest = (type: string): number | undefined => {
    const times = (request.status?.conditions ?? [])
      .filter((condition) => condition.type === type)
      .map((condition) => Date.parse(condition.lastUpdateTime ?? ''));
    return times.length === 0 ? undefined : Math.max(...times.map((time) => time || created));
  };
  const issued = (request.status?.certificate ?? '') !== '';
  const candidates: number[] = [];
  const approved = latest('Approved');
  const denied = latest('Denied');
  const failed = latest('Failed');
  if (approved !== undefined) candidates.push(approved + HOUR_MS);
  if (denied !== undefined) candidates.push(denied + HOUR_MS);
  if (failed !== undefined) candidates.push(failed + HOUR_MS);
  if (approved === undefined && denied === undefined && failed === undefined) candidates.push(created + 24 * HOUR_MS);
  if (issued && approved !== undefined && expiresAt !== undefined) candidates.push(expiresAt);
  // The times in conditions come from clients, so they cannot make a new request count as old.
  return Math.max(Math.min(...candidates), created + HOUR_MS);
}
