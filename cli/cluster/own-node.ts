/**
 * Adds the node of `orchlet up` to the cluster of the same process, like any other node: by a bootstrap token if it has no
 * certificate yet.
 */
import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readPair } from '../../agent/node/certificates/certificate-store.ts';
import { CLIENT_PAIR } from '../../agent/node/certificates/client-bootstrap.ts';
import type { Client } from '../../api/client/client.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { newKubeconfig, writeKubeconfig } from '../../api/client/kubeconfig.ts';
import { secrets } from '../../api/client/resources.ts';
import { isAlreadyExists } from '../../api/meta/status-error.ts';
import { parseCertificates } from '../../api/pki/certificate.ts';
import { verifySigned } from '../../api/pki/signing.ts';
import { formatBootstrapToken, newBootstrapToken, TOKEN_NAMESPACE, tokenSecret } from './bootstrap-token.ts';

/** The control plane of this process, as its node needs it. `ca` is PEM. */
export interface OwnPlane {
  readonly ca: string;
  readonly port: number;
  readonly client: Client;
}

const TOKEN_LIFE_MS = 3_600_000;

/**
 * Returns the paths of the agent's two kubeconfigs. If the agent needs a certificate, writes the second one, with a new
 * bootstrap token, first.
 */
export async function admitOwnNode(
  agentDirectory: string,
  plane: OwnPlane,
): Promise<{ readonly kubeconfig: string; readonly bootstrapKubeconfig: string }> {
  const bootstrapKubeconfig = join(agentDirectory, 'bootstrap.kubeconfig');
  const server = `https://127.0.0.1:${plane.port}`;
  const kubeconfig = join(agentDirectory, 'kubeconfig');
  await forgetOtherServer(kubeconfig, server, plane.ca);
  if (!(await hasCertificate(kubeconfig, join(agentDirectory, 'pki'), plane.ca))) {
    const token = await bootstrapToken(plane.client);
    await writeKubeconfig(
      bootstrapKubeconfig,
      newKubeconfig({
        cluster: 'default-cluster',
        server,
        ca: plane.ca,
        user: 'tls-bootstrap-token-user',
        credentials: { token },
      }),
    );
  }
  return { kubeconfig, bootstrapKubeconfig };
}

/** Whether the agent has a kubeconfig, and a certificate of this CA that is valid for another hour. */
async function hasCertificate(kubeconfig: string, directory: string, ca: string): Promise<boolean> {
  if (!existsSync(kubeconfig)) return false;
  const pair = await readPair(directory, CLIENT_PAIR);
  if (pair === undefined || pair.leaf.notAfterMs < systemClock.now() + TOKEN_LIFE_MS) return false;
  return parseCertificates(ca).some(({ publicKey }) => verifySigned(pair.leaf.parts, publicKey));
}

/** Removes the kubeconfig if the port or the CA changed since the last start. The bootstrap then writes a new one. */
async function forgetOtherServer(path: string, server: string, ca: string): Promise<void> {
  const text = await readFile(path, 'utf8').catch(() => '');
  const isSame = text.includes(`server: ${server}\n`) && text.includes(Buffer.from(ca).toString('base64'));
  if (text !== '' && !isSame) await rm(path, { force: true });
}

async function bootstrapToken(client: Client): Promise<string> {
  const token = newBootstrapToken();
  const secret = tokenSecret(token, {
    description: 'for the agent of orchlet up',
    groups: ['system:bootstrappers:kubeadm:default-node-token'],
    usages: ['authentication'],
    expiresAtMs: systemClock.now() + TOKEN_LIFE_MS,
  });
  try {
    await client.create(secrets, TOKEN_NAMESPACE, secret);
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
    return await bootstrapToken(client);
  }
  return formatBootstrapToken(token);
}
