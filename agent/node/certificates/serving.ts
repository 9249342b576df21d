/** The certificate of the agent's server: from flags, from the cluster's signer, or self-signed. */
import { readFile } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { certificatePem, createCertificate } from '../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../api/pki/signing.ts';
import type { CertificateObserver } from './certificate-metrics.ts';
import { readPair, writePair } from './certificate-store.ts';
import { requestCertificate, type SigningClient } from './request-certificate.ts';
import { keepCertificate } from './rotation.ts';

export interface ServingPair {
  readonly certificatePem: string;
  readonly keyPem: string;
}

const SELF_SIGNED_PAIR = 'kubelet-self-signed';
const SERVER_PAIR = 'kubelet-server';
const YEAR_MS = 365 * 24 * 60 * 60 * 1000;
const REQUEST_TIMEOUT_MS = 15 * 60_000;

export interface ServingOptions {
  readonly certificateDirectory: string;
  /** The values of `--tls-cert-file` and `--tls-private-key-file`, or empty texts. */
  readonly certificateFile: string;
  readonly keyFile: string;
  readonly nodeName: string;
  readonly hostname: string;
  readonly addresses: () => readonly string[];
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The key pair that the server uses at the start. */
export async function initialServingPair(options: ServingOptions): Promise<ServingPair> {
  if (options.certificateFile !== '' && options.keyFile !== '') {
    const [certificate, key] = await Promise.all([
      readFile(options.certificateFile, 'utf8'),
      readFile(options.keyFile, 'utf8'),
    ]);
    return { certificatePem: certificate, keyPem: key };
  }
  const kept =
    (await readPair(options.certificateDirectory, SERVER_PAIR)) ??
    (await readPair(options.certificateDirectory, SELF_SIGNED_PAIR));
  if (kept !== undefined && kept.leaf.notAfterMs > options.clock.now()) return kept;
  return selfSigned(options);
}

async function selfSigned(options: ServingOptions): Promise<ServingPair> {
  const keys = await generateKey('ecdsa');
  const now = options.clock.now();
  const der = createCertificate(
    {
      subject: { commonName: `${options.hostname}@${Math.floor(now / 1000)}` },
      publicKey: keys.publicKey,
      notBeforeMs: now - 60 * 60_000,
      notAfterMs: now + YEAR_MS,
      names: { dns: [options.hostname], ip: [...options.addresses()] },
      keyUsages: ['digital signature', 'key encipherment'],
      extendedKeyUsages: ['server auth'],
    },
    { privateKey: keys.privateKey },
  );
  const pair = { certificatePem: certificatePem(der), keyPem: privateKeyPem(keys.privateKey) };
  await writePair(options.certificateDirectory, SELF_SIGNED_PAIR, pair, new Date(now));
  return pair;
}

/**
 * `--rotate-server-certificates`: requests a certificate from the cluster's signer, and a new one whenever the addresses
 * change.
 */
export function keepServingCertificate(
  options: ServingOptions & {
    readonly client: SigningClient;
    readonly random: () => number;
    readonly onRotated: (pair: ServingPair) => void;
    readonly observer?: CertificateObserver;
  },
  signal: AbortSignal,
): Promise<void> {
  const { client, clock, logger, nodeName, hostname, certificateDirectory } = options;
  return keepCertificate(
    {
      directory: certificateDirectory,
      name: SERVER_PAIR,
      clock,
      logger,
      random: options.random,
      fits: (pair) => options.addresses().every((address) => pair.leaf.names.ip.includes(address)),
      onRotated: options.onRotated,
      ...(options.observer === undefined ? {} : { observer: options.observer }),
      request: (abort) =>
        requestCertificate(
          client,
          {
            signerName: 'kubernetes.io/kubelet-serving',
            subject: { commonName: `system:node:${nodeName}`, organizations: ['system:nodes'] },
            names: { dns: [hostname], ip: [...options.addresses()] },
            usages: ['digital signature', 'server auth'],
          },
          { clock, logger, signal: abort, timeoutMs: REQUEST_TIMEOUT_MS },
        ),
    },
    signal,
  );
}
