/** Creates the node's kubeconfig from a bootstrap kubeconfig. */
import { stat } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { HttpClient } from '../../../api/client/http-client.ts';
import { loadKubeconfig, newKubeconfig, serverAccess, writeKubeconfig } from '../../../api/client/kubeconfig.ts';
import { ServerList } from '../../../api/client/server-list.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { currentPath, readPair, writePair } from './certificate-store.ts';
import { CERTIFICATE_WAIT_MS, type CertificateTemplate, requestCertificate } from './request-certificate.ts';
import { NODES_GROUP, NODE_USER_PREFIX } from '../../../api/meta/system-users.ts';
import { NODE_CLIENT_SIGNER } from '../../../api/pki/signer-names.ts';

/** The name of the node's client certificate in the certificate directory. */
export const CLIENT_PAIR = 'kubelet-client';

interface BootstrapOptions {
  readonly bootstrapKubeconfig: string;
  readonly kubeconfig: string;
  readonly certificateDirectory: string;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/**
 * Returns the template of the certificate by which the node authenticates: user `system:node:NAME` of the group `system:nodes`.
 */
export function nodeClientTemplate(nodeName: string): CertificateTemplate {
  return {
    signerName: NODE_CLIENT_SIGNER,
    subject: { commonName: `${NODE_USER_PREFIX}${nodeName}`, organizations: [NODES_GROUP] },
    usages: ['digital signature', 'client auth'],
  };
}

const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;

/**
 * Requests a client certificate with the bootstrap kubeconfig and writes the kubeconfig of the node, unless the node has
 * valid credentials. Retries until the signal aborts, and then rejects. Also rejects if an existing kubeconfig or
 * certificate cannot be read.
 */
export async function bootstrapClient(options: BootstrapOptions): Promise<void> {
  const { kubeconfig, certificateDirectory, clock, logger, signal } = options;
  if (await hasValidCredentials(options)) return;
  const backoff = new Backoff({ firstMs: FIRST_RETRY_MS, longestMs: MAX_RETRY_MS });
  for (;;) {
    try {
      const { pair, access } = await requestByBootstrap(options);
      await writePair(certificateDirectory, CLIENT_PAIR, pair, new Date(clock.now()));
      const file = currentPath(certificateDirectory, CLIENT_PAIR);
      await writeKubeconfig(
        kubeconfig,
        newKubeconfig({
          cluster: 'default-cluster',
          server: access.server,
          otherServers: access.otherServers,
          ca: access.ca ?? '',
          user: 'default-auth',
          credentials: { certificateFile: file, keyFile: file },
        }),
      );
      logger.info({ kubeconfig }, 'The node has its own credentials');
      return;
    } catch (error) {
      if (signal.aborted) throw error;
      logger.warn({ err: errorMessage(error) }, 'Cannot bootstrap the credentials of the node yet, retrying');
      await clock.sleep(backoff.next(), signal);
    }
  }
}

/** Requests a certificate with the bootstrap credentials, which it reads again for each request. */
export async function requestByBootstrap(
  options: Pick<BootstrapOptions, 'bootstrapKubeconfig' | 'nodeName' | 'clock' | 'logger' | 'signal'>,
): Promise<{
  readonly pair: { readonly certificatePem: string; readonly keyPem: string };
  readonly access: Awaited<ReturnType<typeof serverAccess>>;
}> {
  const { clock, logger, signal, nodeName } = options;
  const access = await serverAccess(await loadKubeconfig(options.bootstrapKubeconfig), { clock });
  const servers = new ServerList([access.server, ...access.otherServers], clock);
  const client = new HttpClient({ ...access, servers, clock });
  try {
    const template = nodeClientTemplate(nodeName);
    return {
      access,
      pair: await requestCertificate(client, template, { clock, logger, signal, timeoutMs: CERTIFICATE_WAIT_MS }),
    };
  } finally {
    client.close();
  }
}

async function hasValidCredentials(options: BootstrapOptions): Promise<boolean> {
  // A file whose status cannot be read counts as missing.
  const found = await stat(options.kubeconfig).catch(() => undefined);
  if (found === undefined) return false;
  const pair = await readPair(options.certificateDirectory, CLIENT_PAIR);
  if (pair === undefined) {
    // An administrator has written this kubeconfig (with a token or an embedded certificate), so it is used unchanged.
    const existing = await loadKubeconfig(options.kubeconfig);
    const user = [...existing.users.values()][0]?.value as { 'client-certificate'?: string } | undefined;
    return user?.['client-certificate'] !== currentPath(options.certificateDirectory, CLIENT_PAIR);
  }
  return pair.leaf.notAfterMs > options.clock.now();
}
