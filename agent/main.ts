/**
 * The entry of the node agent: starts it from options and stops it. A stopped agent leaves every container running; the next
 * start finds them again.
 */
import { resolve } from 'node:path';
import { clientMetrics } from '../api/client/client-metrics.ts';
import { type Logger, silentLogger } from '../api/component/logger.ts';
import type { Verbosity } from '../api/component/logging.ts';
import type { MetricsRegistry } from '../api/component/metrics.ts';
import { type Clock, systemClock } from '../api/machinery/clock.ts';
import { loadKubeconfig } from '../api/client/kubeconfig.ts';
import { assembleAgent } from './assembly/agent.ts';
import { connectApi } from './assembly/api-clients.ts';
import type { Base } from './assembly/base.ts';
import { type Closing, Lifecycle } from './assembly/lifecycle.ts';
import { hostDemands, takeProcess } from './assembly/process.ts';
import { createRegistries } from './assembly/registries.ts';
import { nodeNameOf } from './host/host-facts.ts';
import { writeHostRecord } from './host/host-record.ts';
import { waitForPods } from './pods/run-once.ts';
import type { PodHost } from './server/pod-host.ts';
import type { NodeStatusSource } from './node/status/node-manager.ts';
import type { AgentFlags } from './options/agent-options.ts';
import { type EffectiveOptions, effectiveOptions } from './options/config/effective-options.ts';
import { instrumentRuntime } from './resources/statistics/instrumented-runtime.ts';
import { loadPreloadedImages } from './runtime/images/imported-images.ts';
import type { Runtime } from './runtime/runtime.ts';
import { makeFolder } from '../api/machinery/replace-file.ts';
import { selectRuntime } from './runtime/select-runtime.ts';

/** The Kubernetes release of the kubelet that this agent replaces. */
export const AGENT_VERSION = 'v1.36.2';

/** The options of one agent. */
export interface AgentOptions {
  /** Flags by their names in `agentFlags`. The others have their defaults. */
  readonly flags?: Partial<AgentFlags>;
  /** Replaces `flags`: the result of `effectiveOptions` for flags and configuration files. */
  readonly effective?: EffectiveOptions;
  /** The process runs nothing else: the agent may lock it and set its limits as the flags say. */
  readonly ownsProcess?: boolean;
  /** Aborts a start that waits for something. */
  readonly signal?: AbortSignal;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** The level of the logger; `/debug/flags/v` changes it. */
  readonly verbosity?: Verbosity;
  /** Replaces the container runtime that the flags name. */
  readonly runtime?: Runtime;
}

/** A running agent. */
export interface Agent {
  readonly nodeName: string;
  readonly port: number;
  readonly pods: PodHost;
  readonly status: Pick<NodeStatusSource, 'runtimeErrors' | 'networkErrors'>;
  /** The metrics of `/metrics`. */
  readonly metrics: MetricsRegistry;
  /**
   * Resolves with the reason when the agent has finished: its pods ran once, or another process wants the lock file. Rejects
   * when the pods cannot run once.
   */
  readonly done: Promise<string>;
  /** Terminates the pods by priority, as at a shutdown of the host. The node admits no others. */
  stopPods(): Promise<void>;
  /** Stops the agent. Containers keep running. */
  close(how?: Closing): Promise<void>;
}

/** Starts an agent. Resolves when the agent's ports listen and its loops run. If it rejects, nothing is left running. */
export async function startAgent(options: AgentOptions = {}): Promise<Agent> {
  const { clock = systemClock, logger = silentLogger } = options;
  const values = options.flags ?? {};
  const effective = options.effective ?? (await effectiveOptions({ values, given: new Set(Object.keys(values)) }));
  const { flags } = effective;
  for (const warning of effective.warnings) logger.warn({}, warning);
  const lifecycle = new Lifecycle(logger, options.signal);
  const base: Base = {
    flags,
    effective,
    clock,
    logger,
    verbosity: options.verbosity,
    nodeName: nodeNameOf(flags),
    rootDirectory: resolve(flags.rootDir),
    podLogsDirectory: resolve(flags.podLogsDir),
    signal: lifecycle.signal,
  };
  try {
    return await start(base, options, lifecycle);
  } catch (error) {
    await lifecycle.close();
    throw error;
  }
}

async function start(
  base: Base,
  { runtime: replacement, ownsProcess = false }: AgentOptions,
  lifecycle: Lifecycle,
): Promise<Agent> {
  const { flags, clock, logger, nodeName, rootDirectory, signal } = base;
  const finished = Promise.withResolvers<string>();
  // Not every caller waits for `done`; without this handler its rejection would stop the process.
  finished.promise.catch(() => undefined);
  if (ownsProcess)
    lifecycle.add(await takeProcess(base, () => finished.resolve('another process wants the lock file')));
  const demands = hostDemands(base);
  await demands.check();
  if (flags.kubeconfig !== '' && flags.bootstrapKubeconfig === '' && !flags.runonce)
    await loadKubeconfig(flags.kubeconfig);
  await makeFolder(rootDirectory, 0o750);
  const connected = replacement ?? lifecycle.add(await connectRuntime(base));
  // Follows the checks of kubeconfig and runtime: an agent that cannot start leaves the host as it is.
  if (ownsProcess) await demands.setKernelParameters();
  await recordHost(base, connected);
  const registries = createRegistries(clock, AGENT_VERSION);
  const runtime = instrumentRuntime(connected, registries.agent, clock);
  if (flags.imagesDir !== '') await loadPreloadedImages(resolve(flags.imagesDir), runtime, rootDirectory, logger);
  const api = await connectApi({
    ...base,
    version: AGENT_VERSION,
    certificateDirectory: resolve(flags.certDir),
    random: Math.random,
    observe: clientMetrics(registries.agent),
    certificates: registries.certificates.client,
  });
  if (api !== undefined) lifecycle.add(api);
  const agent = await assembleAgent(base, { version: AGENT_VERSION, runtime, api, registries }, lifecycle);
  lifecycle.start();
  if (flags.runonce) finished.resolve(waitForPods(agent.table, clock, signal));
  return {
    nodeName,
    port: agent.server.port,
    pods: agent.host,
    status: agent.status,
    metrics: registries.agent,
    done: finished.promise,
    stopPods: () => agent.shutdown.stopPods(),
    close: (how) => lifecycle.close(how),
  };
}

/** Writes the host record. Rejects if the runtime does not answer; a failure to write is only logged. */
async function recordHost(
  { flags, nodeName, rootDirectory, podLogsDirectory, logger }: Base,
  runtime: Runtime,
): Promise<void> {
  const record = {
    nodeName,
    dockerEndpoint: flags.dockerEndpoint,
    criEndpoint: flags.containerRuntimeEndpoint,
    podLogsDirectory,
    cgroupRoot: flags.cgroupRoot,
    cgroupDriver: (await runtime.cgroupDriver()) ?? flags.cgroupDriver,
  };
  await writeHostRecord(rootDirectory, record).catch((error: unknown) =>
    logger.debug({ err: error }, 'Cannot write the record that orchlet reset reads'),
  );
}

function connectRuntime({ flags, clock, logger, nodeName, rootDirectory }: Base): Promise<Runtime> {
  return selectRuntime({
    kind: flags.containerRuntime,
    imageEndpoint: flags.imageServiceEndpoint,
    requestTimeoutMs: flags.runtimeRequestTimeout,
    dockerEndpoint: flags.dockerEndpoint,
    criEndpoint: flags.containerRuntimeEndpoint,
    nodeName,
    rootDirectory,
    sandboxImage: flags.podInfraContainerImage,
    hairpin: flags.hairpinMode !== 'none',
    providesNetwork: flags.podNetwork !== 'none' && flags.kubeconfig !== '',
    awaitsPodCidr: flags.kubeconfig !== '' && flags.podCidr === '',
    clock,
    logger,
  });
}
