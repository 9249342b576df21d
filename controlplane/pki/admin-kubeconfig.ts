/**
 * Writes the administrator's kubeconfig, with a client certificate of the group `system:masters`. `start/serve.ts` calls it at
 * each start, which renews a stale certificate. A PKI with the option `adminKubeconfig` also calls it at each check.
 */
import { createPublicKey } from 'node:crypto';
import { parseCertificates } from '../../api/pki/certificate.ts';
import { issue, staleReason, type Authority, type Wanted } from './authority.ts';
import { parsed, readIfThere, writeFileIfRoom } from './files.ts';
import { MASTERS_GROUP } from '../../api/meta/system-users.ts';

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

/**
 * Writes the file again if the certificate is stale, or the server's URL or the CA changed. Returns its text; `isWritten` is
 * false if the disk is full and the file remains as it was. Rejects if the certificate or the key of the file cannot be read.
 */
export async function ensureAdminKubeconfig(
  path: string,
  server: string,
  authority: Authority,
  nowMs: number,
): Promise<{ readonly text: string; readonly isWritten: boolean }> {
  const text = (await readIfThere(path)) ?? '';
  const data = (key: string): string => {
    const found = new RegExp(`^ +${key}: (\\S+)$`, 'm').exec(text)?.[1];
    return found === undefined ? '' : Buffer.from(found, 'base64').toString();
  };
  const [current] = parsed(path, () => parseCertificates(data('client-certificate-data')));
  const keyPem = data('client-key-data');
  const usable =
    current !== undefined &&
    keyPem !== '' &&
    parsed(path, () => createPublicKey(keyPem)).equals(current.publicKey) &&
    staleReason(current, ADMIN, authority, nowMs) === undefined;
  const sameServer =
    text.includes(`    server: ${server}\n`) && data('certificate-authority-data') === authority.certificatePem;
  if (usable && sameServer) return { text, isWritten: true };
  const credentials = usable
    ? { certificate: data('client-certificate-data'), key: keyPem }
    : await issue(ADMIN, authority, nowMs).then((made) => ({
        certificate: made.certificatePem,
        key: made.privateKeyPem,
      }));
  const renewed = kubeconfig({ server, ca: authority.certificatePem, ...credentials });
  return { text: renewed, isWritten: await writeFileIfRoom(path, renewed, 0o600) };
}
