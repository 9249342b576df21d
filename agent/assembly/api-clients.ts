/**
 * Creates the clients of the API server: one for ordinary requests, one for events, one for the node's heartbeats and one
 * for reviews of the clients of the agent, so that none of them uses up the rate limit of another.
 */
import { resolve } from 'node:path';
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import type { RequestObserver } from '../../api/client/request-observer.ts';
import { loadKubeconfig, type LoadedKubeconfig, serverAccess } from '../../api/client/kubeconfig.ts';
import { jsonFormat, protobufFormat } from '../../api/client/object-format.ts';
import { ServerList } from '../../api/client/server-list.ts';
import { loadSchema } from '../../api/schema/table.ts';
import { currentPath, readPair } from '../node/certificates/certificate-store.ts';
import {
  bootstrapClient,
  CLIENT_PAIR,
  nodeClientTemplate,
  requestByBootstrap,
} from '../node/certificates/client-bootstrap.ts';
import { followServers, loadServers } from '../node/known-servers.ts';
import { ClusterAuthority, isOfFormerAuthority } from '../node/certificates/cluster-authority.ts';
import { CERTIFICATE_WAIT_MS, requestCertificate } from '../node/certificates/request-certificate.ts';
import type { CertificateObserver } from '../node/certificates/certificate-metrics.ts';
import { keepCertificate } from '../node/certificates/rotation.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import { PROTOBUF_TYPE } from '../../api/http/media-types.ts';

/** The clients of the API servers. They share the credentials, which a rotation replaces in all of them. */
export interface ApiClients {
  readonly client: HttpClient;
  readonly events: HttpClient;
  /** The client without a rate limit. */
  readonly heartbeats: HttpClient;
  /** Sends the reviews of tokens and permissions of the agent's own clients, who decide how many there are. */
  readonly reviews: HttpClient;
  close(): void;
}

/**
 * What the clients need. `signal` ends the bootstrap, which waits until the node has a certificate, and later the rotation of
 * certificates.
 */
export interface ApiClientOptions {
  readonly flags: AgentFlags;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly nodeName: string;
  readonly version: string;
  readonly certificateDirectory: string;
  readonly random: () => number;
  readonly certificates?: CertificateObserver;
  /** Called for each request, for metrics. */
  readonly observe?: RequestObserver;
  readonly signal: AbortSignal;
}

const REVIEW_TIMEOUT_MS = 10_000;

/**
 * Creates the clients of the API server. Resolves to `undefined` without a kubeconfig, and with `--runonce`. Rejects if the
 * kubeconfig or a file of its credentials cannot be read.
 */
export async function connectApi(options: ApiClientOptions): Promise<ApiClients | undefined> {
  const { flags, clock, logger, nodeName, certificateDirectory, signal } = options;
  if (flags.kubeconfig === '' || flags.runonce) return undefined;
  if (flags.bootstrapKubeconfig !== '') {
    await bootstrapClient({
      kubeconfig: flags.kubeconfig,
      bootstrapKubeconfig: flags.bootstrapKubeconfig,
      certificateDirectory,
      nodeName,
      clock,
      logger,
      signal,
    });
  }
  const kubeconfig = await loadKubeconfig(flags.kubeconfig);
  const access = await serverAccess(kubeconfig, { clock });
  const format = flags.kubeApiContentType.startsWith(PROTOBUF_TYPE)
    ? protobufFormat(createProtobufCodec(loadSchema()))
    : jsonFormat;
  const store = {
    configured: [access.server, ...access.otherServers],
    directory: resolve(flags.rootDir),
    clock,
    logger,
  };
  const mayFollow = access.ca !== undefined && access.insecureSkipVerify !== true;
  const servers = mayFollow ? await loadServers(store) : new ServerList(store.configured, clock);
  const common = {
    ...access,
    servers,
    clock,
    format,
    userAgent: `orchlet-agent/${options.version}`,
    ...(options.observe === undefined ? {} : { observe: options.observe }),
  };
  const client = new HttpClient({ ...common, ...limits(flags.kubeApiQps, flags.kubeApiBurst) });
  const events = new HttpClient({ ...common, ...limits(flags.eventQps, flags.eventBurst) });
  const reviews = new HttpClient({
    ...common,
    ...limits(flags.kubeApiQps, flags.kubeApiBurst),
    timeoutMs: REVIEW_TIMEOUT_MS,
  });
  const heartbeats: HttpClient = new HttpClient({
    ...common,
    timeoutMs: Math.min(flags.nodeStatusUpdateFrequency, flags.nodeLeaseDurationSeconds * 1000),
    // Connections that broke with the network do not recover when the network does.
    onTimeout: () => all.forEach((each) => each.closeConnections()),
  });
  const all = [client, events, heartbeats, reviews];
  if (mayFollow)
    background(followServers(store, servers, client, signal), { logger, what: 'Following the API servers', signal });
  if (flags.rotateCertificates && usesRotatedPair(kubeconfig, certificateDirectory)) {
    const authority = new ClusterAuthority({
      server: access.server,
      otherServers: access.otherServers,
      servers,
      ca: access.ca ?? '',
      kubeconfig: flags.kubeconfig,
      credentialsFile: currentPath(certificateDirectory, CLIENT_PAIR),
      clientCaFile: flags.clientCaFile,
      clock,
      logger,
      onChange: (ca) => all.forEach((each) => each.trust(ca)),
    });
    if (access.ca !== undefined)
      background(authority.run(signal), { logger, what: "Following the cluster's CA", signal });
    background(rotate(options, client, all, authority), { logger, what: 'Renewing the client certificate', signal });
  }
  return { client, events, heartbeats, reviews, close: () => all.forEach((each) => each.close()) };
}

/** Whether a user of the kubeconfig has the certificate file that the rotation replaces. */
function usesRotatedPair({ users }: LoadedKubeconfig, certificateDirectory: string): boolean {
  return [...users.values()].some(
    ({ value }) => value['client-certificate'] === currentPath(certificateDirectory, CLIENT_PAIR),
  );
}

function rotate(
  { flags, clock, logger, nodeName, certificateDirectory, random, signal, certificates }: ApiClientOptions,
  client: HttpClient,
  all: readonly HttpClient[],
  authority: ClusterAuthority,
): Promise<void> {
  return keepCertificate(
    {
      directory: certificateDirectory,
      name: CLIENT_PAIR,
      clock,
      logger,
      random,
      ...(certificates === undefined ? {} : { observer: certificates }),
      fits: (pair) => !isOfFormerAuthority(pair.certificatePem, authority.ca),
      request: async (aborted) => {
        const waiting = { clock, logger, signal: aborted };
        const stored = await readPair(certificateDirectory, CLIENT_PAIR);
        const { bootstrapKubeconfig } = flags;
        // If the certificate expired while the host slept, the server does not authenticate the agent.
        if (bootstrapKubeconfig !== '' && (stored === undefined || stored.leaf.notAfterMs <= clock.now()))
          return (await requestByBootstrap({ ...waiting, bootstrapKubeconfig, nodeName })).pair;
        return requestCertificate(client, nodeClientTemplate(nodeName), { ...waiting, timeoutMs: CERTIFICATE_WAIT_MS });
      },
      // Connections, watches included, are reopened, because they were authenticated with the old certificate.
      onRotated: () => all.forEach((each) => each.renewConnections()),
    },
    signal,
  );
}

/** Returns the rate limits of a client. For 0, the defaults of client-go apply, as in the kubelet. */
const limits = (qps: number, burst: number): { readonly qps: number; readonly burst: number } => ({
  qps: qps === 0 ? 5 : qps,
  burst: burst === 0 ? 10 : burst,
});
