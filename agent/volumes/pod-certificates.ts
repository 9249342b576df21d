/**
 * Certificates of pods for projected volumes. The node creates a key and a request, a signer issues the certificate, and both
 * are replaced when the signer's refresh time has come. Each refresh of the volume takes one step, and a certificate is used
 * until its successor exists or the signer refuses one. Keys are only in memory, so a restarted agent requests new
 * certificates.
 */
import { generateKeyPair, type KeyObject } from 'node:crypto';
import { promisify } from 'node:util';
import type { Client } from '../../api/client/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { podCertificateRequests, serviceAccounts } from '../../api/client/resources.ts';
import { SerialQueue } from '../../api/machinery/serial-queue.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { createCsr } from '../../api/pki/certificate-request.ts';
import { readPem, writePem } from '../../api/pki/pem.ts';
import type { KeyPair } from '../../api/pki/signing.ts';
import { quoteText } from '../../api/meta/quote.ts';
import type { PodEventRecorder } from '../base/model/pod-events.ts';
import type { Pod, Volume } from '../base/model/pod.ts';

/** A projected source `podCertificate`. */
export type PodCertificateSource = NonNullable<
  NonNullable<NonNullable<Volume['projected']>['sources']>[number]['podCertificate']
>;

/** The private key and the certificates, both as PEM. */
export interface CredentialBundle {
  readonly key: string;
  readonly chain: string;
}

interface PodCertificatesOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly events: PodEventRecorder;
  readonly node: () => { readonly name: string; readonly uid: string };
  /** Returns a number from 0 to 1, which spreads the requests of many pods. */
  readonly random: () => number;
}

interface PendingRequest {
  readonly name: string;
  readonly key: string;
}

interface Issued extends CredentialBundle {
  readonly renewAtMs: number;
  readonly expiresAtMs: number;
  hasReportedOverdue: boolean;
  hasReportedExpired: boolean;
}

interface Credential {
  issued: Issued | undefined;
  pending: PendingRequest | undefined;
  /** The error of a request that the signer has denied or failed. It is final: no other request is created. */
  refused: string | undefined;
  /** Steps of one credential must not overlap. */
  readonly steps: SerialQueue;
}

interface RequestStatus {
  readonly conditions?: readonly { readonly type: string; readonly reason?: string; readonly message?: string }[];
  readonly certificateChain?: string;
  readonly beginRefreshAt?: string;
  readonly notAfter?: string;
}

const DEFAULT_LIFETIME_SECONDS = 86_400;
const JITTER_MS = 5 * 60_000;
const OVERDUE_MS = 10 * 60_000;
/** The delays of the first polls, so that a pod need not wait for the next refresh if the signer responds soon. */
const FIRST_POLLS_MS = [100, 300, 900];

const generate = promisify(generateKeyPair);
const KEY_GENERATORS: ReadonlyMap<string, () => Promise<{ publicKey: KeyObject; privateKey: KeyObject }>> = new Map(
  Object.entries({
    RSA3072: () => generate('rsa', { modulusLength: 3072 }),
    RSA4096: () => generate('rsa', { modulusLength: 4096 }),
    ECDSAP256: () => generate('ec', { namedCurve: 'prime256v1' }),
    ECDSAP384: () => generate('ec', { namedCurve: 'secp384r1' }),
    ECDSAP521: () => generate('ec', { namedCurve: 'secp521r1' }),
    ED25519: () => generate('ed25519'),
  }),
);

/** Owns keys, requests and certificates by pod and source. */
export class PodCertificates {
  readonly #options: PodCertificatesOptions;
  readonly #credentials = new Map<string, Credential>();

  constructor(options: PodCertificatesOptions) {
    this.#options = options;
  }

  /**
   * Returns the key and the certificates for the source with this index in the volume. Throws while there is no certificate
   * yet, and always after the signer has denied or failed the request.
   */
  bundle(pod: Pod, volume: string, index: number, source: PodCertificateSource): Promise<CredentialBundle> {
    const id = `${pod.metadata.uid}/${volume}/${index}`;
    let credential = this.#credentials.get(id);
    if (credential === undefined) {
      credential = { issued: undefined, pending: undefined, refused: undefined, steps: new SerialQueue() };
      this.#credentials.set(id, credential);
    }
    const current = credential;
    return current.steps.run(() => this.#step(pod, current, source));
  }

  forgetPod(podUid: string): void {
    for (const id of this.#credentials.keys()) if (id.startsWith(`${podUid}/`)) this.#credentials.delete(id);
  }

  async #step(pod: Pod, credential: Credential, source: PodCertificateSource): Promise<CredentialBundle> {
    const { clock } = this.#options;
    if (credential.refused !== undefined) throw new Error(credential.refused);
    const { issued } = credential;
    if (issued !== undefined && clock.now() < issued.renewAtMs) return issued;
    try {
      const isNew = credential.pending === undefined;
      credential.pending ??= await this.#createRequest(pod, source);
      await this.#readRequest(pod, credential);
      for (const waitMs of isNew && issued === undefined ? FIRST_POLLS_MS : []) {
        if (credential.pending === undefined) break;
        await clock.sleep(waitMs);
        await this.#readRequest(pod, credential);
      }
    } catch (error) {
      // A certificate whose renewal fails is used further, also after it has expired.
      if (credential.refused !== undefined || issued === undefined) throw error;
      this.#reportAge(pod, issued);
      return issued;
    }
    if (credential.issued === undefined) throw new Error('credential bundle is not issued yet');
    if (credential.issued === issued) this.#reportAge(pod, issued);
    return credential.issued;
  }

  async #createRequest(pod: Pod, source: PodCertificateSource): Promise<PendingRequest> {
    const { client, node } = this.#options;
    const { namespace, name, uid } = pod.metadata;
    const account = pod.spec.serviceAccountName ?? 'default';
    const generateKeys = KEY_GENERATORS.get(source.keyType);
    if (generateKeys === undefined) throw new Error(`while generating keypair: unknown key type "${source.keyType}"`);
    const keys: KeyPair = await generateKeys();
    const { metadata } = await client.get(serviceAccounts, namespace, account);
    const csr = readPem(createCsr({ subject: {} }, keys))[0]?.der ?? Buffer.alloc(0);
    const created = await client.create(podCertificateRequests, namespace, {
      apiVersion: 'certificates.k8s.io/v1beta1',
      kind: podCertificateRequests.kind,
      metadata: {
        generateName: 'req-',
        namespace,
        ownerReferences: [{ apiVersion: 'core/v1', kind: 'Pod', name, uid }],
      },
      spec: {
        signerName: source.signerName,
        podName: name,
        podUID: uid,
        serviceAccountName: account,
        serviceAccountUID: metadata.uid ?? '',
        nodeName: node().name,
        nodeUID: node().uid,
        maxExpirationSeconds: source.maxExpirationSeconds ?? DEFAULT_LIFETIME_SECONDS,
        stubPKCS10Request: csr.toString('base64'),
        ...(source.userAnnotations === undefined ? {} : { unverifiedUserAnnotations: source.userAnnotations }),
      },
    } satisfies KubeObject);
    const key = keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    return { name: created.metadata.name ?? '', key };
  }

  /**
   * Reads the state of the pending request, and stores an issued certificate. Throws if the request was denied, has failed or
   * cannot be read.
   */
  async #readRequest(pod: Pod, credential: Credential): Promise<void> {
    const { client, clock, random } = this.#options;
    const { namespace } = pod.metadata;
    const { pending } = credential;
    if (pending === undefined) return;
    let status: RequestStatus;
    try {
      status = ((await client.get(podCertificateRequests, namespace, pending.name))['status'] ?? {}) as RequestStatus;
    } catch (error) {
      // The request was deleted, so the next refresh creates another one.
      if (isNotFound(error)) credential.pending = undefined;
      throw error;
    }
    const end = status.conditions?.find(({ type }) => ['Issued', 'Denied', 'Failed'].includes(type));
    if (end === undefined) return;
    credential.pending = undefined;
    if (end.type !== 'Issued') this.#refuse(pod, credential, `${namespace}/${pending.name}`, end);
    const now = clock.now();
    credential.issued = {
      key: pending.key,
      chain: cleanChain(status.certificateChain ?? ''),
      renewAtMs: timeOf(status.beginRefreshAt, now) + Math.floor(random() * JITTER_MS),
      expiresAtMs: timeOf(status.notAfter, now),
      hasReportedOverdue: false,
      hasReportedExpired: false,
    };
  }

  #refuse(
    pod: Pod,
    credential: Credential,
    request: string,
    { type, reason = '', message = '' }: NonNullable<RequestStatus['conditions']>[number],
  ): never {
    const how = type === 'Denied' ? 'denied' : 'failed';
    const why = `reason=${quoteText(reason)}`;
    const outcome = type === 'Denied' ? 'was denied' : 'failed';
    const text = `PodCertificateRequest ${request} ${outcome}, ${why}, message=${quoteText(message)}`;
    this.#options.events.event(pod, 'Warning', type, text);
    credential.refused = `PodCertificateRequest was permanently ${how}: ${why} message=${quoteText(message)}`;
    throw new Error(credential.refused);
  }

  #reportAge(pod: Pod, issued: Issued): void {
    const { clock, events } = this.#options;
    if (clock.now() > issued.renewAtMs + OVERDUE_MS && !issued.hasReportedOverdue) {
      events.event(pod, 'Warning', 'CertificateOverdueForRefresh', 'PodCertificate refresh overdue');
      issued.hasReportedOverdue = true;
    }
    if (clock.now() > issued.expiresAtMs && !issued.hasReportedExpired) {
      events.event(pod, 'Warning', 'CertificateExpired', 'PodCertificate expired');
      issued.hasReportedExpired = true;
    }
  }
}

function timeOf(text: string | undefined, otherwise: number): number {
  const moment = Date.parse(text ?? '');
  return Number.isNaN(moment) ? otherwise : moment;
}

/** Returns the PEM blocks of the chain without the text around them, in a form that every PEM parser accepts. */
function cleanChain(chain: string): string {
  return readPem(chain)
    .map(({ label, der }) => writePem(label, der))
    .join('');
}
