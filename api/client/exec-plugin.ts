/**
 * Gets credentials from an external command (client.authentication.k8s.io), and keeps them until they expire or the server
 * refuses them.
 */
import { stringifyJson } from '../codec/json.ts';
import { dirname, isAbsolute, resolve } from 'node:path';
import type { ClientCredentials, PresentedCredentials } from './client-credentials.ts';
import type { Clock } from '../machinery/clock.ts';
import { programOutput } from '../machinery/program-output.ts';

/** The field `exec` of a user of a kubeconfig. */
export interface ExecConfig {
  readonly apiVersion?: string;
  readonly command?: string;
  readonly args?: readonly string[] | null;
  readonly env?: readonly { readonly name: string; readonly value: string }[] | null;
  readonly installHint?: string;
  readonly provideClusterInfo?: boolean;
  readonly interactiveMode?: string;
}

/** The `spec.cluster` of the ExecCredential that the plugin reads. */
export interface ExecCluster {
  readonly server: string;
  readonly 'tls-server-name'?: string;
  readonly 'insecure-skip-tls-verify'?: boolean;
  readonly 'certificate-authority-data'?: string;
  readonly 'proxy-url'?: string;
  readonly config?: unknown;
}

interface ExecPluginOptions {
  readonly config: ExecConfig;
  readonly cluster: ExecCluster;
  /** The path of the kubeconfig file. A relative command that contains a slash is relative to its directory. */
  readonly kubeconfigPath?: string;
  readonly clock: Clock;
  /** Whether standard input is a terminal on which the plugin may prompt. */
  readonly interactive?: boolean;
  readonly env?: Readonly<Record<string, string | undefined>>;
}

const GROUP = 'client.authentication.k8s.io';
const VERSIONS = [`${GROUP}/v1`, `${GROUP}/v1beta1`];
const MAX_OUTPUT_BYTES = 1 << 20;
/** How long a plugin may run if no user can answer it. Requests wait for it. client-go has no such limit. */
const TIMEOUT_MS = 120_000;

interface ExecCredential {
  readonly kind?: string;
  readonly apiVersion?: string;
  readonly status?: {
    readonly expirationTimestamp?: string;
    readonly token?: string;
    readonly clientCertificateData?: string;
    readonly clientKeyData?: string;
  };
}

/** Creates the credentials that a plugin of a kubeconfig provides. Throws if the configuration is invalid. */
export function execCredentials(options: ExecPluginOptions): ClientCredentials {
  const interactive = checkConfig(options);
  let cached: PresentedCredentials | undefined;
  let expiresAt = Number.POSITIVE_INFINITY;
  let running: Promise<PresentedCredentials> | undefined;
  const refresh = async (): Promise<PresentedCredentials> => {
    const status = await runPlugin(options, interactive);
    cached = {
      ...((status.token ?? '') === '' ? {} : { authorization: `Bearer ${status.token}` }),
      ...((status.clientCertificateData ?? '') === '' ? {} : { certificate: status.clientCertificateData }),
      ...((status.clientKeyData ?? '') === '' ? {} : { key: status.clientKeyData }),
    };
    expiresAt =
      status.expirationTimestamp === undefined ? Number.POSITIVE_INFINITY : Date.parse(status.expirationTimestamp);
    return cached;
  };
  return {
    async current() {
      if (cached !== undefined && options.clock.now() < expiresAt) return cached;
      running ??= refresh().finally(() => (running = undefined));
      return running;
    },
    refused() {
      cached = undefined;
      return true;
    },
  };
}

/** Returns whether the plugin gets standard input. Throws for a configuration that client-go refuses. */
function checkConfig({ config, interactive = false }: ExecPluginOptions): boolean {
  const { apiVersion = '', command = '', interactiveMode = '' } = config;
  if (command === '') throw new Error('exec plugin: command must be specified to use exec authentication plugin');
  if (!VERSIONS.includes(apiVersion)) throw new Error(`exec plugin: invalid apiVersion "${apiVersion}"`);
  switch (interactiveMode) {
    case 'Never':
      return false;
    case 'IfAvailable':
      return interactive;
    case 'Always':
      if (!interactive)
        throw new Error(`exec plugin cannot support interactive mode: standard input is not a terminal`);
      return true;
    case '':
      if (apiVersion === VERSIONS[0]) {
        throw new Error('exec plugin: interactiveMode must be specified to use exec authentication plugin');
      }
      return interactive;
    default:
      throw new Error(`exec plugin: invalid interactiveMode "${interactiveMode}"`);
  }
}

/** Runs the plugin. Rejects if it fails, or prints no valid ExecCredential. */
async function runPlugin(
  options: ExecPluginOptions,
  interactive: boolean,
): Promise<NonNullable<ExecCredential['status']>> {
  const { config, cluster } = options;
  const info = {
    kind: 'ExecCredential',
    apiVersion: config.apiVersion,
    spec: { ...(config.provideClusterInfo === true ? { cluster } : {}), interactive },
  };
  const output = await run(options, stringifyJson(info), interactive);
  const decoding = `exec: executable ${config.command}: decoding stdout`;
  let credential: ExecCredential;
  try {
    credential = JSON.parse(output) as ExecCredential;
  } catch (error) {
    throw new Error(`${decoding}: the plugin did not print an ExecCredential as JSON`, { cause: error });
  }
  if (credential.kind !== 'ExecCredential')
    throw new Error(`${decoding}: kind is "${credential.kind ?? ''}", not ExecCredential`);
  if (credential.apiVersion !== config.apiVersion) {
    throw new Error(
      `exec plugin is configured to use API version ${config.apiVersion}, plugin returned version ${credential.apiVersion}`,
    );
  }
  const status = credential.status;
  if (status === undefined) throw new Error("exec plugin didn't return a status field");
  const { token = '', clientCertificateData: certificate = '', clientKeyData: key = '' } = status;
  if (token === '' && certificate === '' && key === '') {
    throw new Error("exec plugin didn't return a token or cert/key pair");
  }
  if ((certificate === '') !== (key === '')) throw new Error('exec plugin returned only certificate or key, not both');
  const { expirationTimestamp } = status;
  if (expirationTimestamp !== undefined && Number.isNaN(Date.parse(expirationTimestamp)))
    throw new Error(`${decoding}: expirationTimestamp "${expirationTimestamp}" is not an RFC 3339 time`);
  return status;
}

async function run(options: ExecPluginOptions, info: string, interactive: boolean): Promise<string> {
  const { config, clock, kubeconfigPath, env = process.env } = options;
  let command = config.command ?? '';
  if (command.includes('/') && !isAbsolute(command) && kubeconfigPath !== undefined) {
    command = resolve(dirname(kubeconfigPath), command);
  }
  const added = Object.fromEntries((config.env ?? []).map(({ name, value }) => [name, value]));
  const what = `exec: executable ${config.command}`;
  const { code, signal, output } = await programOutput({
    ...{ command, what, clock, args: config.args ?? [], errors: 'inherit' },
    env: { ...env, ...added, KUBERNETES_EXEC_INFO: info },
    input: interactive ? 'inherit' : 'ignore',
    largestOutputBytes: MAX_OUTPUT_BYTES,
    ...(interactive ? {} : { timeoutMs: TIMEOUT_MS }),
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
    const hint = config.installHint === undefined ? '' : `\n\n${config.installHint}`;
    throw new Error(
      `${what} not found\n\nIt looks like you are trying to use a client-go credential plugin that is not installed.${hint}`,
      { cause: error },
    );
  });
  if (code !== 0) throw new Error(`${what} failed with ${code === null ? `signal ${signal}` : `exit code ${code}`}`);
  return output;
}
