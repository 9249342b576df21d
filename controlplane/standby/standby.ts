/**
 * Runs a warm standby: it keeps a copy of the storage of the first control plane, serves no API and runs no controllers, until
 * it is promoted. Then its data directory is complete for a first control plane, which the caller starts.
 */
import { join, resolve } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import { MetricsRegistry } from '../../api/component/metrics.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { toError } from '../../api/meta/error-message.ts';
import { newStatusError } from '../../api/meta/status-error.ts';
import { refuseUnfinishedRestore } from '../storage/backup/unfinished-restore.ts';
import { KUBERNETES_ADDRESS } from '../controllers/cluster-objects/kubernetes-service.ts';
import { serviceAddress } from '../controllers/cluster-objects/service-addresses.ts';
import { StartError } from '../model/start-error.ts';
import { ensurePki, type Pki } from '../security/pki/pki.ts';
import type { LogCopy } from '../storage/sqlite/log-copy.ts';
import { type CopyState, Follower, NO_COPY, openCopy } from './follower.ts';
import { type ClusterKeys, administratorCheck, peerCheck, peerClient, readClusterKeys } from './identity.ts';
import { PROMOTE_PATH, type PeerRoute, peerUrl, sendJson, STANDBY_PATH } from './peer-paths.ts';
import { promote } from './promotion.ts';
import { readRole, type Role, writeRole } from './role.ts';
import { removeIncoming } from './snapshot-file.ts';
import { startRole } from './start-role.ts';
import { createStandbyServer } from './standby-server.ts';

/** The flags of the control plane that a standby uses. */
interface StandbyFlags {
  readonly standbyOf: string;
  readonly dataDir: string;
  readonly bindAddress: string;
  readonly securePort: number;
  readonly serviceClusterIpRange: readonly string[];
  readonly encryptionProviderConfig: string;
}

/** The flags of the control plane, and what is known of this host. */
interface StandbyOptions {
  readonly flags: StandbyFlags;
  readonly storageBackend: 'sqlite' | 'etcd3' | 'memory';
  readonly clock: Clock;
  readonly logger: Logger;
  /** The names and addresses of this host, for its serving certificate. */
  readonly hosts: readonly string[];
  /** The addresses of this host now, which the certificate has as well. */
  readonly addresses: () => readonly string[];
  /** The address at which other hosts reach this one. */
  readonly advertised: () => string;
  /** Called when only another process can go on: this one must exit. */
  readonly onFatal: (error: Error) => void;
}

/** A running standby. */
export interface Standby {
  readonly port: number;
  /** Checks the certificates now and renews those that expire. Resolves to whether one was issued. */
  checkCertificates(): Promise<boolean>;
  /** Resolves when this standby was promoted and the response is complete or its client is gone. The caller then closes it. */
  readonly promoted: Promise<void>;
  close(): Promise<void>;
}

/** The state of a standby, as `STANDBY_PATH` answers it. */
export interface StandbyReport extends CopyState {
  readonly of: string;
  /** The time since the copy was complete; 0 if it never was. */
  readonly lagSeconds: number;
  /** What would prevent a start after the promotion. */
  readonly warning: string | undefined;
}

/** How often the time at which the copy was complete is stored. */
const STORE_ROLE_EVERY_MS = 10_000;

/**
 * Starts the standby of another control plane. Resolves when the standby listens, and to `undefined` if this control plane is
 * the first of the two, which is started then. Throws a `StartError` that says what the operator must change, or a
 * `StorageError` if the copy is in use.
 */
export async function startStandby(options: StandbyOptions): Promise<Standby | undefined> {
  const { flags, clock, logger } = options;
  const dataDirectory = resolve(flags.dataDir);
  checkOptions(options);
  refuseUnfinishedRestore(dataDirectory);
  const keys = await readClusterKeys(dataDirectory);
  const starting = await startRole({ dataDirectory, other: flags.standbyOf, keys, clock, logger });
  if (starting.role === 'first') return undefined;
  const opened = await openUnpromoted(dataDirectory, readRole(dataDirectory), logger);
  if (opened === undefined) return undefined;
  const running = new RunningStandby(options, dataDirectory, keys);
  await running.start(starting.completeAtMs, opened.copy);
  return running;
}

/** Opens the copy, as `openCopy` does. Resolves to `undefined` if it was promoted since the role was read. */
export async function openUnpromoted(
  dataDirectory: string,
  { role: before }: Role,
  logger: Logger,
): Promise<{ readonly copy: LogCopy | undefined } | undefined> {
  const directory = join(dataDirectory, 'storage');
  await removeIncoming(directory);
  const copy = await openCopy({ directory, logger });
  if (before === 'promoted' || readRole(dataDirectory).role !== 'promoted') return { copy };
  await copy?.close();
  return undefined;
}

function checkOptions({ flags, storageBackend }: StandbyOptions): void {
  if (!/^https:\/\/[^\s/]+$/.test(flags.standbyOf))
    throw new StartError('--standby-of must be the URL of the first control plane, such as https://10.0.0.1:6443');
  if (storageBackend !== 'sqlite')
    throw new StartError('--standby-of copies a database of SQLite: on etcd, several control planes run at a time');
}

class RunningStandby implements Standby {
  readonly #options: StandbyOptions;
  readonly #dataDirectory: string;
  readonly #keys: ClusterKeys;
  readonly #metrics = new MetricsRegistry();
  readonly #promoted = Promise.withResolvers<void>();
  readonly promoted: Promise<void> = this.#promoted.promise;
  #close: (() => Promise<void>)[] = [];
  #follower: Follower | undefined;
  #roleStoredMs = Number.NEGATIVE_INFINITY;
  /** The last write of the role. It never rejects. */
  #roleWrite: Promise<void> = Promise.resolve();
  #isPromoting = false;
  #pki: Pki | undefined;
  readonly #stop = new AbortController();
  port = 0;

  constructor(options: StandbyOptions, dataDirectory: string, keys: ClusterKeys) {
    this.#options = options;
    this.#dataDirectory = dataDirectory;
    this.#keys = keys;
  }

  /**
   * Listens, writes the role, and begins to follow the first control plane. Closes everything, also the copy, if that fails.
   */
  async start(completeAtMs: number, copy: LogCopy | undefined): Promise<void> {
    const { flags, clock, logger, onFatal } = this.#options;
    try {
      await this.#listen();
      await this.#storeRole(completeAtMs);
      const client = peerClient(flags.standbyOf, this.#keys, clock);
      this.#close.push(async () => client.close());
      this.#follower = Follower.start(
        {
          directory: join(this.#dataDirectory, 'storage'),
          url: peerUrl(this.#options.advertised(), this.port),
          client,
          clock,
          logger,
          completeAtMs,
          onComplete: (atMs) => this.#completed(atMs),
          onLost: onFatal,
        },
        copy,
      );
    } catch (error) {
      await this.close();
      if (this.#follower === undefined) await copy?.close();
      throw error;
    }
    this.#registerMetrics();
    logger.info({ of: flags.standbyOf, port: this.port }, 'This control plane is a standby');
  }

  async checkCertificates(): Promise<boolean> {
    return (await this.#pki?.check()) ?? false;
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error('the standby is closed'));
    for (const close of this.#close.splice(0).toReversed()) await close();
    await this.#follower?.close();
    await this.#roleWrite;
  }

  async #listen(): Promise<void> {
    const { flags, clock, logger, hosts, addresses } = this.#options;
    const pki = await ensurePki({
      directory: join(this.#dataDirectory, 'pki'),
      clock,
      logger,
      hosts,
      addresses,
      serviceIp: serviceAddress(flags.serviceClusterIpRange, KUBERNETES_ADDRESS),
    });
    this.#pki = pki;
    pki.watch(this.#stop.signal);
    const { ca, frontProxyCa, apiserver } = pki.material();
    const server = createStandbyServer({
      tls: {
        cert: apiserver.certificatePem,
        key: apiserver.privateKeyPem,
        clientCa: [ca.certificatePem, frontProxyCa.certificatePem],
      },
      isPeer: peerCheck(frontProxyCa.certificatePem, clock),
      isAdministrator: administratorCheck(ca.certificatePem, clock),
      routes: this.#routes(),
      metrics: this.#metrics,
      reason: () => this.#reason(),
      clock,
      logger,
    });
    pki.onChange(({ apiserver: next }) =>
      server.replaceCertificate({ cert: next.certificatePem, key: next.privateKeyPem }),
    );
    ({ port: this.port } = await server.listen(flags.securePort, flags.bindAddress));
    this.#close.push(() => server.close());
  }

  #routes(): readonly PeerRoute[] {
    return [
      { method: 'GET', path: STANDBY_PATH, handle: async ({ exchange }) => sendJson(exchange, 200, this.#report()) },
      {
        method: 'POST',
        path: PROMOTE_PATH,
        handle: async ({ exchange, query }) => {
          const promotion = await this.#promote(query.get('force') === 'true');
          // The server closes only after the answer.
          exchange.onClose(() => this.#promoted.resolve());
          sendJson(exchange, 200, promotion);
        },
      },
    ];
  }

  async #promote(force: boolean): Promise<object> {
    const { flags, clock, logger, advertised, onFatal } = this.#options;
    const follower = this.#follower;
    if (follower === undefined || this.#isPromoting)
      throw newStatusError(409, 'Conflict', 'the standby starts, or is being promoted');
    this.#isPromoting = true;
    const client = peerClient(flags.standbyOf, this.#keys, clock);
    try {
      await this.#roleWrite;
      const of = flags.standbyOf;
      const url = peerUrl(advertised(), this.port);
      return await promote({ follower, client, dataDirectory: this.#dataDirectory, of, url, clock, logger }, { force });
    } catch (error) {
      this.#isPromoting = false;
      // The copy was closed, and only another process opens it again.
      if (follower.isStopped) onFatal(toError(error));
      throw error;
    } finally {
      client.close();
    }
  }

  #report(): StandbyReport {
    const { flags, clock } = this.#options;
    const state = this.#follower?.state ?? NO_COPY;
    const lagSeconds = state.completeAtMs === 0 ? 0 : Math.max(0, (clock.now() - state.completeAtMs) / 1000);
    const needsKeys = state.hasSealedValues && flags.encryptionProviderConfig === '';
    const warning = needsKeys
      ? 'values are encrypted: without --encryption-provider-config, this standby cannot start once it is promoted'
      : undefined;
    return { of: flags.standbyOf, ...state, lagSeconds, warning };
  }

  #reason(): string {
    const { of, isConnected, completeAtMs, lagSeconds } = this.#report();
    const age =
      completeAtMs === 0 ? 'its copy is not complete yet' : `its copy was complete ${Math.round(lagSeconds)} s ago`;
    return `this control plane is a standby of ${of} (${isConnected ? 'connected' : 'not connected'}; ${age}): use ${of}`;
  }

  /** Stores for the next process at what time the copy was complete, at most every ten seconds. */
  #completed(atMs: number): void {
    const { clock, logger } = this.#options;
    if (this.#isPromoting || clock.monotonic() - this.#roleStoredMs < STORE_ROLE_EVERY_MS) return;
    this.#roleStoredMs = clock.monotonic();
    const write = this.#storeRole(atMs);
    background(write, { logger, what: 'Writing when the copy was complete' });
    // After a failure, which is logged, the next process knows an earlier time.
    this.#roleWrite = write.catch(() => undefined);
  }

  async #storeRole(completeAtMs: number): Promise<void> {
    const { flags } = this.#options;
    const host = ['0.0.0.0', '::'].includes(flags.bindAddress) ? '127.0.0.1' : flags.bindAddress;
    const url = peerUrl(host, this.port);
    await writeRole(this.#dataDirectory, { role: 'standby', of: flags.standbyOf, url, completeAtMs });
  }

  #registerMetrics(): void {
    const gauge = (name: string, help: string) => this.#metrics.gauge({ name, help }).with();
    const connected = gauge(
      'orchlet_standby_connected',
      'Whether this standby is connected to the first control plane.',
    );
    const revisions = gauge('orchlet_standby_lag_revisions', 'Known revisions that this standby has not copied yet.');
    const seconds = gauge(
      'orchlet_standby_lag_seconds',
      'Time since this standby had everything of the first control plane.',
    );
    const revision = gauge('orchlet_standby_revision', 'Last revision that this standby has copied.');
    const snapshots = gauge('orchlet_standby_snapshots', 'Snapshots that this standby has received since its start.');
    this.#metrics.collect(() => {
      const report = this.#report();
      connected.set(report.isConnected ? 1 : 0);
      revisions.set(report.newestRevision - report.revision);
      seconds.set(report.lagSeconds);
      revision.set(report.revision);
      snapshots.set(report.snapshots);
    });
  }
}
