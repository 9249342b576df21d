/**
 * `orchlet up`: a control plane and an agent in one process. The agent gets in as any node does: with a bootstrap token it
 * asks for a certificate, and goes on with that.
 */
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { type Agent, startAgent } from '../../agent/main.ts';
import { agentFlags } from '../../agent/options.ts';
import { flag, type FlagValues } from '../../api/component/flags.ts';
import { createLogger } from '../../api/component/logging.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { nodes, pods } from '../../api/machinery/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { startControlPlane } from '../../controlplane/main.ts';
import { controlPlaneFlags } from '../../controlplane/options.ts';
import { announceAgent } from '../agent-process.ts';
import type { Command } from '../command.ts';
import { admitOwnNode, type OwnPlane } from '../own-node.ts';
import { renewOnHangup } from '../renew-on-hangup.ts';
import { settleMemory } from '../settle-memory.ts';
import { notifyReady, notifyStopping } from '../systemd-notify.ts';
import { onShutdown, type Shutdown } from '../shutdown.ts';
import { inOneLine } from '../start-failure.ts';

const own = {
  serviceProxy: { ...agentFlags.serviceProxy, default: 'iptables' },
  keepPods: flag({
    name: 'keep-pods',
    type: 'boolean',
    default: false,
    group: 'Node',
    help: 'Leave the pods running at the end, for the next start to take up.',
  }),
} as const;

const {
  dataDir,
  bindAddress,
  securePort,
  advertiseAddress,
  tokenAuthFile,
  serviceClusterIpRange,
  clusterCidr,
  controllers,
  eventTtl,
} = controlPlaneFlags;
const {
  hostnameOverride,
  nodeLabels,
  nodeIp,
  podManifestPath,
  containerRuntime,
  containerRuntimeEndpoint,
  dockerEndpoint,
  port,
  readOnlyPort,
  healthzPort,
  maxPods,
  clusterDns,
  resolvConf,
  podLogsDir,
  imageCredentialProviderConfig,
  imageCredentialProviderBinDir,
  cgroupRoot,
  cpuManagerPolicy,
  cpuManagerPolicyOptions,
  cpuManagerReconcilePeriod,
  memoryManagerPolicy,
  reservedMemory,
  topologyManagerPolicy,
  topologyManagerPolicyOptions,
  topologyManagerScope,
  reservedCpus,
  kubeReserved,
  systemReserved,
  evictionHard,
  verbosity,
  loggingFormat,
} = agentFlags;

const flags = {
  ...own,
  dataDir,
  bindAddress,
  securePort,
  advertiseAddress,
  tokenAuthFile,
  serviceClusterIpRange,
  clusterCidr,
  controllers,
  eventTtl,
  hostnameOverride,
  nodeLabels,
  nodeIp,
  podManifestPath,
  containerRuntime,
  containerRuntimeEndpoint,
  dockerEndpoint,
  port,
  readOnlyPort,
  healthzPort,
  maxPods,
  clusterDns,
  resolvConf,
  podLogsDir,
  imageCredentialProviderConfig,
  imageCredentialProviderBinDir,
  cgroupRoot,
  cpuManagerPolicy,
  cpuManagerPolicyOptions,
  cpuManagerReconcilePeriod,
  memoryManagerPolicy,
  reservedMemory,
  topologyManagerPolicy,
  topologyManagerPolicyOptions,
  topologyManagerScope,
  reservedCpus,
  kubeReserved,
  systemReserved,
  evictionHard,
  verbosity,
  loggingFormat,
} as const;

type UpFlags = FlagValues<typeof flags>;

export const up: Command = {
  name: 'up',
  summary: 'run a control plane and an agent: a cluster of one node',
  description:
    'Runs a control plane and a node agent in one process: a cluster of one node. State stands in the data directory.',
  flags,
  examples: ['orchlet up', 'KUBECONFIG=/var/lib/orchlet/admin.kubeconfig kubectl get nodes'],
  async run(parsed) {
    const values = parsed.values as unknown as UpFlags;
    const logger = createLogger({
      verbosity: values.verbosity,
      format: values.loggingFormat === 'json' ? 'json' : 'text',
    });
    const shutdown = onShutdown();
    const fatal = Promise.withResolvers<Error>();
    const plane = await startControlPlane({
      flags: planeFlags(values),
      logger: logger.child({ part: 'controlplane' }),
      onFatal: (error) => fatal.resolve(error),
    });
    renewOnHangup(plane, logger);
    let agent: Agent | undefined;
    try {
      const nodeFlags = await agentFlagsFor(values, parsed.given, {
        ca: plane.ca,
        port: plane.port,
        client: plane.client,
      });
      agent = await Promise.race([
        inOneLine(() => startAgent({ flags: nodeFlags, logger: logger.child({ part: 'agent' }) })),
        stopped(shutdown),
      ]);
      if (agent !== undefined) {
        logger.info({ node: agent.nodeName, url: plane.url }, 'control plane and agent run');
        await announceAgent(agent, join(resolve(values.dataDir), 'agent'), logger);
        await openNode(plane.client, agent.nodeName).catch((error: unknown) => {
          if (!isNotFound(error)) throw error;
        });
      }
      notifyReady();
      settleMemory(systemClock);
      const ended = await Promise.race([shutdown.asked, fatal.promise]);
      if (ended instanceof Error) {
        logger.error({ err: ended }, 'the storage cannot be trusted any more; orchlet ends');
        return 1;
      }
      notifyStopping();
      logger.info({ signal: ended }, values.keepPods ? 'stopping; pods run on' : 'stopping, pods as well');
      if (!values.keepPods && agent !== undefined) {
        await stopPods(plane.client, agent, logger);
        // Opened again when nobody is left to run what comes then.
        await agent.close({ hostCleared: true });
        await openNode(plane.client, agent.nodeName);
        agent = undefined;
      }
      return 0;
    } finally {
      await agent?.close();
      await plane.close();
    }
  },
};

async function stopped(shutdown: Shutdown): Promise<undefined> {
  await shutdown.asked;
  return undefined;
}

function planeFlags(
  values: UpFlags,
): Parameters<typeof startControlPlane>[0] extends { flags?: infer F } | undefined ? NonNullable<F> : never {
  const {
    dataDir: directory,
    bindAddress: bind,
    securePort: secure,
    advertiseAddress: advertise,
    tokenAuthFile: tokens,
    serviceClusterIpRange: serviceRange,
    clusterCidr: podRange,
    controllers: wanted,
    eventTtl: ttl,
    verbosity: v,
  } = values;
  return {
    dataDir: directory,
    bindAddress: bind,
    securePort: secure,
    advertiseAddress: advertise,
    tokenAuthFile: tokens,
    serviceClusterIpRange: serviceRange,
    clusterCidr: podRange,
    controllers: wanted,
    eventTtl: ttl,
    verbosity: v,
    nodeServices: values.serviceProxy !== 'none',
  };
}

/** The agent's flags: its directories in the data directory, its way to the API over loopback, a fresh bootstrap token. */
async function agentFlagsFor(
  values: UpFlags,
  given: ReadonlySet<string>,
  plane: OwnPlane,
): Promise<Parameters<typeof startAgent>[0] extends { flags?: infer F } | undefined ? NonNullable<F> : never> {
  const directory = resolve(values.dataDir);
  const agentDirectory = join(directory, 'agent');
  await mkdir(agentDirectory, { recursive: true, mode: 0o750 });
  const { kubeconfig, bootstrapKubeconfig } = await admitOwnNode(agentDirectory, plane);
  const {
    keepPods: _keepPods,
    serviceProxy,
    dataDir: _dataDir,
    bindAddress: _bind,
    securePort: _port,
    advertiseAddress: _advertise,
    tokenAuthFile: _tokens,
    serviceClusterIpRange: _services,
    clusterCidr: _cidr,
    controllers: _controllers,
    eventTtl: _ttl,
    ...node
  } = values;
  return {
    // Only what was said: the rest has the agent's defaults, and /configz says so.
    ...Object.fromEntries(Object.entries(node).filter(([key]) => given.has(key))),
    kubeconfig,
    bootstrapKubeconfig,
    rootDir: agentDirectory,
    certDir: join(agentDirectory, 'pki'),
    imagesDir: join(directory, 'images'),
    clientCaFile: join(directory, 'pki', 'ca.crt'),
    anonymousAuth: false,
    authenticationTokenWebhook: true,
    authorizationMode: 'Webhook',
    // One host of one's own: a desktop may swap, and the control plane is in the same process.
    failSwapOn: false,
    serviceProxy,
    serveClusterDns: serviceProxy !== 'none',
    clusterDomain: 'cluster.local',
    kubeApiQps: 50,
    kubeApiBurst: 100,
    eventQps: 50,
    eventBurst: 100,
  };
}

/** With what closing takes, and a Docker daemon of one's own, 15 s in all; sidecars end after the others. */
const STOP_WITHIN_MS = 8000;
const STOP_GRACE_SECONDS = 3;

/**
 * Daemon sets put pods on nodes that are unschedulable as well; this keeps them away while the node stops. The value says
 * whether the node was cordoned before.
 */
const STOPPING_TAINT = 'orchlet.local/stopping';

interface NodeSpec {
  readonly unschedulable?: boolean;
  readonly taints?: readonly { readonly key: string; readonly value?: string; readonly effect: string }[];
}

/**
 * The pods of this node are deleted with a short grace, and waited for; the node takes no new ones meanwhile. Their owners
 * make them again, pending, for the next start.
 */
async function stopPods(client: Client, agent: Agent, logger: Logger): Promise<void> {
  const fieldSelector = `spec.nodeName=${agent.nodeName}`;
  try {
    await closeNode(client, agent.nodeName);
    const deadline = systemClock.monotonic() + STOP_WITHIN_MS;
    for (;;) {
      const left = (await client.list(pods, { fieldSelector })).items.filter(
        (pod) => pod.metadata.annotations?.['kubernetes.io/config.mirror'] === undefined,
      );
      if (left.length === 0 || systemClock.monotonic() >= deadline) break;
      await Promise.all(left.map((pod) => deleteSoon(client, pod)));
      await systemClock.sleep(100);
    }
  } catch (error) {
    logger.warn({ err: error instanceof Error ? error.message : error }, 'not all pods could be stopped');
  }
}

const deleted = new Set<string>();

/** Once for each pod. A pod that is being deleted with a longer grace has its grace cut. */
async function deleteSoon(client: Client, { metadata }: KubeObject): Promise<void> {
  if (deleted.has(metadata.uid ?? '')) return;
  deleted.add(metadata.uid ?? '');
  try {
    await client.delete(pods, metadata.namespace ?? '', metadata.name ?? '', {
      gracePeriodSeconds: STOP_GRACE_SECONDS,
    });
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
}

async function closeNode(client: Client, name: string): Promise<void> {
  const { unschedulable = false, taints = [] } = await nodeSpec(client, name);
  const taint = { key: STOPPING_TAINT, value: unschedulable ? 'cordoned' : 'open', effect: 'NoSchedule' };
  const others = taints.filter(({ key }) => key !== STOPPING_TAINT);
  await client.patch(nodes, '', name, 'strategic', { spec: { unschedulable: true, taints: [...others, taint] } });
}

/** Also at the start: the last stop may not have come to its end. */
async function openNode(client: Client, name: string): Promise<void> {
  const { taints = [] } = await nodeSpec(client, name);
  const taint = taints.find(({ key }) => key === STOPPING_TAINT);
  if (taint === undefined) return;
  const others = taints.filter(({ key }) => key !== STOPPING_TAINT);
  const unschedulable = taint.value === 'cordoned' ? true : null;
  await client.patch(nodes, '', name, 'strategic', { spec: { unschedulable, taints: others } });
}

const nodeSpec = async (client: Client, name: string): Promise<NodeSpec> =>
  ((await client.get(nodes, '', name)) as { spec?: NodeSpec }).spec ?? {};
