/**
 * Owns a CA on disk and the certificates that it issues. A certificate is stored beside its key (`name.crt`,
 * `name.key`). It is reissued if it is missing, stale (`staleReason`) or not that of its key.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import { createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import {
  certificatePem,
  createCertificate,
  parseCertificate,
  parseCertificates,
  type Certificate,
} from '../../../api/pki/certificate.ts';
import { type AlternativeNames, type DistinguishedName, ipBytes } from '../../../api/pki/names.ts';
import { generateKey, privateKeyPem, verifySigned } from '../../../api/pki/signing.ts';
import { BACKDATE_MS, lifeBegins } from '../../../api/pki/validity.ts';
import { parsed, readIfThere, writeFileAtomic, writeFileIfRoom } from './files.ts';

const DAY_MS = 86_400_000;

/** A CA that can sign. */
export interface Authority {
  readonly certificate: Certificate;
  readonly certificatePem: string;
  readonly privateKey: KeyObject;
}

/** A certificate that a CA of this directory issued, with its key. */
export interface KeyAndCertificate {
  readonly certificate: Certificate;
  readonly certificatePem: string;
  readonly privateKeyPem: string;
}

/**
 * Resolves to the CA in `NAME.crt` and `NAME.key` of the directory. Creates one that is valid for ten years, with a new key, if
 * there is no certificate. Rejects if there is a certificate that cannot be used.
 */
export async function ensureAuthority(
  directory: string,
  name: string,
  commonName: string,
  nowMs: number,
): Promise<Authority> {
  const [pem, keyPem] = await Promise.all([
    readIfThere(join(directory, `${name}.crt`)),
    readIfThere(join(directory, `${name}.key`)),
  ]);
  if (pem !== undefined && keyPem !== undefined) return readAuthority(pem, keyPem, join(directory, `${name}.crt`));
  if (pem !== undefined)
    throw new Error(
      `${join(directory, `${name}.key`)} is missing; the CA certificate ${name}.crt cannot be used without it`,
    );
  const keys = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: { commonName },
      publicKey: keys.publicKey,
      notBeforeMs: nowMs - BACKDATE_MS,
      notAfterMs: lifeBegins(nowMs) + 3650 * DAY_MS,
      keyUsages: ['digital signature', 'key encipherment', 'cert sign'],
      basicConstraints: { isCa: true },
      names: { dns: [commonName] },
    },
    { privateKey: keys.privateKey },
  );
  await writeFileAtomic(join(directory, `${name}.key`), privateKeyPem(keys.privateKey), 0o600);
  await writeFileAtomic(join(directory, `${name}.crt`), certificatePem(raw), 0o644);
  return { certificate: parseCertificate(raw), certificatePem: certificatePem(raw), privateKey: keys.privateKey };
}

/**
 * Reads a CA certificate and its key. The first certificate of the file issues certificates; others may follow. `path` is the
 * path of the certificate, for messages. Throws if they cannot be parsed or do not belong together.
 */
export function readAuthority(pem: string, keyPem: string, path: string): Authority {
  const [certificate] = parsed(path, () => parseCertificates(pem));
  if (certificate === undefined) throw new Error(`${path} contains no certificate`);
  const privateKey = parsed(`the key of ${path}`, () => createPrivateKey(keyPem));
  if (!createPublicKey(privateKey).equals(certificate.publicKey))
    throw new Error(`the key of ${path} belongs to another certificate`);
  return { certificate, certificatePem: pem, privateKey };
}

/**
 * What a certificate must have. `staleReason` does not compare `lifetimeMs` and `usages`: they count for new certificates only.
 */
export interface Wanted {
  readonly subject: DistinguishedName;
  readonly names?: AlternativeNames;
  readonly usages: readonly ('server auth' | 'client auth')[];
  readonly lifetimeMs: number;
}

/** Returns why a certificate must be reissued; `undefined` if it is good. */
export function staleReason(
  current: Certificate,
  wanted: Wanted,
  authority: Authority,
  nowMs: number,
): string | undefined {
  if (!verifySigned(current.parts, authority.certificate.publicKey)) return 'the CA changed';
  const lifetimeMs = current.notAfterMs - current.notBeforeMs;
  if (nowMs > current.notAfterMs - lifetimeMs * 0.3) return 'it expires soon';
  if (nowMs < current.notBeforeMs) return 'it is not yet valid';
  if (current.subject.commonName !== wanted.subject.commonName) return 'its subject changed';
  // Returns a list as a text that does not depend on its order, because the order of a set in a certificate depends on its
  // encoding.
  const sorted = (list: readonly string[] = []): string => stringifyJson([...list].sort());
  if (sorted(current.subject.organizations) !== sorted(wanted.subject.organizations)) return 'its subject changed';
  const dns = new Set(current.names.dns);
  if (!(wanted.names?.dns ?? []).every((name) => dns.has(name))) return 'its names changed';
  const ip = new Set(current.names.ip.map((address) => ipBytes(address).toString('hex')));
  if (!(wanted.names?.ip ?? []).every((address) => ip.has(ipBytes(address).toString('hex'))))
    return 'its addresses changed';
  return undefined;
}

interface EnsuredCertificate extends KeyAndCertificate {
  /** Why it was issued now. `undefined` if the certificate in the directory is good. */
  readonly issued: string | undefined;
  /**
   * Whether the certificate is on the disk. If the disk is full, it is only in memory, and the next call issues another one.
   */
  readonly isWritten: boolean;
}

/**
 * Returns the certificate at `<directory>/<name>.crt` with the key beside it, or issues a new pair if that is not good. Rejects
 * if a file cannot be read, or if both are there and one cannot be parsed.
 */
export async function ensureCertificate(
  { directory, name }: { readonly directory: string; readonly name: string },
  wanted: Wanted,
  authority: Authority,
  nowMs: number,
): Promise<EnsuredCertificate> {
  const paths = { crt: join(directory, `${name}.crt`), key: join(directory, `${name}.key`) };
  const [pem, keyPem] = await Promise.all([readIfThere(paths.crt), readIfThere(paths.key)]);
  let why: string | undefined = 'it is missing';
  if (pem !== undefined && keyPem !== undefined) {
    const [current] = parsed(paths.crt, () => parseCertificates(pem));
    const key = parsed(paths.key, () => createPublicKey(keyPem));
    const matches = current !== undefined && key.equals(current.publicKey);
    why = matches ? staleReason(current, wanted, authority, nowMs) : 'its key does not match';
    if (current !== undefined && why === undefined) {
      return { certificate: current, certificatePem: pem, privateKeyPem: keyPem, issued: undefined, isWritten: true };
    }
  }
  const issuedNow = await issue(wanted, authority, nowMs);
  const isWritten =
    (await writeFileIfRoom(paths.key, issuedNow.privateKeyPem, 0o600)) &&
    (await writeFileIfRoom(paths.crt, issuedNow.certificatePem, 0o644));
  return { ...issuedNow, issued: why, isWritten };
}

/** Issues a certificate for a new key. */
export async function issue(wanted: Wanted, authority: Authority, nowMs: number): Promise<KeyAndCertificate> {
  const keys = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: wanted.subject,
      publicKey: keys.publicKey,
      notBeforeMs: nowMs - BACKDATE_MS,
      notAfterMs: Math.min(lifeBegins(nowMs) + wanted.lifetimeMs, authority.certificate.notAfterMs),
      keyUsages: ['digital signature', 'key encipherment'],
      extendedKeyUsages: wanted.usages,
      basicConstraints: { isCa: false },
      ...(wanted.names === undefined ? {} : { names: wanted.names }),
    },
    authority,
  );
  return {
    certificate: parseCertificate(raw),
    certificatePem: certificatePem(raw),
    privateKeyPem: privateKeyPem(keys.privateKey),
  };
}
