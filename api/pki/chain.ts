/**
 * Verifies a certificate chain up to a trusted root, with the rules that kube-apiserver applies to client certificates.
 */
import { DerError } from './der.ts';
import { EXTENDED_KEY_USAGES, EXTENSION } from './extensions.ts';
import { verifySigned } from './signing.ts';
import type { Certificate } from './certificate.ts';

/** The chain from the leaf to the root, or why there is none. */
export type ChainResult =
  | { readonly valid: true; readonly chain: readonly Certificate[] }
  | { readonly valid: false; readonly reason: string };

interface ChainOptions {
  readonly roots: readonly Certificate[];
  readonly intermediates: readonly Certificate[];
  readonly nowMs: number;
  /** A name of `EXTENDED_KEY_USAGES`. */
  readonly usage: string;
}

const UNDERSTOOD: ReadonlySet<string> = new Set([
  EXTENSION.keyUsage,
  EXTENSION.subjectAltName,
  EXTENSION.basicConstraints,
  EXTENSION.extendedKeyUsage,
  EXTENSION.subjectKeyId,
  EXTENSION.authorityKeyId,
]);
/** The maximum number of signature checks of one verification. */
const MAX_SIGNATURES = 100;

/**
 * Verifies the chain of a certificate. Never throws for a bad chain. The number of signatures that are verified is limited, and
 * only keys that a root vouches for verify any: the client chooses the others, and may choose keys that take long.
 */
export function verifyChain(leaf: Certificate, options: ChainOptions): ChainResult {
  const signatures = new Signatures();
  const issuing = [...options.roots, ...vouchedFor(options, signatures)];
  const wanted = EXTENDED_KEY_USAGES.get(options.usage) ?? options.usage;
  let reason = 'x509: certificate signed by unknown authority';
  const refuse = (why: string): undefined => {
    reason = why;
    return undefined;
  };

  const walk = (chain: readonly Certificate[]): readonly Certificate[] | undefined => {
    const current = chain.at(-1) ?? leaf;
    const why = unusable(current, { chain, wanted, nowMs: options.nowMs });
    if (why !== undefined) return refuse(why);
    if (options.roots.some((root) => root.raw.equals(current.raw))) return chain;
    for (const issuer of issuing) {
      if (!mayHaveIssued(issuer, current) || chain.some((link) => link.raw.equals(issuer.raw))) continue;
      if (signatures.areExhausted)
        return refuse('x509: signature check attempts limit reached while verifying certificate chain');
      if (!signatures.match(current, issuer)) continue;
      const found = walk([...chain, issuer]);
      if (found !== undefined) return found;
    }
    return undefined;
  };
  const chain = walk([leaf]);
  return chain === undefined ? { valid: false, reason } : { valid: true, chain };
}

/** Checks signatures, of which there is a maximum number in one verification. */
class Signatures {
  #left = MAX_SIGNATURES;

  get areExhausted(): boolean {
    return this.#left <= 0;
  }

  /** Whether the issuer signed the certificate. False once the checks are exhausted. */
  match({ parts }: Certificate, { publicKey }: Certificate): boolean {
    if (this.areExhausted) return false;
    this.#left -= 1;
    try {
      return verifySigned(parts, publicKey);
    } catch (error) {
      // A client chooses the algorithm of its certificate, which is parsed only now.
      if (error instanceof DerError) return false;
      throw error;
    }
  }
}

/** Returns the intermediates that a root has signed, directly or through others. */
function vouchedFor({ roots, intermediates }: ChainOptions, signatures: Signatures): readonly Certificate[] {
  const found = new Set<Certificate>();
  let issuers = roots;
  while (issuers.length > 0) {
    const signers = issuers;
    issuers = intermediates.filter(
      (one) => !found.has(one) && signers.some((signer) => mayHaveIssued(signer, one) && signatures.match(one, signer)),
    );
    for (const one of issuers) found.add(one);
  }
  return [...found];
}

function mayHaveIssued(candidate: Certificate, child: Certificate): boolean {
  if (!candidate.subject.raw.equals(child.issuer.raw)) return false;
  if (child.authorityKeyId === undefined || candidate.subjectKeyId === undefined) return true;
  return child.authorityKeyId.equals(candidate.subjectKeyId);
}

/** Returns why a link is not acceptable. The last element of `chain` is the link itself. */
function unusable(
  link: Certificate,
  at: { readonly chain: readonly Certificate[]; readonly wanted: string; readonly nowMs: number },
): string | undefined {
  if (at.nowMs < link.notBeforeMs || at.nowMs > link.notAfterMs) {
    return 'x509: certificate has expired or is not yet valid';
  }
  if (link.extensions.some((extension) => extension.critical && !UNDERSTOOD.has(extension.oid))) {
    return 'x509: unhandled critical extension';
  }
  const usages = link.extendedKeyUsages;
  if (usages !== undefined && !usages.includes(at.wanted) && !usages.includes(EXTENDED_KEY_USAGES.get('any') ?? '')) {
    return 'x509: certificate specifies an incompatible key usage';
  }
  if (at.chain.length === 1) return undefined;
  if (link.basicConstraints?.isCa !== true)
    return 'x509: invalid signature: parent certificate cannot sign this kind of certificate';
  if (link.keyUsages !== undefined && !link.keyUsages.includes('cert sign')) {
    return 'x509: invalid signature: parent certificate cannot sign this kind of certificate';
  }
  const below = at.chain.length - 2;
  if (link.basicConstraints.maxPathLength !== undefined && below > link.basicConstraints.maxPathLength) {
    return 'x509: too many intermediates for path length constraint';
  }
  return undefined;
}
