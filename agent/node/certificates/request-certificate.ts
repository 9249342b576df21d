/**
 * Requests a certificate from the API: creates a key and a CertificateSigningRequest, and waits for its approval and the
 * certificate.
 */
import { type KeyObject, X509Certificate } from 'node:crypto';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { HttpClient } from '../../../api/client/http-client.ts';
import { certificateSigningRequests } from '../../../api/client/resources.ts';
import { readAll } from '../../../api/client/response-body.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { isNotFound, isStatusError } from '../../../api/meta/status-error.ts';
import { createCsr } from '../../../api/pki/certificate-request.ts';
import type { AlternativeNames, DistinguishedName } from '../../../api/pki/names.ts';
import { readPem } from '../../../api/pki/pem.ts';
import { generateKey, privateKeyPem } from '../../../api/pki/signing.ts';
import { NODE_CLIENT_SIGNER, NODE_SERVING_SIGNER } from '../../../api/pki/signer-names.ts';

/** What a certificate is requested for. */
export interface CertificateTemplate {
  readonly signerName: string;
  readonly subject: DistinguishedName;
  readonly names?: AlternativeNames;
  readonly usages: readonly string[];
  readonly expirationSeconds?: number;
}

interface RequestStatus {
  readonly certificate?: string;
  readonly conditions?: readonly {
    readonly type: string;
    readonly status?: string;
    readonly reason?: string;
    readonly message?: string;
  }[];
}

/** The operations of a client by which a certificate is requested. */
export type SigningClient = Pick<HttpClient, 'create' | 'get' | 'raw'>;

/**
 * The first minor version of Kubernetes whose approvers and signers accept requests of nodes without the usage `key
 * encipherment`, which has no meaning for the keys of this agent.
 */
const FIRST_WITHOUT_ENCIPHERMENT = 25;
const NODE_SIGNERS = [NODE_CLIENT_SIGNER, NODE_SERVING_SIGNER];

/** How long an agent waits for the approval and the certificate of a request: the kubelet's `certificateWaitTimeout`. */
export const CERTIFICATE_WAIT_MS = 15 * 60_000;
const FIRST_POLL_MS = 100;
const MAX_POLL_MS = 10_000;

/**
 * Resolves to the certificate and its key. Rejects if the request is denied, fails, is deleted or has no certificate within
 * `timeoutMs`, if the certificate is for another key, and if the signal aborts.
 */
export async function requestCertificate(
  client: SigningClient,
  template: CertificateTemplate,
  options: { readonly clock: Clock; readonly logger: Logger; readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<{ certificatePem: string; keyPem: string }> {
  const { clock, logger, signal, timeoutMs } = options;
  const keys = await generateKey('ecdsa');
  const request = createCsr(
    { subject: template.subject, ...(template.names === undefined ? {} : { names: template.names }) },
    keys,
  );
  const created = await client.create(certificateSigningRequests, '', {
    apiVersion: 'certificates.k8s.io/v1',
    kind: 'CertificateSigningRequest',
    metadata: { generateName: 'csr-' },
    spec: {
      request: Buffer.from(request).toString('base64'),
      signerName: template.signerName,
      usages: await usagesFor(client, template, signal),
      ...(template.expirationSeconds === undefined ? {} : { expirationSeconds: template.expirationSeconds }),
    },
  } satisfies KubeObject);
  const name = created.metadata.name ?? '';
  logger.info({ request: name, signer: template.signerName }, 'Requested a certificate, waiting for its approval');
  const deadline = clock.monotonic() + timeoutMs;
  let waitMs = FIRST_POLL_MS;
  while (clock.monotonic() < deadline) {
    await clock.sleep(waitMs, signal);
    waitMs = Math.min(waitMs * 1.5, MAX_POLL_MS);
    let status: RequestStatus;
    try {
      status = ((await client.get(certificateSigningRequests, '', name, { signal }))['status'] ?? {}) as RequestStatus;
    } catch (error) {
      // The request remains while the API server is unreachable. A new one would need another approval.
      if (signal.aborted || isNotFound(error)) throw error;
      logger.warn({ request: name, err: error }, 'Cannot read a certificate signing request, retrying');
      continue;
    }
    const refusal = status.conditions?.find((entry) => entry.type === 'Denied' || entry.type === 'Failed');
    if (refusal !== undefined)
      throw new Error(
        `certificate signing request ${name} was ${refusal.type.toLowerCase()}: ${refusal.reason ?? ''} ${refusal.message ?? ''}`.trimEnd(),
      );
    if (status.certificate !== undefined && status.certificate !== '') {
      return {
        certificatePem: certificatesFor(keys.privateKey, Buffer.from(status.certificate, 'base64').toString()),
        keyPem: privateKeyPem(keys.privateKey),
      };
    }
  }
  throw new Error(
    `certificate signing request ${name} was not answered within ${Math.round(timeoutMs / 1000)} s: approve it with 'kubectl certificate approve ${name}'`,
  );
}

/**
 * Returns the certificates of the answer, the first of which must be for the requested key. A signer must not make the agent
 * store another key, or a pair with which its server does not start.
 */
function certificatesFor(key: KeyObject, answer: string): string {
  const blocks = readPem(answer).filter(({ label }) => label === 'CERTIFICATE');
  const [leaf] = blocks;
  if (leaf === undefined) throw new Error('the signer issued no certificate');
  if (!new X509Certificate(leaf.text).checkPrivateKey(key))
    throw new Error('the signer issued a certificate for another key');
  return blocks.map(({ text }) => `${text}\n`).join('');
}

async function usagesFor(client: SigningClient, template: CertificateTemplate, signal: AbortSignal): Promise<string[]> {
  if (!NODE_SIGNERS.includes(template.signerName) || (await isRecent(client, signal))) return [...template.usages];
  return ['key encipherment', ...template.usages];
}

/**
 * Whether the API server is new enough for certificates without `key encipherment`. A server that hides its version does not
 * count as new, because every server accepts the older usage.
 */
async function isRecent(client: SigningClient, signal: AbortSignal): Promise<boolean> {
  try {
    const { body } = await client.raw({ method: 'GET', path: '/version', signal });
    const version = JSON.parse((await readAll(body)).toString('utf8')) as { major?: string; minor?: string };
    // Some distributions write "21+".
    const [major, minor] = [Number.parseInt(version.major ?? '', 10), Number.parseInt(version.minor ?? '', 10)];
    return major > 1 || (major === 1 && minor >= FIRST_WITHOUT_ENCIPHERMENT);
  } catch (error) {
    if (isStatusError(error) || error instanceof SyntaxError) return false;
    throw error;
  }
}
