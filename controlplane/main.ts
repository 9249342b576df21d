/**
 * The control plane, put together: storage, registry, security, API server, controllers and scheduler in one process.
 * `startControlPlane` serves the command and tests alike.
 */
import { access, constants, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseFlags } from '../api/component/flags.ts';
import { type Logger, silentLogger } from '../api/component/logger.ts';
import type { Client } from '../api/machinery/client.ts';
import { type Clock, systemClock } from '../api/machinery/clock.ts';
import { createDialer } from '../api/machinery/dialer.ts';
import { LoopTurns } from '../api/machinery/loop-turns.ts';
import { MetricsRegistry } from '../api/component/metrics.ts';
import { loadSchema } from '../api/schema/table.ts';
import { loadAdmissionConfiguration } from './admission/admission-config.ts';
import { chainMetrics } from './admission/admission-metrics.ts';
import { sourcesFromCatalog } from './readers/sources.ts';
import { createApiServer } from './start/api-server.ts';
import {
  admissionPlugins,
  aggregatorOf,
  bootstrap,
  checkPolicies,
  customResourcesOf,
  extensions,
  fieldManagement,
  legacyTokenMarker,
  type Parts,
} from './start/assembly.ts';
import { buildAudit } from './audit/build.ts';
import { closeAll } from './start/close-all.ts';
import { buildEncryption } from './encryption/build.ts';
import type { EncryptedValues } from './encryption/encrypted-values.ts';
import { KUBERNETES_ADDRESS } from './bootstrap/kubernetes-service.ts';
import { startLoops } from './start/loops.ts';
import { serviceAddress } from './bootstrap/service-addresses.ts';
import { hostAddresses, hostNames, primaryAddress } from './start/host-address.ts';
import { type ControlPlaneFlags, controlPlaneFlags, parsePortRange } from './options/controlplane-options.ts';
import { clusterCidrProblem } from './options/controllers.ts';
import { OwnEndpoint } from './start/own-endpoint.ts';
import { ensureAdminKubeconfig } from './pki/admin-kubeconfig.ts';
import { ensurePki } from './pki/pki.ts';
import { createRegistry } from './registry/registry.ts';
import { servedResources } from './registry/runtime-config.ts';
import { buildSecurity, lateAdmission, pkiDirectory } from './start/security.ts';
import { createDirectClient } from './server/direct-client.ts';
import { StartHooks } from './start/start-hooks.ts';
import { StartError } from './model/start-error.ts';
import { startCompactor } from './storage/compactor.ts';
import { openMemoryStorage } from './storage/memory.ts';
import { stampRevision } from './storage/object-bytes.ts';
import { openSqliteStorage } from './storage/sqlite/sqlite-storage.ts';
import { isStorageError, type Storage } from './storage/storage.ts';

export interface ControlPlaneOptions {
  /** Keeps nothing on disk. */
  readonly memory?: boolean;
  /** Flags by their names in `controlPlaneFlags`; the others have their defaults. */
  readonly flags?: Partial<ControlPlaneFlags>;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** Called when a write's outcome is unknown: the process must end. */
  readonly onFatal?: (error: Error) => void;
}

export interface ControlPlane {
  /** `https://127.0.0.1:6443`. */
  readonly url: string;
  readonly port: number;
  /** The cluster CA (PEM). */
  readonly ca: string;
  /** Kubeconfig of an administrator (YAML). */
  readonly kubeconfig: string;
  /** A client in this process, without the network: as the administrator. */
  readonly client: Client;
  readonly metrics: MetricsRegistry;
  /** Looks at the certificates now and renews what must be. */
  checkCertificates(): Promise<boolean>;
  close(): Promise<void>;
}

const CLOSE_GRACE_MS = 3000;

/** Resolves when `/readyz` is ok. Throws `StartError` with one line for a person; nothing is left running then. */
export async function startControlPlane(options: ControlPlaneOptions = {}): Promise<ControlPlane> {
  const { clock = systemClock, logger = silentLogger } = options;
  const defaults = parseFlags(controlPlaneFlags, []).values;
  const flags: ControlPlaneFlags = { ...defaults, ...(options.memory === true ? MEMORY_FLAGS : {}), ...options.flags };
  const opened: (() => Promise<void> | void)[] = [];
  const state = { isClosing: false };
  const close = async (): Promise<void> => {
    state.isClosing = true;
    await closeAll(opened, logger);
  };
  try {
    return await assemble({ ...options, flags, clock, logger }, { opened, close, isClosing: () => state.isClosing });
  } catch (error) {
    await close();
    throw startError(error, flags);
  }
}

/** A test's control plane: on loopback, on a free port. */
const MEMORY_FLAGS: Partial<ControlPlaneFlags> = { storageBackend: 'memory', bindAddress: '127.0.0.1', securePort: 0 };

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

interface Assembly extends ControlPlaneOptions {
  readonly flags: ControlPlaneFlags;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface Lifetime {
  readonly opened: (() => Promise<void> | void)[];
  readonly close: () => Promise<void>;
  readonly isClosing: () => boolean;
}

async function assemble(options: Assembly, { opened, close, isClosing }: Lifetime): Promise<ControlPlane> {
  const { flags, clock, logger } = options;
  const problem = clusterCidrProblem(flags);
  if (problem !== undefined) throw new StartError(problem);
  const stop = new AbortController();
  opened.push(() => stop.abort(new Error('the control plane is closed')));
  const directory = await prepareDirectory(flags, opened);
  const isMemory = flags.storageBackend === 'memory';
  const metrics = new MetricsRegistry();
  const encryption = await buildEncryption({
    path: flags.encryptionProviderConfig,
    reloads: flags.encryptionProviderConfigAutomaticReload,
    clock,
    logger,
    metrics,
  });
  if (encryption !== undefined) opened.push(() => encryption.close());
  // Storage is first: it has the lock of the data directory, without which nothing in it may be changed.
  const storage = await openStorage(options, directory, encryption?.values, metrics, opened);
  const serviceIp = serviceAddress(flags.serviceClusterIpRange, KUBERNETES_ADDRESS);
  const pki = await ensurePki({
    directory: pkiDirectory(directory),
    clock,
    logger,
    hosts: [...hostNames(), ...(flags.externalHostname === '' ? [] : [flags.externalHostname])],
    addresses: () => [...hostAddresses(), ...(flags.advertiseAddress === '' ? [] : [flags.advertiseAddress])],
    serviceIp,
  });
  if (!isMemory) pki.watch(stop.signal);
  const own = new OwnEndpoint({
    port: flags.securePort,
    addresses: [primaryAddress(), ...(flags.advertiseAddress === '' ? [] : [flags.advertiseAddress])],
    serviceIp,
  });
  const dialer = createDialer({
    isOwn: (address, port) => own.includes(address, port),
    loopbackTargets: new Set(flags.loopbackTargets),
  });
  const admission = lateAdmission();
  const made: { parts?: Parts } = {};
  const assembled = (): Parts => {
    if (made.parts === undefined) throw new Error('a request came before the control plane was put together');
    return made.parts;
  };
  const schema = loadSchema();
  const registry = await createRegistry({
    storage,
    schema,
    admission: admission.chain,
    clock,
    logger,
    fieldManagement: fieldManagement(clock),
    serviceClusterCidrs: flags.serviceClusterIpRange,
    serviceNodePorts: parsePortRange(flags.serviceNodePortRange) ?? { from: 30_000, to: 32_767 },
    eventTtlMs: flags.eventTtl,
    serves: servedResources(flags.runtimeConfig),
    extend: (stores) =>
      extensions(stores, assembled, {
        schema,
        admission: admission.chain,
        clock,
        dialer,
        fieldManagement: fieldManagement(clock),
      }),
  });
  opened.push(() => registry.close());
  const { catalog } = registry;
  const sources = sourcesFromCatalog(catalog, { clock, logger, signal: stop.signal });
  const security = await buildSecurity({
    flags,
    pki,
    sources,
    clock,
    logger,
    onLegacyToken: legacyTokenMarker(assembled),
    address: `${flags.advertiseAddress || primaryAddress()}:${flags.securePort}`,
    metrics,
  });
  opened.push(() => security.close());
  const { authorizer } = security.authorizers;
  const turns = new LoopTurns(clock);
  const clientFor: Parts['clientFor'] = (name, groups, fieldManager = name, shared = false) =>
    createDirectClient({ catalog, authorizer, clock, user: { name, groups }, fieldManager, shared, turns });
  const base = { flags, clock, turns, logger, schema, registry, security, sources, pki, dialer, clientFor };
  const customResources = customResourcesOf(base, storage, admission.chain, stop.signal);
  const admissionConfiguration = await loadAdmissionConfiguration(flags.admissionControlConfigFile, clock);
  if (admissionConfiguration.ignored.length > 0)
    logger.warn(
      { plugins: admissionConfiguration.ignored },
      'Configurations of admission plugins that have none were ignored',
    );
  const audit = await buildAudit({ flags, clock, logger, metrics });
  if (audit !== undefined) opened.push(() => audit.close());
  const startHooks = new StartHooks();
  const parts: Parts = {
    ...base,
    customResources,
    metrics,
    storage,
    admissionConfiguration,
    audit,
    encryption,
    startHooks,
    isClosing,
  };
  made.parts = parts;
  admission.set(admissionPlugins(parts), chainMetrics(metrics), () => clock.monotonic());
  await sources.synced();
  startHooks.done('admission');
  await customResources.start();
  startHooks.done('definitions');
  checkPolicies(parts, stop.signal);
  await bootstrap(parts);
  startHooks.done('bootstrap');
  const aggregator = aggregatorOf(parts, stop.signal);
  const server = createApiServer(parts, aggregator, stop.signal);
  startHooks.done('aggregation');
  const address = await server.listen(flags.securePort, flags.bindAddress);
  own.listensOn(address.port);
  opened.push(() => server.close(CLOSE_GRACE_MS));
  const host = flags.bindAddress === '0.0.0.0' || flags.bindAddress === '::' ? '127.0.0.1' : flags.bindAddress;
  const url = `https://${host.includes(':') ? `[${host}]` : host}:${address.port}`;
  const kubeconfigPath = join(directory, 'admin.kubeconfig');
  await ensureAdminKubeconfig(kubeconfigPath, url, pki.material().ca, clock.now());
  const kubeconfig = await readFile(kubeconfigPath, 'utf8');
  opened.push(...(await startLoops(parts, aggregator, address.port)));
  startHooks.done('loops');
  logger.info({ url, ...(isMemory ? {} : { kubeconfig: kubeconfigPath }) }, 'the control plane is ready');
  const client = clientFor('kubernetes-admin', ['system:masters', 'system:authenticated']);
  return {
    url,
    port: address.port,
    ca: pki.material().ca.certificatePem,
    kubeconfig,
    client,
    metrics,
    checkCertificates: () => pki.check(),
    close,
  };
}

/** The data directory, made if it is missing; a temporary one that goes with the process where nothing is kept. */
async function prepareDirectory(flags: ControlPlaneFlags, opened: (() => Promise<void> | void)[]): Promise<string> {
  if (flags.storageBackend === 'memory') {
    const directory = await mkdtemp(join(tmpdir(), 'orchlet-'));
    opened.push(() => rm(directory, { recursive: true, force: true }));
    return directory;
  }
  const directory = resolve(flags.dataDir);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await access(directory, constants.W_OK);
  return directory;
}

async function openStorage(
  options: Assembly,
  directory: string,
  encryption: EncryptedValues | undefined,
  metrics: MetricsRegistry,
  opened: (() => Promise<void> | void)[],
): Promise<Storage> {
  const { flags, clock, logger, onFatal } = options;
  const failedWatches = metrics.counter({
    name: 'orchlet_failed_watches_total',
    help: 'Watches that were closed because delivering to them failed, by resource.',
    labels: ['resource'],
  });
  const onWatchFailed = (resource: string): void => failedWatches.with(resource).inc();
  const storage =
    flags.storageBackend === 'memory'
      ? openMemoryStorage({ clock, logger, stamp: stampRevision, onWatchFailed })
      : await openSqliteStorage({
          directory: join(directory, 'storage'),
          clock,
          logger,
          stamp: stampRevision,
          onWatchFailed,
          ...(encryption === undefined ? {} : { transformer: encryption }),
          ...(onFatal === undefined ? {} : { onFailure: onFatal }),
        });
  opened.push(() => storage.close());
  if (flags.etcdCompactionInterval > 0) {
    const compactor = startCompactor({ storage, clock, logger, windowMs: flags.etcdCompactionInterval });
    opened.push(() => compactor.stop());
  }
  return storage;
}
