/** `orchlet up`: a control plane and an agent in one process. */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { nodeNameOf } from '../../agent/host/host-facts.ts';
import type { Agent } from '../../agent/main.ts';
import { type AgentFlags, agentFlags } from '../../agent/options/agent-options.ts';
import { flag, type FlagValues, parseFlags, pickKeys } from '../../api/component/flags.ts';
import { createLogger } from '../../api/component/logging.ts';
import { background } from '../../api/machinery/background.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { makeFolder, replaceFile } from '../../api/machinery/replace-file.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { type ControlPlaneFlags, controlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import { isPartEnabled } from '../../controlplane/options/parts.ts';
import { prepareStart } from '../../controlplane/start/preparation.ts';
import { announceAgent } from '../host/agent-process.ts';
import { backupOptions, checkBackupSchedule, type ScheduledBackups, scheduleBackups } from '../backup/schedule.ts';
import { closePlane } from '../cluster/close-plane.ts';
import type { Command } from '../command-line/command.ts';
import { logLastResortTo } from '../process/last-resort.ts';
import { admitOwnNode, type OwnPlane } from '../cluster/own-node.ts';
import { passedFlags } from '../command-line/passed-flags.ts';
import { refuseForeign } from '../host/owner-rights.ts';
import { renewOnHangup } from '../process/renew-on-hangup.ts';
import { optimizeRequests } from '../process/optimize-requests.ts';
import { settleMemory } from '../process/settle-memory.ts';
import { openNode, stopPods } from '../cluster/stop-own-node.ts';
import { onStorageFailure } from '../process/storage-failure.ts';
import { notifyReady, notifyStopping } from '../process/systemd-notify.ts';
import { standBy } from '../cluster/stand-by.ts';
import { KEEP_PODS_SIGNAL, onShutdown, type Shutdown } from '../process/shutdown.ts';
import { inOneLine } from '../process/start-failure.ts';

const upFlags = {
  serviceProxy: { ...agentFlags.serviceProxy, default: 'always' },
  keepPods: flag({
    name: 'keep-pods',
    type: 'boolean',
    default: false,
    group: 'Node',
    help: 'Leave the pods running when orchlet stops; the next start takes them over.',
  }),
  clusterInit: flag({
    name: 'cluster-init',
    type: 'boolean',
    default: false,
    group: 'API',
    help: 'Keep the cluster in an etcd that orchlet runs, so that further control planes can join. Same as --controlplane-arg etcd=embedded. The program etcd must be installed.',
  }),
  agentArgs: flag({
    name: 'agent-arg',
    type: 'array',
    default: [],
    group: 'Node',
    placeholder: 'name=value',
    help: 'Any other flag of `orchlet agent`; may be given again.',
  }),
  controlPlaneArgs: flag({
    name: 'controlplane-arg',
    type: 'array',
    default: [],
    group: 'API',
    placeholder: 'name=value',
    help: 'Any other flag of `orchlet controlplane`; may be given again.',
  }),
} as const;

/** The flags that this command sets itself, because they connect the parts. */
const OWN_AGENT_KEYS = ['kubeconfig', 'bootstrapKubeconfig', 'rootDir', 'certDir', 'imagesDir'] as const;
const OWN_PLANE_KEYS = ['dataDir', 'nodeServices', 'podNetwork'] as const;

/** The flags of the control plane that this command has as well. */
const PLANE_KEYS = [
  'dataDir',
  'standbyOf',
  'bindAddress',
  'securePort',
  'advertiseAddress',
  'tokenAuthFile',
  'serviceClusterIpRange',
  'clusterCidr',
  'controllers',
  'disable',
  'manifestsDir',
  'eventTtl',
  'backupSchedule',
  'backupKeep',
  'backupDir',
  'backupS3Endpoint',
  'backupS3Region',
] as const;

/** The flags of the agent that this command has as well. It sets the flags of the connection to the control plane itself. */
const NODE_KEYS = [
  'hostnameOverride',
  'nodeLabels',
  'nodeIp',
  'podManifestPath',
  'containerRuntime',
  'containerRuntimeEndpoint',
  'dockerEndpoint',
  'port',
  'readOnlyPort',
  'healthzPort',
  'maxPods',
  'clusterDns',
  'resolvConf',
  'podLogsDir',
  'proxyMode',
  'nodeportAddresses',
  'networkPolicy',
  'podNetwork',
  'podNetworkPort',
  'podNetworkKeyLifetime',
  'imageCredentialProviderConfig',
  'imageCredentialProviderBinDir',
  'cgroupRoot',
  'cpuManagerPolicy',
  'cpuManagerPolicyOptions',
  'cpuManagerReconcilePeriod',
  'memoryManagerPolicy',
  'reservedMemory',
  'topologyManagerPolicy',
  'topologyManagerPolicyOptions',
  'topologyManagerScope',
  'reservedCpus',
  'kubeReserved',
  'systemReserved',
  'evictionHard',
  'verbosity',
  'loggingFormat',
] as const;

const flags = { ...upFlags, ...pickKeys(controlPlaneFlags, PLANE_KEYS), ...pickKeys(agentFlags, NODE_KEYS) };

type UpFlags = FlagValues<typeof flags>;

export const up: Command = {
  description:
    'Runs a control plane and a node agent in one process: a cluster of one node. Its state is kept in the data directory.',
  flags,
  examples: [
    'orchlet up',
    'orchlet up --cluster-init',
    'KUBECONFIG=/var/lib/orchlet/admin.kubeconfig kubectl get nodes',
  ],
  async run(parsed) {
    const values = parsed.values as unknown as UpFlags;
    refuseForeign(resolve(values.dataDir), 'control plane');
    const verbosity = { level: values.verbosity };
    const format = values.loggingFormat === 'json' ? 'json' : 'text';
    const logger = await createLogger({ verbosity, format });
    logLastResortTo(logger);
    const forAgent = passedFlags('agent-arg', agentFlags, values.agentArgs, OWN_AGENT_KEYS);
    const forPlane = passedFlags('controlplane-arg', controlPlaneFlags, values.controlPlaneArgs, OWN_PLANE_KEYS);
    for (const warning of [...forAgent.warnings, ...forPlane.warnings]) logger.warn({}, warning);
    const ownFlags = ownPlaneFlags({ ...values, ...forAgent.values }, values, forPlane.values);
    const planeFlags = { ...parseFlags(controlPlaneFlags, []).values, ...ownFlags };
    const preparation = prepareStart(planeFlags);
    const { startPrepared } = await import('../../controlplane/main.ts');
    const backupsWanted = backupOptions({ ...values, ...ownFlags });
    await checkBackupSchedule(backupsWanted);
    const shutdown = onShutdown();
    const failure = onStorageFailure(logger, { closingMs: 5000 });
    const planeLogger = logger.child({ part: 'controlplane' });
    const after = await standBy({ flags: ownFlags, logger: planeLogger, shutdown, failure });
    if (after !== 'start') return after;
    const plane = await inOneLine(() =>
      startPrepared({ flags: planeFlags, logger: planeLogger, onFatal: failure.onFatal }, preparation),
    );
    let agent: Agent | undefined;
    let backups: ScheduledBackups | undefined;
    try {
      renewOnHangup(plane, logger);
      backups = await scheduleBackups(backupsWanted, logger);
      const joined = await agentFlagsFor({ ...values, ...pickDisabled(forPlane.values) }, parsed.given, {
        ca: plane.ca,
        port: plane.port,
        client: plane.client,
      });
      const nodeFlags = { ...joined, ...forAgent.values };
      // The agent is loaded while the control plane serves its first requests.
      const { startAgent } = await import('../../agent/main.ts');
      agent = await startUntil(shutdown, (signal) =>
        startAgent({ flags: nodeFlags, verbosity, signal, logger: logger.child({ part: 'agent' }) }),
      );
      if (agent !== undefined) {
        logger.info({ node: agent.nodeName, url: plane.url }, 'Control plane and agent run');
        await announceAgent(agent, join(resolve(values.dataDir), 'agent'), logger);
        await openNode(plane.client, agent.nodeName).catch((error: unknown) => {
          if (!isNotFound(error)) throw error;
        });
      }
      notifyReady();
      background(plane.loaded.then(optimizeRequests), { logger, what: 'Setting the flags of V8' });
      settleMemory(systemClock);
      const ended = await Promise.race([shutdown.asked, failure.happened]);
      if (ended instanceof Error) return failure.exitCode;
      notifyStopping();
      const keepsPods = values.keepPods || ended === KEEP_PODS_SIGNAL;
      logger.info({ signal: ended }, keepsPods ? 'Stopping; pods keep running' : 'Stopping, with all pods');
      if (!keepsPods && agent !== undefined) {
        await stopPods(plane.client, agent.nodeName, { clock: systemClock, logger });
        // The node takes pods again only once the agent is closed, so that none starts here in between.
        await agent.close({ hostCleared: true });
        await openNode(plane.client, agent.nodeName);
        agent = undefined;
      }
      return 0;
    } finally {
      await backups?.stop();
      await agent?.close();
      await closePlane(plane, { logger });
    }
  },
};

/** Starts the agent. A shutdown during the start closes what the agent has started by then, and returns `undefined`. */
async function startUntil(
  shutdown: Shutdown,
  start: (signal: AbortSignal) => Promise<Agent>,
): Promise<Agent | undefined> {
  const starting = new AbortController();
  const started = inOneLine(() => start(starting.signal));
  const agent = await Promise.race([started, shutdown.asked.then(() => undefined)]);
  if (agent !== undefined) return agent;
  starting.abort(new Error('a shutdown was requested while the agent started'));
  await started.then(
    (late) => late.close(),
    () => undefined,
  );
  return undefined;
}

/**
 * Returns the flags of the control plane. They allow the API server to connect to this node on a loopback address, because a
 * host without a network has no other.
 */
function ownPlaneFlags(
  agent: Pick<AgentFlags, 'hostnameOverride'>,
  values: UpFlags,
  given: Partial<ControlPlaneFlags>,
): Partial<ControlPlaneFlags> {
  const loopbackTarget = `node/${nodeNameOf(agent)}`;
  const etcd = values.clusterInit ? { etcd: 'embedded' } : {};
  return {
    ...flagsOfPlane(values),
    ...etcd,
    ...given,
    loopbackTargets: [...(given.loopbackTargets ?? []), loopbackTarget],
  };
}

function flagsOfPlane(values: UpFlags): Partial<ControlPlaneFlags> {
  const { verbosity, serviceProxy } = values;
  const podNetwork = values.podNetwork === 'auto' ? controlPlaneFlags.podNetwork.default : values.podNetwork;
  return { ...pickKeys(values, PLANE_KEYS), verbosity, podNetwork, nodeServices: serviceProxy !== 'none' };
}

/**
 * Returns the mode of network policies for the agent of this process, or an empty object for the agent's default, by which it
 * enforces policies only in a cluster that it recognizes by the service `kube-dns`.
 */
function policyMode(values: Pick<UpFlags, 'disable' | 'serviceProxy'>): Partial<Pick<AgentFlags, 'networkPolicy'>> {
  if (!isPartEnabled(values, 'network-policies')) return { networkPolicy: 'none' };
  return values.serviceProxy === 'none' || isPartEnabled(values, 'name-server') ? {} : { networkPolicy: 'nftables' };
}

/** Returns `--controlplane-arg disable=…` as a value of `--disable`. */
function pickDisabled({ disable }: Partial<ControlPlaneFlags>): Partial<Pick<UpFlags, 'disable'>> {
  return disable === undefined ? {} : { disable };
}

/** Returns the agent's flags: directories below the data directory, the API server on loopback, a new bootstrap token. */
async function agentFlagsFor(
  values: UpFlags,
  given: ReadonlySet<string>,
  plane: OwnPlane,
): Promise<Partial<AgentFlags>> {
  const directory = resolve(values.dataDir);
  const agentDirectory = join(directory, 'agent');
  await makeFolder(agentDirectory, 0o750);
  const { kubeconfig, bootstrapKubeconfig } = await admitOwnNode(agentDirectory, plane);
  // The agent has a copy of its own, since it rewrites the file in a CA rotation and must not touch the control plane's.
  const clientCaFile = join(agentDirectory, 'client-ca.crt');
  // A file that has not changed is not written, so that the agent also starts on a full disk.
  const existing = await readFile(clientCaFile, 'utf8').catch(() => undefined);
  if (existing !== plane.ca) await replaceFile(clientCaFile, plane.ca, { mode: 0o644 });
  const { serviceProxy } = values;
  const passed = NODE_KEYS.filter((key) => given.has(key));
  return {
    // The agent gets only the flags that were passed. For the others it has its own defaults, as /configz shows.
    ...pickKeys(values, passed),
    kubeconfig,
    bootstrapKubeconfig,
    rootDir: agentDirectory,
    certDir: join(agentDirectory, 'pki'),
    imagesDir: join(directory, 'images'),
    clientCaFile,
    anonymousAuth: false,
    authenticationTokenWebhook: true,
    authorizationMode: 'Webhook',
    // The read-only port would show the pods of all namespaces, their environment included, to every pod.
    ...(given.has('readOnlyPort') ? {} : { readOnlyPort: 0 }),
    // A host that runs a cluster of one node is often a desktop with swap.
    failSwapOn: false,
    serviceProxy,
    serveClusterDns: serviceProxy !== 'none' && isPartEnabled(values, 'name-server'),
    ...(given.has('networkPolicy') ? {} : policyMode(values)),
    ...(given.has('podNetwork') || serviceProxy === 'none' || isPartEnabled(values, 'name-server')
      ? {}
      : { podNetwork: 'vxlan' }),
    clusterDomain: 'cluster.local',
    kubeApiQps: 50,
    kubeApiBurst: 100,
    eventQps: 50,
    eventBurst: 100,
  };
}
