/**
 * Follows the cluster's CAs while they are rotated. `cluster-info` contains the new bundle, but users may be able to write it.
 * So a bundle is accepted only if a trusted CA signed it (`api/pki/ca-bundle.ts`) and no later one was accepted before. Writes
 * the kubeconfig, and also the file of client CAs if that contains the same bundle and belongs to the agent.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { readOwnFile } from '../../base/files/regular-file.ts';
import { readPem } from '../../../api/pki/pem.ts';
import { X509Certificate } from 'node:crypto';
import { access } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import { HttpClient } from '../../../api/client/http-client.ts';
import { newKubeconfig, writeKubeconfig } from '../../../api/client/kubeconfig.ts';
import type { ServerList } from '../../../api/client/server-list.ts';
import { replaceFile } from '../../../api/machinery/replace-file.ts';
import { configMaps } from '../../../api/client/resources.ts';
import { CA_BUNDLE_KEY, type CaBundle, verifyCaBundle } from '../../../api/pki/ca-bundle.ts';
import { CLUSTER_INFO, PUBLIC_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

interface AuthorityOptions {
  /** `server` of the kubeconfig. */
  readonly server: string;
  /** Further servers of the kubeconfig. */
  readonly otherServers?: readonly string[];
  /** All servers of the cluster. Requests go to the current one; without the list, they go to `server`. */
  readonly servers?: ServerList | undefined;
  /** The CAs that are trusted at the start, in PEM. */
  readonly ca: string;
  readonly kubeconfig: string;
  /** The file of the key and certificate to which the kubeconfig refers. */
  readonly credentialsFile: string;
  /** `--client-ca-file`; empty if there is none. */
  readonly clientCaFile: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onChange: (ca: string) => void;
}

const CHECK_MS = 10 * 60_000;
const TIMEOUT_MS = 10_000;

const blocksOf = (pem: string): string[] =>
  readPem(pem).flatMap(({ label, text }) => (label === 'CERTIFICATE' ? text : []));

/** Whether a CA that is still trusted but signs no more issued the certificate: the agent then requests a new one. */
export function isOfFormerAuthority(certificatePem: string, ca: string): boolean {
  const [leaf] = blocksOf(certificatePem);
  const [, ...former] = blocksOf(ca);
  if (leaf === undefined || former.length === 0) return false;
  const certificate = new X509Certificate(leaf);
  return former.some((block) => certificate.verify(new X509Certificate(block).publicKey));
}

/** The CAs that this node trusts, with the newest bundle that it has accepted. */
export class ClusterAuthority {
  readonly #options: AuthorityOptions;
  #ca: string;

  constructor(options: AuthorityOptions) {
    this.#options = options;
    this.#ca = options.ca;
  }

  /** The CAs of the cluster that are known now, as PEM. */
  get ca(): string {
    return this.#ca;
  }

  /** Reads the published bundle periodically until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    await periodically(() => this.refresh(), {
      clock,
      periodMs: CHECK_MS,
      signal,
      // Other clusters need not publish it.
      onError: (error) => logger.debug({ err: errorMessage(error) }, 'The CA bundle of the cluster was not read'),
    });
  }

  /** Reads the published bundle. Resolves to whether the trusted CAs changed. Rejects if `cluster-info` cannot be read. */
  async refresh(): Promise<boolean> {
    const { clock, server, servers } = this.#options;
    const client = new HttpClient({ server, servers, ca: this.#ca, clock, timeoutMs: TIMEOUT_MS });
    try {
      const { data } = (await client.get(configMaps, PUBLIC_NAMESPACE, CLUSTER_INFO)) as {
        data?: Readonly<Record<string, unknown>>;
      };
      const signed = data?.[CA_BUNDLE_KEY];
      return typeof signed === 'string' && (await this.take(signed));
    } finally {
      client.close();
    }
  }

  /** Accepts a signed bundle if it is trustworthy and later than the last one. Resolves to whether the trusted CAs changed. */
  async take(signed: string): Promise<boolean> {
    const { logger } = this.#options;
    const bundle = verifyCaBundle(signed, this.#ca);
    if (bundle === undefined) {
      logger.warn({}, 'The CA bundle in cluster-info is not signed by a trusted CA and is ignored');
      return false;
    }
    if (bundle.issuedAtMs <= (await this.#lastIssuedAtMs())) return false;
    const isSame = JSON.stringify(blocksOf(bundle.certificates)) === JSON.stringify(blocksOf(this.#ca));
    if (!isSame) await this.#trust(bundle);
    // Written last: after a crash in between the bundle is taken once more.
    await replaceFile(this.#issuedFile(), `${bundle.issuedAtMs}\n`, { mode: 0o600 });
    return !isSame;
  }

  #issuedFile(): string {
    return join(dirname(this.#options.credentialsFile), 'ca-bundle-issued-at');
  }

  async #lastIssuedAtMs(): Promise<number> {
    const text = await readOwnFile(this.#issuedFile()).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '0';
      throw error;
    });
    return Number(text);
  }

  async #trust({ certificates: ca }: CaBundle): Promise<void> {
    const { clientCaFile, credentialsFile, kubeconfig, logger, onChange, server, otherServers = [] } = this.#options;
    const credentials = { certificateFile: credentialsFile, keyFile: credentialsFile };
    if (clientCaFile !== '' && !(await isOfControlPlane(clientCaFile))) {
      const clientCas = await readOwnFile(clientCaFile);
      if (JSON.stringify(blocksOf(clientCas)) === JSON.stringify(blocksOf(this.#ca)))
        await replaceFile(clientCaFile, ca, { mode: 0o644 });
    }
    // Written after the file of client CAs: after a crash in between, the kubeconfig still has the old bundle, and the next
    // agent takes the new one again.
    await writeKubeconfig(
      kubeconfig,
      newKubeconfig({
        cluster: 'default-cluster',
        server,
        otherServers,
        ca,
        user: 'default-auth',
        credentials,
      }),
    );
    this.#ca = ca;
    logger.info({ kubeconfig, certificates: blocksOf(ca).length }, 'Trusting the new CA bundle of the cluster');
    onChange(ca);
  }
}

/**
 * Whether the control plane on this host owns the CA file: then the key of the CA is beside it, and only the control plane
 * writes it.
 */
async function isOfControlPlane(caFile: string): Promise<boolean> {
  return access(join(dirname(caFile), 'ca.key')).then(
    () => true,
    () => false,
  );
}
