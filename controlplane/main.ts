/**
 * Starts the control plane: storage, registry, security, API server, controllers and scheduler in one process. The phases of
 * the start are in `start/`: stores, readers, security, admission, serve. The command and tests call `startControlPlane`.
 */
import { parseFlags } from '../api/component/flags.ts';
import { type Logger, silentLogger } from '../api/component/logger.ts';
import { MetricsRegistry } from '../api/component/metrics.ts';
import type { Client } from '../api/client/client.ts';
import { type Clock, systemClock } from '../api/machinery/clock.ts';
import { createDialer } from '../api/http/dialer.ts';
import { LoopTurns } from '../api/machinery/loop-turns.ts';
import { loadSchema } from '../api/schema/table.ts';
import { KUBERNETES_ADDRESS } from './controllers/cluster-objects/kubernetes-service.ts';
import { serviceAddress } from './controllers/cluster-objects/service-addresses.ts';
import { StartError } from './model/start-error.ts';
import { clusterCidrProblem } from './options/controllers.ts';
import { leaderElectionFlagsProblem } from './options/leader-election.ts';
import { type ControlPlaneFlags, controlPlaneFlags } from './options/controlplane-options.ts';
import { storageBackendOf } from './options/storage.ts';
import { buildAdmission } from './start/admission.ts';
import { closeAll, type Closing } from './start/close-all.ts';
import { primaryAddress } from './start/host-address.ts';
import { OwnEndpoint } from './start/own-endpoint.ts';
import { type Preparation, prepareStart } from './start/preparation.ts';
import { openReaders } from './start/readers.ts';
import { buildSecurity } from './start/security.ts';
import { serve } from './start/serve.ts';
import type { Setting } from './start/setting.ts';
import { StartHooks } from './start/start-hooks.ts';
import { openStores } from './start/stores.ts';
import { isStorageError } from './storage/storage.ts';
import { MASTERS_GROUP } from '../api/meta/system-users.ts';

/** How a control plane starts. Without options, it has the defaults of `orchlet controlplane` and logs nothing. */
export interface ControlPlaneOptions {
  /** Keeps the objects in memory and the keys in a temporary directory, and listens on a free port of loopback. */
  readonly memory?: boolean;
  /** Flags by their names in `controlPlaneFlags`; the others have their defaults. */
  readonly flags?: Partial<ControlPlaneFlags>;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /**
   * Called when the control plane can no longer use its storage, for example because the outcome of a write is unknown, or
   * because another control plane has taken its place (`FencedError`). The process must exit.
   */
  readonly onFatal?: (error: Error) => void;
}

/** A running control plane, which serves until it is closed. */
export interface ControlPlane {
  /** The URL of the API, such as `https://127.0.0.1:6443`. */
  readonly url: string;
  readonly port: number;
  /** The cluster CA (PEM). */
  readonly ca: string;
  /** The kubeconfig of the administrator (YAML) as it was at the start. Its file gets new certificates while this runs. */
  readonly kubeconfig: string;
  /** A client of the administrator in this process, without the network. */
  readonly client: Client;
  readonly metrics: MetricsRegistry;
  /** Resolves when the modules of controllers and scheduler, which load while the first requests are served, are loaded. */
  readonly loaded: Promise<void>;
  /** Checks the certificates now and renews those that expire soon. Resolves to whether a certificate was issued. */
  checkCertificates(): Promise<boolean>;
  close(): Promise<void>;
}

/**
 * Starts a control plane. Resolves when `/readyz` is ok. If the start fails, everything is closed again; a `StartError` has a
 * message for the operator.
 */
export function startControlPlane(options: ControlPlaneOptions = {}): Promise<ControlPlane> {
  const defaults = parseFlags(controlPlaneFlags, []).values;
  const flags: ControlPlaneFlags = { ...defaults, ...(options.memory === true ? MEMORY_FLAGS : {}), ...options.flags };
  return startPrepared({ ...options, flags }, prepareStart(flags));
}

/**
 * Starts a control plane as `startControlPlane` does, with what `prepareStart` has begun for the same flags. The npm package
 * does not declare it.
 *
 * @internal
 */
export async function startPrepared(
  options: ControlPlaneOptions & { readonly flags: ControlPlaneFlags },
  preparation: Preparation,
): Promise<ControlPlane> {
  const { flags, clock = systemClock, logger = silentLogger } = options;
  const opened: Closing[] = [async () => preparation.storageThread?.close()];
  const state = { isClosing: false };
  const close = async (): Promise<void> => {
    state.isClosing = true;
    await closeAll(opened, logger);
  };
  try {
    return await start({ ...options, preparation, clock, logger }, { opened, close, isClosing: () => state.isClosing });
  } catch (error) {
    await close();
    throw startError(error, flags);
  }
}

/** A test's control plane: on loopback, on a free port. */
const MEMORY_FLAGS: Partial<ControlPlaneFlags> = {
  storageBackend: 'memory',
  bindAddress: '127.0.0.1',
  securePort: 0,
};

function startError(error: unknown, flags: ControlPlaneFlags): unknown {
  if (isStorageError(error)) return new StartError(error.message, { cause: error });
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'EADDRINUSE')
    return new StartError(`port ${flags.securePort} is in use: stop what listens there, or give --secure-port`, {
      cause: error,
    });
  if (code === 'EACCES' || code === 'EROFS' || code === 'EPERM')
    return new StartError(`${message}: the data directory ${flags.dataDir} cannot be written; give --data-dir`, {
      cause: error,
    });
  if (code === 'ENOENT') return new StartError(message, { cause: error });
  return error;
}

interface StartOptions extends ControlPlaneOptions {
  readonly flags: ControlPlaneFlags;
  readonly preparation: Preparation;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface Lifetime {
  readonly opened: Closing[];
  readonly close: () => Promise<void>;
  readonly isClosing: () => boolean;
}

/** Starts the etcd of `--etcd=embedded` and returns the flags with a connection to it. Otherwise returns the flags as given. */
async function withEmbeddedEtcd(setting: Setting): Promise<ControlPlaneFlags> {
  if (setting.flags.etcd !== 'embedded') return setting.flags;
  const { startEmbeddedEtcd } = await import('./start/embedded-etcd.ts');
  return startEmbeddedEtcd(setting);
}

/** Runs the phases of the start. Each takes what the phases before it returned. */
async function start(options: StartOptions, { opened, close, isClosing }: Lifetime): Promise<ControlPlane> {
  const { logger } = options;
  const given = settingOf(options, opened, isClosing);
  const flags = await withEmbeddedEtcd(given);
  const setting = { ...given, flags };
  const stores = { ...setting, ...(await openStores(setting)) };
  const readers = { ...stores, ...openReaders(setting, stores) };
  const secured = { ...readers, ...(await buildSecurity(readers)) };
  const admitting = { ...secured, ...(await buildAdmission(secured)) };
  const { url, port, kubeconfig, kubeconfigPath, loaded } = await serve(admitting);
  const isMemory = storageBackendOf(flags) === 'memory';
  logger.info({ url, ...(isMemory ? {} : { kubeconfig: kubeconfigPath }) }, 'The control plane is ready');
  const { pki } = secured.security;
  return {
    url,
    port,
    ca: pki.material().ca.certificatePem,
    kubeconfig,
    client: secured.clients.as('kubernetes-admin', { groups: [MASTERS_GROUP] }),
    metrics: setting.metrics,
    loaded,
    checkCertificates: () => pki.check(),
    close,
  };
}

function settingOf(
  { flags, preparation, clock, logger, onFatal }: StartOptions,
  opened: Closing[],
  isClosing: () => boolean,
): Setting {
  const problem = clusterCidrProblem(flags) ?? leaderElectionFlagsProblem(flags);
  if (problem !== undefined) throw new StartError(problem);
  const stop = new AbortController();
  opened.push(() => stop.abort(new Error('the control plane is closed')));
  const ownEndpoint = new OwnEndpoint({
    port: flags.securePort,
    addresses: [primaryAddress(), ...(flags.advertiseAddress === '' ? [] : [flags.advertiseAddress])],
    serviceIp: serviceAddress(flags.serviceClusterIpRange, KUBERNETES_ADDRESS),
  });
  return {
    flags,
    preparation,
    clock,
    logger,
    metrics: new MetricsRegistry(),
    schema: loadSchema(),
    turns: new LoopTurns(clock),
    dialer: createDialer({
      isOwn: (address, port) => ownEndpoint.includes(address, port),
      loopbackTargets: new Set(flags.loopbackTargets),
      connectTimeoutsMs: { kubelet: flags.kubeletTimeout },
    }),
    ownEndpoint,
    startHooks: new StartHooks(),
    signal: stop.signal,
    isClosing,
    onClose: (close) => void opened.push(close),
    onFatal,
  };
}
