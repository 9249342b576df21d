/**
 * The keys and certificates of the control plane, created at the first start and renewed while it runs.
 *
 * `<directory>`: `ca` (the cluster CA), `apiserver` (serving), `apiserver-kubelet-client`, `front-proxy-ca`,
 * `front-proxy-client`, `sa.key`/`sa.pub` (service-account tokens). `check()` reissues a certificate that nears its end, lacks
 * an address that the host has now, or has another subject than it should; `onChange` notifies the servers. Created by main.ts.
 */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { join } from 'node:path';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import type { Logger } from '../../api/component/logger.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { ensureAdminKubeconfig } from './admin-kubeconfig.ts';
import {
  ensureAuthority,
  ensureCertificate,
  type Authority,
  type KeyAndCertificate,
  type Wanted,
} from './authority.ts';
import { readIfThere, writeFileAtomic } from './files.ts';

/** The user that node agents see when the API server calls them. It is a member of no group. */
export const KUBELET_CLIENT = 'kube-apiserver-kubelet-client';
/** The name by which aggregated API servers recognise this one. */
export const FRONT_PROXY_CLIENT = 'front-proxy-client';

const YEAR_MS = 365 * 86_400_000;
const CHECK_EVERY_MS = 60 * 60_000;

export interface PkiOptions {
  /** `<data-dir>/pki`. */
  readonly directory: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Host names that the API is reached by, beside the service's. */
  readonly hosts: readonly string[];
  /** Asked at every check: addresses of a host come and go. */
  readonly addresses: () => readonly string[];
  /** First address of the service range: the `kubernetes` service. */
  readonly serviceIp: string | undefined;
  /** `cluster.local`. */
  readonly clusterDomain?: string;
  /** Absent: no kubeconfig is written. */
  readonly adminKubeconfig?: { readonly path: string; readonly server: string };
}

export interface PkiMaterial {
  readonly ca: Authority;
  readonly frontProxyCa: Authority;
  readonly apiserver: KeyAndCertificate;
  readonly kubeletClient: KeyAndCertificate;
  readonly frontProxyClient: KeyAndCertificate;
}

export interface Pki {
  /** As it is now. */
  material(): PkiMaterial;
  /** PEM of the key that signs service-account tokens, and of all that verify them. */
  readonly serviceAccountKey: { readonly privateKeyPem: string; readonly publicKeyPem: string };
  readonly paths: { readonly caCertificate: string; readonly frontProxyCa: string };
  onChange(listener: (material: PkiMaterial) => void): void;
  /** Looks at everything now; main.ts calls it when an address appears. Resolves to whether something was made. */
  check(): Promise<boolean>;
  /** Checks once an hour until aborted. */
  watch(signal: AbortSignal): void;
}

export async function ensurePki(options: PkiOptions): Promise<Pki> {
  const { directory, clock } = options;
  const [ca, frontProxyCa, serviceAccountKey] = await Promise.all([
    ensureAuthority(directory, 'ca', 'kubernetes', clock.now()),
    ensureAuthority(directory, 'front-proxy-ca', 'front-proxy-ca', clock.now()),
    ensureServiceAccountKey(directory),
  ]);
  const listeners: ((material: PkiMaterial) => void)[] = [];
  const authorities = { ca, frontProxyCa };
  let { material } = await ensureLeaves(options, authorities);

  const check = async (): Promise<boolean> => {
    const next = await ensureLeaves(options, authorities);
    if (!next.changed) return false;
    material = next.material;
    for (const listener of listeners) listener(material);
    return true;
  };
  return {
    material: () => material,
    serviceAccountKey,
    paths: { caCertificate: join(directory, 'ca.crt'), frontProxyCa: join(directory, 'front-proxy-ca.crt') },
    onChange: (listener) => void listeners.push(listener),
    check,
    watch(signal) {
      let timer: Timer | undefined;
      const arm = (): void => {
        if (signal.aborted) return;
        timer = clock.after(CHECK_EVERY_MS, () => {
          check()
            .catch((error: unknown) => options.logger.error({ error }, 'Certificates could not be checked'))
            .finally(arm);
        });
      };
      arm();
      signal.addEventListener('abort', () => timer?.cancel(), { once: true });
    },
  };
}

async function ensureLeaves(
  options: PkiOptions,
  authorities: { readonly ca: Authority; readonly frontProxyCa: Authority },
): Promise<{ readonly material: PkiMaterial; readonly changed: boolean }> {
  const { ca, frontProxyCa } = authorities;
  const nowMs = options.clock.now();
  const ensure = (name: string, wanted: Wanted, authority: Authority) =>
    ensureCertificate(options.directory, name, wanted, authority, nowMs);
  // No client has an organization: whoever obtains one of these keys is in no privileged group anywhere.
  const client = (commonName: string): Wanted => ({
    subject: { commonName, organizations: [] },
    usage: 'client auth',
    lifetimeMs: YEAR_MS,
  });
  const [apiserver, kubeletClient, frontProxyClient] = await Promise.all([
    ensure('apiserver', servingCertificate(options), ca),
    ensure('apiserver-kubelet-client', client(KUBELET_CLIENT), ca),
    ensure('front-proxy-client', client(FRONT_PROXY_CLIENT), frontProxyCa),
  ]);
  if (options.adminKubeconfig !== undefined) {
    await ensureAdminKubeconfig(options.adminKubeconfig.path, options.adminKubeconfig.server, ca, nowMs);
  }
  let changed = false;
  for (const [name, made] of Object.entries({ apiserver, kubeletClient, frontProxyClient })) {
    if (made.issued === undefined) continue;
    changed = true;
    options.logger.info(
      { certificate: name, why: made.issued, notAfter: new Date(made.certificate.notAfterMs) },
      'Issued a certificate',
    );
  }
  return { material: { ca, frontProxyCa, apiserver, kubeletClient, frontProxyClient }, changed };
}

function servingCertificate(options: PkiOptions): Wanted {
  const domain = options.clusterDomain ?? 'cluster.local';
  const service = ['kubernetes', 'kubernetes.default', 'kubernetes.default.svc', `kubernetes.default.svc.${domain}`];
  return {
    subject: { commonName: 'kube-apiserver' },
    usage: 'server auth',
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
 * RSA: RS256 is what every client of the tokens' issuer accepts. `sa.pub` lists all keys whose tokens are good: a new key,
 * made where `sa.key` is missing, comes first and those before it stay, until they are taken out of the file.
 */
async function ensureServiceAccountKey(directory: string): Promise<Pki['serviceAccountKey']> {
  const paths = { key: join(directory, 'sa.key'), pub: join(directory, 'sa.pub') };
  const [existing, listed = ''] = await Promise.all([readIfThere(paths.key), readIfThere(paths.pub)]);
  const pem = existing ?? privateKeyPem((await generateKey('rsa')).privateKey);
  const own = createPublicKey(createPrivateKey(pem)).export({ type: 'spki', format: 'pem' }).toString();
  const publicKeyPem = listed.includes(own.trim()) ? listed : `${own}${listed}`;
  if (existing === undefined) await writeFileAtomic(paths.key, pem, 0o600);
  if (publicKeyPem !== listed) await writeFileAtomic(paths.pub, publicKeyPem, 0o644);
  return { privateKeyPem: pem, publicKeyPem };
}
