/**
 * Makes and opens the bundle with which a host becomes a further control plane: the keys of the cluster, encrypted with a key
 * that the administrator carries, in a Secret that a bootstrap token may read until it expires. Neither the Secret nor the key
 * reveals a file without the other.
 *
 * Each file is encrypted with AES-256-GCM and a nonce of its own. The associated data is its name and the names of all files,
 * so that files cannot be exchanged for each other or left out without the key: without its encryption configuration, a
 * new control plane would write Secrets in clear text.
 */
import {
  createCipheriv,
  createDecipheriv,
  createPrivateKey,
  createPublicKey,
  randomBytes,
  X509Certificate,
} from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { quoteText } from '../../api/meta/quote.ts';
import { replaceFile } from '../../api/machinery/replace-file.ts';
import { readPem } from '../../api/pki/pem.ts';
import { CommandError } from '../command-line/command.ts';
import type { Rights } from '../host/owner-rights.ts';

/** The maximum lifetime of a bundle, which is that of the certificates that kubeadm uploads. */
export const MAX_LIFE_MS = 2 * 3_600_000;

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_FORM = /^[0-9a-f]{64}$/;

/** The files of a bundle by name: where they are below the data directory, and whether a bundle needs them. */
const FILES: ReadonlyMap<string, { readonly path: string; readonly isOptional?: boolean }> = new Map([
  ['ca.crt', { path: 'pki/ca.crt' }],
  ['ca.key', { path: 'pki/ca.key' }],
  ['ca-bundle.jws', { path: 'pki/ca-bundle.jws', isOptional: true }],
  ['front-proxy-ca.crt', { path: 'pki/front-proxy-ca.crt' }],
  ['front-proxy-ca.key', { path: 'pki/front-proxy-ca.key' }],
  ['sa.key', { path: 'pki/sa.key' }],
  ['sa.pub', { path: 'pki/sa.pub' }],
  ['encryption.yaml', { path: 'encryption.yaml', isOptional: true }],
  ['etcd-ca.crt', { path: 'etcd/ca.crt', isOptional: true }],
  ['etcd-client.crt', { path: 'etcd/client.crt', isOptional: true }],
  ['etcd-client.key', { path: 'etcd/client.key', isOptional: true }],
  ['embedded-etcd-ca.crt', { path: 'etcd/pki/ca.crt', isOptional: true }],
  ['embedded-etcd-ca.key', { path: 'etcd/pki/ca.key', isOptional: true }],
  ['flags', { path: 'joined-flags', isOptional: true }],
]);

/** The contents of the files by their names in the bundle. */
export type BundleFiles = ReadonlyMap<string, Buffer>;

/** The flags of a control plane that a further one needs as well. A bundle contains the files that they name. */
export interface BundleSettings {
  readonly encryptionProviderConfig: string;
  readonly etcdServers: readonly string[];
  readonly etcdServersOverrides: readonly string[];
  readonly etcdPrefix: string;
  readonly etcdCafile: string;
  readonly etcdCertfile: string;
  readonly etcdKeyfile: string;
}

/** The CA of an etcd that orchlet runs, and how a further member joins it. */
export interface EmbeddedEtcd {
  readonly caCertificate: Buffer;
  readonly caKey: Buffer;
  /** The URLs of its members, for `--etcd-join`. */
  readonly members: readonly string[];
}

/** Returns the name of the Secret of a bundle. The token with this id may read it. */
export const bundleNameOf = (tokenId: string): string => `orchlet-control-plane-${tokenId}`;

/**
 * Reads the files of a control plane. Files that flags name are read with the rights of the caller. Rejects with `CommandError`
 * if a required file of the PKI is missing, or if a new CA is prepared.
 */
export async function readBundle(
  dataDirectory: string,
  settings: BundleSettings,
  etcd: EmbeddedEtcd | undefined,
  { asCaller }: Pick<Rights, 'asCaller'>,
): Promise<BundleFiles> {
  const files = new Map<string, Buffer>();
  for (const [name, { path, isOptional }] of FILES) {
    if (!path.startsWith('pki/')) continue;
    const content = await readIfThere(join(dataDirectory, path));
    if (content !== undefined) files.set(name, content);
    else if (isOptional !== true)
      throw new CommandError(
        `${join(dataDirectory, path)} is missing: run this on a host with a control plane, or give its --data-dir`,
      );
  }
  if ((await readIfThere(join(dataDirectory, 'pki/ca-next.crt'))) !== undefined)
    throw new CommandError("the CA is being rotated: finish with 'orchlet certs rotate-ca' first");
  for (const [name, path] of [
    ['encryption.yaml', settings.encryptionProviderConfig],
    ['etcd-ca.crt', settings.etcdCafile],
    ['etcd-client.crt', settings.etcdCertfile],
    ['etcd-client.key', settings.etcdKeyfile],
  ] as const)
    if (path !== '') files.set(name, await asCaller(() => readFile(path)));
  if (etcd !== undefined) {
    files.set('embedded-etcd-ca.crt', etcd.caCertificate);
    files.set('embedded-etcd-ca.key', etcd.caKey);
  }
  const joining = etcd === undefined ? [] : ['--etcd=embedded', `--etcd-join=${etcd.members.join()}`];
  files.set('flags', Buffer.from([...flagsOf(settings), ...joining].join('\n')));
  return files;
}

/** Returns the flags that all control planes share, with a placeholder for the data directory. */
function flagsOf(settings: BundleSettings): readonly string[] {
  const path = (name: string): string => `DATA_DIR/${FILES.get(name)?.path ?? ''}`;
  const flagIf = (value: string, text: string): readonly string[] => (value === '' ? [] : [text]);
  return [
    ...flagIf(settings.etcdServers.join(), `--etcd-servers=${settings.etcdServers.join()}`),
    ...settings.etcdServersOverrides.map((override) => `--etcd-servers-overrides=${override}`),
    ...flagIf(settings.etcdServers.join(), `--etcd-prefix=${settings.etcdPrefix}`),
    ...flagIf(settings.etcdCafile, `--etcd-cafile=${path('etcd-ca.crt')}`),
    ...flagIf(settings.etcdCertfile, `--etcd-certfile=${path('etcd-client.crt')}`),
    ...flagIf(settings.etcdKeyfile, `--etcd-keyfile=${path('etcd-client.key')}`),
    ...flagIf(settings.encryptionProviderConfig, `--encryption-provider-config=${path('encryption.yaml')}`),
  ];
}

/** Returns the associated data of one of the files. */
const associatedData = (name: string, all: Iterable<string>): Buffer =>
  Buffer.from([name, ...[...all].toSorted()].join('\n'));

/** Encrypts the files with a new key. */
export function sealBundle(files: BundleFiles): { readonly key: string; readonly data: Record<string, string> } {
  const key = randomBytes(KEY_BYTES);
  const data: Record<string, string> = {};
  for (const [name, content] of files) {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(associatedData(name, files.keys()));
    const sealed = Buffer.concat([nonce, cipher.update(content), cipher.final(), cipher.getAuthTag()]);
    data[name] = sealed.toString('base64');
  }
  return { key: key.toString('hex'), data };
}

/** Whether the text has the form of a key. */
export const isBundleKey = (text: string): boolean => KEY_FORM.test(text);

/**
 * Decrypts the data of the Secret. Throws a `CommandError` if the key is wrong or the data was changed, if a file is missing,
 * and for a name that no bundle has, since names become paths.
 */
export function openBundle(data: Readonly<Record<string, string>>, key: string): BundleFiles {
  const files = new Map<string, Buffer>();
  const names = Object.keys(data);
  const foreign = names.find((name) => !FILES.has(name));
  if (foreign !== undefined)
    throw new CommandError(`the bundle has a file ${quoteText(foreign)} that does not belong in it`);
  for (const [name, text] of Object.entries(data)) {
    const sealed = Buffer.from(text, 'base64');
    const end = Math.max(NONCE_BYTES, sealed.length - TAG_BYTES);
    try {
      const cipher = createDecipheriv(ALGORITHM, Buffer.from(key, 'hex'), sealed.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES,
      });
      cipher.setAAD(associatedData(name, names)).setAuthTag(sealed.subarray(end));
      files.set(name, Buffer.concat([cipher.update(sealed.subarray(NONCE_BYTES, end)), cipher.final()]));
    } catch (error) {
      throw new CommandError(
        `the bundle cannot be decrypted (${name}): the certificate key is wrong, or the bundle was changed`,
        { cause: error },
      );
    }
  }
  for (const [name, { isOptional }] of FILES)
    if (isOptional !== true && !files.has(name))
      throw new CommandError(
        `the bundle has no ${name}: make a new bundle with 'orchlet token create --control-plane'`,
      );
  return files;
}

/** Throws if the CA of the bundle is not one of those that were verified, or if its key belongs to another CA. */
export function checkBundle(files: BundleFiles, believedCa: string): void {
  const [bundleCa] = certificatesOf(files.get('ca.crt')?.toString() ?? '');
  const believed = certificatesOf(believedCa).map((certificate) => certificate.fingerprint256);
  if (bundleCa === undefined || !believed.includes(bundleCa.fingerprint256))
    throw new CommandError('the CA of the bundle is not the one that was verified: this may be another cluster');
  const key = createPublicKey(createPrivateKey(files.get('ca.key') ?? ''));
  if (!key.equals(bundleCa.publicKey))
    throw new CommandError(
      "the CA's key of the bundle belongs to another CA: make a new bundle with 'orchlet token create --control-plane'",
    );
}

function certificatesOf(pem: string): readonly X509Certificate[] {
  return readPem(pem).flatMap(({ label, text }) => (label === 'CERTIFICATE' ? new X509Certificate(text) : []));
}

/**
 * Writes the files below the data directory, which must not be one of another cluster. Resolves to the flags of the control
 * plane.
 */
export async function writeBundle(dataDirectory: string, files: BundleFiles): Promise<readonly string[]> {
  const existing = await readIfThere(join(dataDirectory, 'pki/ca.crt'));
  if (existing !== undefined && !existing.equals(files.get('ca.crt') ?? Buffer.alloc(0)))
    throw new CommandError(
      `${dataDirectory} has the CA of another cluster: give another --data-dir, or remove the directory`,
    );
  for (const [name, content] of files) {
    const path = join(dataDirectory, FILES.get(name)?.path ?? name);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const isPublic = name.endsWith('.crt') || name.endsWith('.pub');
    await replaceFile(path, content, { mode: isPublic ? 0o644 : 0o600 });
  }
  const flags = files.get('flags')?.toString() ?? '';
  return flags
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.replace('DATA_DIR', () => dataDirectory));
}

async function readIfThere(path: string): Promise<Buffer | undefined> {
  try {
    return await readFile(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
