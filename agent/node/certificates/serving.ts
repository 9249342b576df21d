/** Provides the certificate of the agent's server: from flags, from the cluster's signer, or self-signed. */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { certificatePem, createCertificate } from '../../../api/pki/certificate.ts';
import { generateKey, type KeyPair, privateKeyPem } from '../../../api/pki/signing.ts';
import { lifeBegins } from '../../../api/pki/validity.ts';
import type { CertificateObserver } from './certificate-metrics.ts';
import { readPair, type StoredPair, writePair } from './certificate-store.ts';
import { CERTIFICATE_WAIT_MS, requestCertificate, type SigningClient } from './request-certificate.ts';
import { keepCertificate } from './rotation.ts';
import { NODES_GROUP, NODE_USER_PREFIX } from '../../../api/meta/system-users.ts';
import { NODE_SERVING_SIGNER } from '../../../api/pki/signer-names.ts';

/** A certificate chain with its key, both as PEM. */
export interface ServingPair {
  readonly certificatePem: string;
  readonly keyPem: string;
}

const SELF_SIGNED_PAIR = 'kubelet-self-signed';
const SERVER_PAIR = 'kubelet-server';
const YEAR_MS = 365 * 24 * 60 * 60 * 1000;

interface ServingOptions {
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

/**
 * Resolves to the certificate and key that the server uses at the start: those of the flags, else a stored pair that is
 * valid, else a new self-signed pair. Rejects if a file of the flags or of a stored pair cannot be read.
 */
export async function initialServingPair(options: ServingOptions): Promise<ServingPair> {
  if (options.certificateFile !== '' && options.keyFile !== '') {
    const [certificate, key] = await Promise.all([
      readFile(options.certificateFile, 'utf8'),
      readFile(options.keyFile, 'utf8'),
    ]);
    return { certificatePem: certificate, keyPem: key };
  }
  const stored = (await validPair(options, SERVER_PAIR)) ?? (await validPair(options, SELF_SIGNED_PAIR));
  if (stored !== undefined) return stored;
  const fresh = await selfSigned(options, await generateKey('ecdsa'));
  await writePair(options.certificateDirectory, SELF_SIGNED_PAIR, fresh, new Date(options.clock.now()));
  return fresh;
}

/** Reads a stored pair. Resolves to `undefined` if there is none, or if its certificate has expired. */
async function validPair(
  { certificateDirectory, clock }: Pick<ServingOptions, 'certificateDirectory' | 'clock'>,
  name: string,
): Promise<StoredPair | undefined> {
  const pair = await readPair(certificateDirectory, name);
  return pair !== undefined && pair.leaf.notAfterMs > clock.now() ? pair : undefined;
}

async function selfSigned(options: ServingOptions, keys: KeyPair): Promise<ServingPair> {
  const now = options.clock.now();
  const der = createCertificate(
    {
      subject: { commonName: `${options.hostname}@${Math.floor(now / 1000)}` },
      publicKey: keys.publicKey,
      notBeforeMs: now - 60 * 60_000,
      notAfterMs: lifeBegins(now) + YEAR_MS,
      names: { dns: [options.hostname], ip: [...options.addresses()] },
      keyUsages: ['digital signature', 'key encipherment'],
      extendedKeyUsages: ['server auth'],
    },
    { privateKey: keys.privateKey },
  );
  return { certificatePem: certificatePem(der), keyPem: privateKeyPem(keys.privateKey) };
}

interface KeepingOptions extends ServingOptions {
  readonly random: () => number;
  readonly onRotated: (pair: ServingPair) => void;
}

/**
 * Renews the self-signed certificate when its addresses change and before it expires. The key stays, because the API server
 * knows this node by it. Resolves at once if the flags name a certificate, or if that of the cluster's signer is valid.
 */
export async function keepSelfSigned(options: KeepingOptions, signal: AbortSignal): Promise<void> {
  const { certificateDirectory: directory, clock, logger, random, onRotated } = options;
  const isGiven = options.certificateFile !== '' && options.keyFile !== '';
  if (isGiven || (await validPair(options, SERVER_PAIR)) !== undefined) return;
  await keepCertificate(
    {
      ...{ directory, name: SELF_SIGNED_PAIR, clock, logger, random, onRotated },
      fits: fitsAddresses(options),
      async request() {
        const stored = await readPair(directory, SELF_SIGNED_PAIR);
        if (stored === undefined) return selfSigned(options, await generateKey('ecdsa'));
        const privateKey = createPrivateKey(stored.keyPem);
        return selfSigned(options, { privateKey, publicKey: createPublicKey(privateKey) });
      },
    },
    signal,
  );
}

const fitsAddresses =
  ({ addresses }: Pick<ServingOptions, 'addresses'>) =>
  (pair: StoredPair): boolean =>
    addresses().every((address) => pair.leaf.names.ip.includes(address));

/**
 * Implements `--rotate-server-certificates`: keeps a certificate of the cluster's signer that is valid for the node's
 * addresses.
 */
export function keepServingCertificate(
  options: KeepingOptions & {
    readonly client: SigningClient;
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
      fits: fitsAddresses(options),
      onRotated: options.onRotated,
      ...(options.observer === undefined ? {} : { observer: options.observer }),
      request: (abort) =>
        requestCertificate(
          client,
          {
            signerName: NODE_SERVING_SIGNER,
            subject: { commonName: `${NODE_USER_PREFIX}${nodeName}`, organizations: [NODES_GROUP] },
            names: { dns: [hostname], ip: [...options.addresses()] },
            usages: ['digital signature', 'server auth'],
          },
          { clock, logger, signal: abort, timeoutMs: CERTIFICATE_WAIT_MS },
        ),
    },
    signal,
  );
}
