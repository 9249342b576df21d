/** Builds the agent's server from the options: certificates, authentication, authorization and ports. */
import type { Logger } from '../../api/component/logger.ts';
import type { Verbosity } from '../../api/component/logging.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import {
  initialServingPair,
  keepSelfSigned,
  keepServingCertificate,
  type ServingPair,
} from '../node/certificates/serving.ts';
import type { EffectiveOptions, Origin } from '../options/config/effective-options.ts';
import type { FeatureGates } from '../options/config/feature-gates.ts';
import type { PodHost } from '../server/pod-host.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import type { LocalVolumes } from '../volumes/local-volumes.ts';
import type { SubmittedPods } from '../sources/submitted-source.ts';
import { createAccess } from '../server/access.ts';
import { followClientCa } from '../server/client-ca.ts';
import { readClientCa } from '../server/client-trust.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { AgentRegistries } from './registries.ts';
import type { StatisticsPages } from '../resources/statistics/statistics-pages.ts';
import type { SystemLogsOptions } from '../server/system-logs.ts';
import type { Zpages } from '../server/zpages.ts';
import { type AgentServer, type AgentServerOptions, startAgentServer } from '../server/server.ts';
import { cipherName, groupNames } from '../options/tls-names.ts';
import type { ApiClients } from './api-clients.ts';

interface AssembledServerOptions {
  readonly flags: AgentFlags;
  readonly gates: FeatureGates;
  readonly effective: Pick<EffectiveOptions, 'origins'>;
  readonly version: string;
  readonly runtime: Runtime;
  readonly rootDirectory: string;
  readonly verbosity: Verbosity | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly nodeName: string;
  readonly certificateDirectory: string;
  readonly api: Pick<ApiClients, 'client' | 'reviews'> | undefined;
  readonly host: PodHost;
  readonly hostIps: () => readonly string[];
  readonly submitted: SubmittedPods | undefined;
  readonly localVolumes: LocalVolumes;
  readonly statistics: StatisticsPages;
  readonly explainEviction: NonNullable<AgentServerOptions['explainEviction']>;
  readonly observe: NonNullable<AgentServerOptions['observe']>;
  readonly registries: Pick<AgentRegistries, 'access' | 'certificates' | 'observeQueue'>;
  readonly onServingKeyChange: () => void;
  /** Returns the response of `/configz`. */
  readonly config: () => object;
  /** Returns the values of `/flagz`. */
  readonly flagz: () => Readonly<Record<string, string>>;
  readonly random: () => number;
  readonly signal: AbortSignal;
}

/**
 * Starts the servers of all enabled ports. Rejects if a port is in use, or if a file of a certificate or of client CAs cannot
 * be read. Certificates and client CAs are followed until `signal` aborts.
 */
export async function assembleServer(options: AssembledServerOptions): Promise<AgentServer> {
  const { flags, clock, logger, nodeName, api, signal } = options;
  const clientCa = flags.clientCaFile === '' ? undefined : await readClientCa(flags.clientCaFile);
  const serving = {
    certificateDirectory: options.certificateDirectory,
    certificateFile: flags.tlsCertFile,
    keyFile: flags.tlsPrivateKeyFile,
    nodeName,
    hostname: nodeName,
    addresses: options.hostIps,
    clock,
    logger,
  };
  const pair = await initialServingPair(serving);
  const server = await startAgentServer(serverOptions(options, pair, clientCa));
  if (clientCa !== undefined)
    background(
      followClientCa(
        {
          file: flags.clientCaFile,
          first: clientCa,
          server,
          observeQueue: options.registries.observeQueue,
          clock,
          logger,
        },
        signal,
      ),
      { logger, what: 'Following the CAs of clients', signal },
    );
  const keeping = {
    ...serving,
    random: options.random,
    onRotated: (rotated: ServingPair): void => {
      server.replaceCertificate(rotated);
      options.onServingKeyChange();
    },
  };
  const renewal =
    flags.rotateServerCertificates && api !== undefined
      ? keepServingCertificate(
          { ...keeping, client: api.client, observer: options.registries.certificates.server },
          signal,
        )
      : keepSelfSigned(keeping, signal);
  background(renewal, { logger, what: 'Renewing the serving certificate', signal });
  return server;
}

function serverOptions(
  options: AssembledServerOptions,
  pair: ServingPair,
  clientCa: string | undefined,
): AgentServerOptions {
  const { flags, gates, clock, logger } = options;
  const { host, statistics, explainEviction, observe, config, submitted, localVolumes } = options;
  return {
    ...{ clock, logger, host, statistics, explainEviction, observe, config, submitted, localVolumes },
    access: access(options, clientCa !== undefined),
    tls: tls(flags, pair, clientCa),
    enabled: flags.enableServer && !flags.runonce,
    address: flags.address,
    port: flags.port,
    readOnlyPort: readOnlyPort(options),
    healthAddress: flags.healthzBindAddress,
    healthPort: flags.healthzPort,
    idleTimeoutMs: flags.streamingConnectionIdleTimeout,
    systemLogs: systemLogs(options),
    splitLogStreams: gates.enabled('PodLogsQuerySplitStreams'),
    verbosity: flags.enableDebugFlagsHandler ? options.verbosity : undefined,
    zpages: zpages(options),
    checkpoint: gates.enabled('ContainerCheckpoint')
      ? { runtime: options.runtime, rootDirectory: options.rootDirectory, clock }
      : undefined,
    debugHandlers: flags.enableDebuggingHandlers,
  };
}

function access(options: AssembledServerOptions, hasClientCa: boolean): AgentServerOptions['access'] {
  const { flags, api, clock, nodeName } = options;
  return createAccess({
    ...{ client: api?.reviews, clock, nodeName, hasClientCa },
    anonymous: anonymousAccess(options),
    tokenWebhook: flags.authenticationTokenWebhook,
    tokenTtlMs: flags.authenticationTokenWebhookCacheTtl,
    authorization: flags.authorizationMode === 'Webhook' ? 'Webhook' : 'AlwaysAllow',
    allowedTtlMs: flags.authorizationWebhookCacheAuthorizedTtl,
    refusedTtlMs: flags.authorizationWebhookCacheUnauthorizedTtl,
    observe: options.registries.access,
  });
}

function tls(flags: AgentFlags, pair: ServingPair, clientCa: string | undefined): AgentServerOptions['tls'] {
  const suites = flags.tlsCipherSuites;
  const curves = flags.tlsCurvePreferences;
  return {
    cert: pair.certificatePem,
    key: pair.keyPem,
    clientCa,
    minVersion: flags.tlsMinVersion === 'VersionTLS13' ? 'TLSv1.3' : 'TLSv1.2',
    ciphers: suites.length === 0 ? undefined : suites.map((name) => cipherName(name) ?? name).join(':'),
    groups: curves.length === 0 ? undefined : groupNames(curves),
  };
}

type Exposure = Pick<AssembledServerOptions, 'flags' | 'api' | 'effective'>;

/**
 * Returns what anonymous clients may read. Without an API server no client is authorized, and with the kubelet's defaults
 * every client that reaches the port could run commands in pods.
 */
function anonymousAccess({ flags, api, effective }: Exposure): 'none' | 'health' | 'any' {
  if (!flags.anonymousAuth) return 'none';
  const { origins } = effective;
  const isExplicit = [origins.get('anonymousAuth'), origins.get('authorizationMode')].some(isChosen);
  return api === undefined && !isExplicit ? 'health' : 'any';
}

/** Returns the read-only port; 0 if it is disabled. Without an API server, only a flag or a configuration enables it. */
function readOnlyPort({ flags, api, effective }: Exposure): number {
  if (flags.runonce) return 0;
  return api === undefined && !isChosen(effective.origins.get('readOnlyPort')) ? 0 : flags.readOnlyPort;
}

function isChosen(origin: Origin | undefined): boolean {
  return origin !== undefined && origin !== 'default';
}

function systemLogs({ flags, gates }: AssembledServerOptions): SystemLogsOptions | undefined {
  if (!flags.enableSystemLogHandler) return undefined;
  return { directory: '/var/log', queries: flags.enableSystemLogQuery && gates.enabled('NodeLogQuery') };
}

function zpages({ gates, flagz, version, clock }: AssembledServerOptions): Zpages {
  const startedAtMs = clock.now() - process.uptime() * 1000;
  return {
    ...(gates.enabled('ComponentFlagz') ? { flagz } : {}),
    ...(gates.enabled('ComponentStatusz')
      ? { statusz: () => ({ startedAtMs, nowMs: clock.now(), version: version.replace(/^v/, '') }) }
      : {}),
  };
}
