/**
 * Follows the cluster's authority while it is replaced: `cluster-info` names every certificate that is to be trusted, the one that
 * signs now first. It is read over a connection that the authority known so far has proven, so that only who holds the old
 * one can name a new one. The kubeconfig, and the file of client authorities where it says the same, are written anew.
 */
import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { parseYaml } from '../../api/codec/yaml.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/machinery/http-client.ts';
import { newKubeconfig, writeKubeconfig } from '../../api/machinery/kubeconfig.ts';
import { replaceFile } from '../../api/machinery/replace-file.ts';
import { configMaps } from '../../api/machinery/resources.ts';

export interface AuthorityOptions {
  readonly server: string;
  /** PEM of what is trusted at the start. */
  readonly ca: string;
  readonly kubeconfig: string;
  /** Key and certificate that the kubeconfig names. */
  readonly credentialsFile: string;
  /** `--client-ca-file`; '' where there is none. */
  readonly clientCaFile: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onChange: (ca: string) => void;
}

const CHECK_MS = 10 * 60_000;
const TIMEOUT_MS = 10_000;

const blocksOf = (pem: string): string[] =>
  (pem.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? []).map((block) => block.trim());

/** A certificate of an authority that is trusted still, but signs no more: a new one is to be asked for. */
export function isOfFormerAuthority(certificatePem: string, ca: string): boolean {
  const [leaf] = blocksOf(certificatePem);
  const [, ...former] = blocksOf(ca);
  if (leaf === undefined || former.length === 0) return false;
  const certificate = new X509Certificate(leaf);
  return former.some((block) => certificate.verify(new X509Certificate(block).publicKey));
}

export class ClusterAuthority {
  readonly #options: AuthorityOptions;
  #ca: string;

  constructor(options: AuthorityOptions) {
    this.#options = options;
    this.#ca = options.ca;
  }

  get ca(): string {
    return this.#ca;
  }

  /** Runs until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    while (!signal.aborted) {
      try {
        await this.refresh();
      } catch (error) {
        // Clusters of others need not publish it, or not to everybody.
        logger.debug({ err: error instanceof Error ? error.message : error }, "the cluster's authority was not read");
      }
      await clock.sleep(CHECK_MS, signal).catch(() => undefined);
    }
  }

  /** Whether there is something new. */
  async refresh(): Promise<boolean> {
    const { clock, server } = this.#options;
    const client = new HttpClient({ server, ca: this.#ca, clock, timeoutMs: TIMEOUT_MS });
    try {
      const found = await client.get(configMaps, 'kube-public', 'cluster-info');
      const { kubeconfig = '' } = (found['data'] ?? {}) as { kubeconfig?: string };
      const { clusters } = parseYaml(kubeconfig).value as { clusters?: { cluster?: Record<string, string> }[] };
      const published = Buffer.from(clusters?.[0]?.cluster?.['certificate-authority-data'] ?? '', 'base64').toString();
      const isSame = JSON.stringify(blocksOf(published)) === JSON.stringify(blocksOf(this.#ca));
      if (blocksOf(published).length === 0 || isSame) return false;
      await this.#take(published);
      return true;
    } finally {
      client.close();
    }
  }

  async #take(ca: string): Promise<void> {
    const { clientCaFile, credentialsFile, kubeconfig, logger, onChange, server } = this.#options;
    const credentials = { certificateFile: credentialsFile, keyFile: credentialsFile };
    await writeKubeconfig(
      kubeconfig,
      newKubeconfig({ cluster: 'default-cluster', server, ca, user: 'default-auth', credentials }),
    );
    if (clientCaFile !== '') {
      const there = await readFile(clientCaFile, 'utf8');
      if (JSON.stringify(blocksOf(there)) === JSON.stringify(blocksOf(this.#ca))) {
        await replaceFile(clientCaFile, ca, { mode: 0o644 });
      }
    }
    this.#ca = ca;
    logger.info({ kubeconfig, certificates: blocksOf(ca).length }, "took up the cluster's new authorities");
    onChange(ca);
  }
}
