/**
 * Owns the keys and certificates of the control plane. It creates them at the first start, and renews all certificates but
 * those of the CAs at each start and while the control plane runs.
 *
 * The directory contains `ca` (the cluster CA), `apiserver` (serving), `apiserver-kubelet-client`, `front-proxy-ca`,
 * `front-proxy-client` and `sa.key`/`sa.pub` (service account tokens).
 */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { join } from 'node:path';
import { background } from '../../../api/machinery/background.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { generateKey, type KeyPair, privateKeyPem } from '../../../api/pki/signing.ts';
import { ensureAdminKubeconfig } from './admin-kubeconfig.ts';
import {
  ensureAuthority,
  ensureCertificate,
  type Authority,
  type KeyAndCertificate,
  type Wanted,
} from './authority.ts';
import { readIfThere, writeFileAtomic } from './files.ts';

/** The user name of kube-apiserver's client certificate for kubelets. The user is in no group. */
export const KUBELET_CLIENT = 'kube-apiserver-kubelet-client';
/** The user name by which aggregated API servers recognize this one. */
export const FRONT_PROXY_CLIENT = 'front-proxy-client';

const YEAR_MS = 365 * 86_400_000;
const CHECK_EVERY_MS = 60 * 60_000;
const CLOCK_EVERY_MS = 60_000;
/** If the clock of the host was set by as much as this, the certificates are checked without waiting for the hour. */
const JUMP_MS = 60_000;
/** The message about a full disk, on which the running process still has the new certificate. */
const NOT_WRITTEN = 'The disk is full: a certificate could not be written';

interface PkiOptions {
  /** The directory of keys and certificates: `<data-dir>/pki`. */
  readonly directory: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The host names of the API server, in addition to those of the service. */
  readonly hosts: readonly string[];
  /** Called at every check, because the addresses of a host change. */
  readonly addresses: () => readonly string[];
  /** The cluster IP of the service `kubernetes`. */
  readonly serviceIp: string | undefined;
  /** A key that is used if there is none yet. By default, one is generated then. */
  readonly serviceAccountKey?: Promise<KeyPair> | undefined;
  /** The domain of the cluster, such as `cluster.local`. */
  readonly clusterDomain?: string;
}

/** Where the kubeconfig of the administrator is, and the URL of the API server in it. */
interface AdminKubeconfig {
  readonly path: string;
  readonly server: string;
}

/** Keys and certificates that are valid now. A renewal returns a new object. */
export interface PkiMaterial {
  readonly ca: Authority;
  readonly frontProxyCa: Authority;
  readonly apiserver: KeyAndCertificate;
  readonly kubeletClient: KeyAndCertificate;
  readonly frontProxyClient: KeyAndCertificate;
}

/** The keys and certificates of a running control plane. */
export interface Pki {
  /** Returns the current keys and certificates. */
  material(): PkiMaterial;
  /** The key that signs service account tokens, and all keys that verify them, as PEM. */
  readonly serviceAccountKey: { readonly privateKeyPem: string; readonly publicKeyPem: string };
  readonly paths: { readonly caCertificate: string; readonly frontProxyCa: string };
  onChange(listener: (material: PkiMaterial) => void): void;
  /**
   * Writes the kubeconfig of the administrator, unless the file is good as it is, and includes it in the checks from then on.
   * Resolves to its text.
   */
  keepAdminKubeconfig(file: AdminKubeconfig): Promise<string>;
  /** Checks all certificates now. Resolves to whether a certificate was issued. */
  check(): Promise<boolean>;
  /** Checks once an hour, and within a minute after the clock of the host was set, until the signal aborts. */
  watch(signal: AbortSignal): void;
}

/** Creates what is missing in the directory, and renews what is stale, before it resolves. */
export async function ensurePki(options: PkiOptions): Promise<Pki> {
  const { directory, clock, logger } = options;
  const [ca, frontProxyCa, serviceAccountKey] = await Promise.all([
    ensureAuthority(directory, 'ca', 'kubernetes', clock.now()),
    ensureAuthority(directory, 'front-proxy-ca', 'front-proxy-ca', clock.now()),
    ensureServiceAccountKey(options),
  ]);
  const listeners: ((material: PkiMaterial) => void)[] = [];
  const authorities = { ca, frontProxyCa };
  let { material } = await ensureLeaves(options, authorities);

  let admin: { readonly file: AdminKubeconfig; readonly isWritten: boolean } | undefined;
  const writeAdmin = async (file: AdminKubeconfig): ReturnType<typeof ensureAdminKubeconfig> => {
    const ensured = await writeAdminKubeconfig(options, ca, file);
    admin = { file, isWritten: ensured.isWritten };
    return ensured;
  };
  const checkNow = async (): Promise<boolean> => {
    const next = await ensureLeaves(options, authorities);
    if (next.changed) {
      material = next.material;
      for (const listener of listeners) listener(material);
    }
    if (admin === undefined) return next.changed;
    const isRemoved = admin.isWritten && (await readIfThere(admin.file.path)) === undefined;
    return (!isRemoved && (await writeAdmin(admin.file)).issued !== undefined) || next.changed;
  };
  // Two checks at once could write the key of one issue and the certificate of the other.
  const checks = new SerialQueue();
  const check = (): Promise<boolean> => checks.run(checkNow);
  return {
    material: () => material,
    serviceAccountKey,
    paths: { caCertificate: join(directory, 'ca.crt'), frontProxyCa: join(directory, 'front-proxy-ca.crt') },
    onChange: (listener) => void listeners.push(listener),
    keepAdminKubeconfig: async (file) => (await writeAdmin(file)).text,
    check,
    watch: (signal) =>
      background(checkRegularly(options, check, signal), { logger, what: 'Checking certificates', signal }),
  };
}

async function checkRegularly(
  { clock, logger }: Pick<PkiOptions, 'clock' | 'logger'>,
  check: () => Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  // The wall clock at the start of the monotonic one, which no step of the wall clock changes.
  const originMs = (): number => clock.now() - clock.monotonic();
  let checked = { atMs: clock.monotonic(), originMs: originMs() };
  const checkIfDue = async (): Promise<void> => {
    const isDue = clock.monotonic() - checked.atMs >= CHECK_EVERY_MS;
    if (!isDue && Math.abs(originMs() - checked.originMs) < JUMP_MS) return;
    checked = { atMs: clock.monotonic(), originMs: originMs() };
    await check();
  };
  const onError = (error: unknown): void => logger.error({ err: error }, 'Cannot check the certificates');
  await periodically(checkIfDue, { clock, periodMs: CLOCK_EVERY_MS, signal, onError, first: 'later' });
}

/** Logs a CA that is expired or not valid yet. */
function reportUnusable({ certificate }: Authority, { logger }: Pick<PkiOptions, 'logger'>, nowMs: number): void {
  const [notBefore, notAfter] = [new Date(certificate.notBeforeMs), new Date(certificate.notAfterMs)];
  const authority = certificate.subject.commonName;
  if (nowMs > certificate.notAfterMs)
    logger.error(
      { authority, notAfter },
      "A CA has expired: set the clock of the host if it is wrong, or replace the CA with 'orchlet certs rotate-ca'",
    );
  else if (nowMs < certificate.notBeforeMs)
    logger.error({ authority, notBefore }, 'A CA is not valid yet: the clock of the host is wrong');
}

async function ensureLeaves(
  options: PkiOptions,
  authorities: { readonly ca: Authority; readonly frontProxyCa: Authority },
): Promise<{ readonly material: PkiMaterial; readonly changed: boolean }> {
  const { ca, frontProxyCa } = authorities;
  const nowMs = options.clock.now();
  for (const authority of [ca, frontProxyCa]) reportUnusable(authority, options, nowMs);
  const ensure = (name: string, wanted: Wanted, authority: Authority) =>
    ensureCertificate({ directory: options.directory, name }, wanted, authority, nowMs);
  // Client certificates have no organization, so that a stolen key belongs to no privileged group.
  const client = (commonName: string): Wanted => ({
    subject: { commonName, organizations: [] },
    usages: ['client auth'],
    lifetimeMs: YEAR_MS,
  });
  const [apiserver, kubeletClient, frontProxyClient] = await Promise.all([
    ensure('apiserver', servingCertificate(options), ca),
    ensure('apiserver-kubelet-client', client(KUBELET_CLIENT), ca),
    ensure('front-proxy-client', client(FRONT_PROXY_CLIENT), frontProxyCa),
  ]);
  let changed = false;
  for (const [name, ensured] of Object.entries({ apiserver, kubeletClient, frontProxyClient })) {
    if (ensured.issued === undefined) continue;
    changed = true;
    options.logger.info(
      { certificate: name, why: ensured.issued, notAfter: new Date(ensured.certificate.notAfterMs) },
      'Issued a certificate',
    );
    if (!ensured.isWritten) options.logger.warn({ certificate: name }, NOT_WRITTEN);
  }
  return { material: { ca, frontProxyCa, apiserver, kubeletClient, frontProxyClient }, changed };
}

async function writeAdminKubeconfig(
  { clock, logger }: Pick<PkiOptions, 'clock' | 'logger'>,
  ca: Authority,
  { path, server }: AdminKubeconfig,
): ReturnType<typeof ensureAdminKubeconfig> {
  const ensured = await ensureAdminKubeconfig(path, server, ca, clock.now());
  if (ensured.issued !== undefined) {
    const { certificate, why } = ensured.issued;
    logger.info({ certificate: path, why, notAfter: new Date(certificate.notAfterMs) }, 'Issued a certificate');
  }
  if (!ensured.isWritten) logger.warn({ certificate: path }, NOT_WRITTEN);
  return ensured;
}

function servingCertificate(options: PkiOptions): Wanted {
  const domain = options.clusterDomain ?? 'cluster.local';
  const service = ['kubernetes', 'kubernetes.default', 'kubernetes.default.svc', `kubernetes.default.svc.${domain}`];
  return {
    subject: { commonName: 'kube-apiserver' },
    usages: ['server auth'],
    lifetimeMs: YEAR_MS,
    names: {
      dns: [...new Set([...service, 'localhost', ...options.hosts])],
      ip: [
        ...new Set([
          '127.0.0.1',
          '::1',
          ...(options.serviceIp === undefined ? [] : [options.serviceIp]),
          ...options.addresses().map(withoutZone),
        ]),
      ],
    },
  };
}

const withoutZone = (address: string): string => address.split('%')[0] ?? address;

/**
 * Returns the keys of service account tokens, and writes those that are missing. A generated key is RSA, because every OIDC
 * client supports RS256. Keys that `sa.pub` lists stay there until an administrator removes them.
 */
async function ensureServiceAccountKey({
  directory,
  serviceAccountKey,
}: Pick<PkiOptions, 'directory' | 'serviceAccountKey'>): Promise<Pki['serviceAccountKey']> {
  const paths = { key: join(directory, 'sa.key'), pub: join(directory, 'sa.pub') };
  const [existing, listed = ''] = await Promise.all([readIfThere(paths.key), readIfThere(paths.pub)]);
  const pem = existing ?? privateKeyPem((await (serviceAccountKey ?? generateKey('rsa'))).privateKey);
  const ownPublicKey = createPublicKey(createPrivateKey(pem)).export({ type: 'spki', format: 'pem' }).toString();
  const publicKeyPem = listed.includes(ownPublicKey.trim()) ? listed : `${ownPublicKey}${listed}`;
  if (existing === undefined) await writeFileAtomic(paths.key, pem, 0o600);
  if (publicKeyPem !== listed) await writeFileAtomic(paths.pub, publicKeyPem, 0o644);
  return { privateKeyPem: pem, publicKeyPem };
}
