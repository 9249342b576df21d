/** Implements the rules of the four built-in signers: which requests each signer accepts, and which certificate it issues. */
import { createCertificate, certificatePem } from '../../../api/pki/certificate.ts';
import type { CertificateRequest } from '../../../api/pki/certificate-request.ts';
import { EXTENDED_KEY_USAGES, isKeyUsage, type KeyUsage } from '../../../api/pki/extensions.ts';
import { COMMON_NAME, type AlternativeNames } from '../../../api/pki/names.ts';
import { BACKDATE_MS, lifeBegins } from '../../../api/pki/validity.ts';
import type { Authority } from './authority.ts';
import { NODES_GROUP, NODE_USER_PREFIX } from '../../../api/meta/system-users.ts';
import { CLIENT_SIGNER, NODE_CLIENT_SIGNER, NODE_SERVING_SIGNER } from '../../../api/pki/signer-names.ts';

interface SigningInput {
  readonly signerName: string;
  readonly request: CertificateRequest;
  /** The value of `spec.usages`. */
  readonly usages: readonly string[];
  /** The value of `spec.expirationSeconds`. */
  readonly expirationSeconds: number | undefined;
}

interface Signer {
  /** Returns the reason to reject the request; `undefined` if it is acceptable. */
  refuse(input: SigningInput): string | undefined;
  /** Returns the alternative names that the certificate keeps. */
  names(request: CertificateRequest): AlternativeNames | undefined;
}

const SERVING_USAGES = ['digital signature', 'key encipherment', 'server auth'];
const NODE_CLIENT_USAGES = ['client auth', 'digital signature', 'key encipherment'];

/** Whether the usages are exactly these. Key encipherment is optional, because EC keys cannot encipher. */
function isExactly(usages: readonly string[], wanted: readonly string[]): boolean {
  const set = new Set(usages);
  return (
    wanted.every((usage) => set.has(usage) || usage === 'key encipherment') &&
    [...set].every((usage) => wanted.includes(usage))
  );
}

function refuseNodeSubject({ subject }: CertificateRequest): string | undefined {
  if (subject.organizations.length !== 1 || subject.organizations[0] !== NODES_GROUP)
    return 'subject organization is not system:nodes';
  // Servers disagree about which of several names counts.
  if (subject.attributes.filter(({ oid }) => oid === COMMON_NAME).length > 1)
    return 'subject has more than one common name';
  if (!subject.commonName.startsWith(NODE_USER_PREFIX)) return 'subject common name does not begin with system:node:';
  return undefined;
}

const SIGNERS: ReadonlyMap<string, Signer> = new Map(
  Object.entries({
    [CLIENT_SIGNER]: {
      refuse({ usages }) {
        const stray = usages.find((usage) => !NODE_CLIENT_USAGES.includes(usage));
        if (stray !== undefined) return `invalid usage for client certificate: ${stray}`;
        return usages.includes('client auth')
          ? undefined
          : 'missing required usage for client certificate: client auth';
      },
      names: (request) => request.names,
    },
    [NODE_CLIENT_SIGNER]: {
      refuse({ request, usages }) {
        const why = refuseNodeSubject(request);
        if (why !== undefined) return why;
        const { dns, email, ip, uri } = request.names;
        if (dns.length > 0) return 'DNS subjectAltNames are not allowed';
        if (email.length > 0) return 'Email subjectAltNames are not allowed';
        if (ip.length > 0) return 'IP subjectAltNames are not allowed';
        if (uri.length > 0) return 'URI subjectAltNames are not allowed';
        return isExactly(usages, NODE_CLIENT_USAGES)
          ? undefined
          : 'usages did not match [client auth digital signature key encipherment]';
      },
      names: () => undefined,
    },
    [NODE_SERVING_SIGNER]: {
      refuse({ request, usages }) {
        const why = refuseNodeSubject(request);
        if (why !== undefined) return why;
        const { dns, email, ip, uri } = request.names;
        if (dns.length === 0 && ip.length === 0) return 'DNS or IP subjectAltName is required';
        if (email.length > 0) return 'Email subjectAltNames are not allowed';
        if (uri.length > 0) return 'URI subjectAltNames are not allowed';
        return isExactly(usages, SERVING_USAGES)
          ? undefined
          : 'usages did not match [digital signature key encipherment server auth]';
      },
      names: ({ names }) => ({ dns: names.dns, ip: names.ip }),
    },
    'kubernetes.io/legacy-unknown': { refuse: () => undefined, names: (request) => request.names },
  }),
);

/** The signers of kube-controller-manager, such as `kubernetes.io/kubelet-serving`. */
export const SIGNER_NAMES: readonly string[] = [...SIGNERS.keys()];

type SigningResult = { readonly certificate: string } | { readonly refused: string };

const HOUR_MS = 3_600_000;
/** The lifetime of a shorter certificate is extended by the time by which it is backdated. */
const SHORT_MS = 8 * HOUR_MS;

/**
 * Signs a certificate request. The lifetime is the smaller of the requested one and `maxLifetimeMs`, and never exceeds the
 * CA's. Returns the reason as `refused` if the signer is unknown or does not accept the request.
 */
export function signRequest(
  input: SigningInput,
  authority: Authority,
  nowMs: number,
  maxLifetimeMs: number,
): SigningResult {
  const signer = SIGNERS.get(input.signerName);
  if (signer === undefined) return { refused: `unknown signer ${input.signerName}` };
  if (!input.request.signatureValid) return { refused: 'the signature of the request does not verify' };
  const why = signer.refuse(input);
  if (why !== undefined) return { refused: why };
  const keyUsages: KeyUsage[] = [];
  const extendedKeyUsages: string[] = [];
  for (const usage of input.usages) {
    const name = usage === 'signing' ? 'digital signature' : usage;
    if (isKeyUsage(name)) keyUsages.push(name);
    else if (EXTENDED_KEY_USAGES.has(name)) extendedKeyUsages.push(name);
    else return { refused: `unrecognized usage ${usage}` };
  }
  const requestedMs = input.expirationSeconds === undefined ? maxLifetimeMs : input.expirationSeconds * 1000;
  const lifetimeMs = Math.min(requestedMs, maxLifetimeMs);
  const endMs = lifeBegins(nowMs) + lifetimeMs - (lifetimeMs < SHORT_MS ? 0 : BACKDATE_MS);
  const names = signer.names(input.request);
  const raw = createCertificate(
    {
      subject: input.request.subject.raw,
      publicKey: input.request.publicKey,
      notBeforeMs: nowMs - BACKDATE_MS,
      notAfterMs: Math.min(endMs, authority.certificate.notAfterMs),
      keyUsages,
      extendedKeyUsages,
      basicConstraints: { isCa: false },
      ...(names === undefined ? {} : { names }),
    },
    authority,
  );
  return { certificate: certificatePem(raw) };
}
