/** Writes the administrator's kubeconfig, with a client certificate of the group `system:masters`. */
import { createPublicKey } from 'node:crypto';
import { parseCertificates, type Certificate } from '../../../api/pki/certificate.ts';
import { issue, staleReason, type Authority, type Wanted } from './authority.ts';
import { parsed, readIfThere, writeFileIfRoom } from './files.ts';
import { MASTERS_GROUP } from '../../../api/meta/system-users.ts';

/** The certificate of the administrator. */
const ADMIN: Wanted = {
  subject: { commonName: 'kubernetes-admin', organizations: [MASTERS_GROUP] },
  usages: ['client auth'],
  lifetimeMs: 365 * 86_400_000,
};

const base64 = (text: string): string => Buffer.from(text).toString('base64');

/** Writes YAML instead of JSON, because people read this file. */
function kubeconfig(options: {
  readonly server: string;
  readonly ca: string;
  readonly certificate: string;
  readonly key: string;
}): string {
  return [
    'apiVersion: v1',
    'kind: Config',
    'clusters:',
    '- name: orchlet',
    '  cluster:',
    `    certificate-authority-data: ${base64(options.ca)}`,
    `    server: ${options.server}`,
    'users:',
    '- name: kubernetes-admin',
    '  user:',
    `    client-certificate-data: ${base64(options.certificate)}`,
    `    client-key-data: ${base64(options.key)}`,
    'contexts:',
    '- name: kubernetes-admin@orchlet',
    '  context:',
    '    cluster: orchlet',
    '    user: kubernetes-admin',
    'current-context: kubernetes-admin@orchlet',
    '',
  ].join('\n');
}

interface EnsuredKubeconfig {
  readonly text: string;
  /** The certificate that was issued now, and why. `undefined` if the certificate of the file is good. */
  readonly issued: { readonly certificate: Certificate; readonly why: string } | undefined;
  /** Whether the text is on the disk. If the disk is full, the file remains as it was. */
  readonly isWritten: boolean;
}

/**
 * Replaces the file if the certificate is stale, or the server's URL or the CA changed. Rejects if the certificate or the key
 * of the file cannot be parsed, or if the file cannot be read, or cannot be written for another reason than a full disk.
 */
export async function ensureAdminKubeconfig(
  path: string,
  server: string,
  authority: Authority,
  nowMs: number,
): Promise<EnsuredKubeconfig> {
  const text = (await readIfThere(path)) ?? '';
  const data = (key: string): string => {
    const found = new RegExp(`^ +${key}: (\\S+)$`, 'm').exec(text)?.[1];
    return found === undefined ? '' : Buffer.from(found, 'base64').toString();
  };
  const [current] = parsed(path, () => parseCertificates(data('client-certificate-data')));
  const keyPem = data('client-key-data');
  let why: string | undefined = 'it is missing';
  if (current !== undefined && keyPem !== '') {
    const matches = parsed(path, () => createPublicKey(keyPem)).equals(current.publicKey);
    why = matches ? staleReason(current, ADMIN, authority, nowMs) : 'its key does not match';
  }
  const isSameServer =
    text.includes(`    server: ${server}\n`) && data('certificate-authority-data') === authority.certificatePem;
  if (why === undefined && isSameServer) return { text, issued: undefined, isWritten: true };
  const issuedNow = why === undefined ? undefined : await issue(ADMIN, authority, nowMs);
  const renewed = kubeconfig({
    server,
    ca: authority.certificatePem,
    certificate: issuedNow?.certificatePem ?? data('client-certificate-data'),
    key: issuedNow?.privateKeyPem ?? keyPem,
  });
  return {
    text: renewed,
    issued: issuedNow === undefined || why === undefined ? undefined : { certificate: issuedNow.certificate, why },
    isWritten: await writeFileIfRoom(path, renewed, 0o600),
  };
}
