/**
 * Runs a member of etcd beside this control plane (`--etcd=embedded`): the first host of a cluster begins one, further hosts
 * join it.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { systemdHost, unitOf } from '../../api/component/systemd.ts';
import type { GrpcTls } from '../../api/grpc/grpc-channel.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import {
  certificatePath,
  ensureEtcdCertificates,
  etcdPaths,
  type EtcdPaths,
  keyPath,
  type MemberRecord,
  PEER_NAME,
  readMember,
  writeMember,
} from '../storage/etcd-member/etcd-files.ts';
import { memberServers } from '../storage/etcd-member/etcd-followed-members.ts';
import { addMember, promoteMember } from '../storage/etcd-member/etcd-membership.ts';
import type { EtcdRunner, EtcdRunnerOptions } from '../storage/etcd-member/etcd-runner.ts';
import { EtcdSupervisor } from '../storage/etcd-member/etcd-supervisor.ts';
import { dataDirectoryOfUnit, EtcdUnit, hostUnits } from '../storage/etcd-member/etcd-unit.ts';
import { StartError } from '../model/start-error.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import { storageBackendOf } from '../options/storage.ts';
import { EtcdError } from '../storage/etcd/etcd-client.ts';
import { EtcdServers } from '../storage/etcd/etcd-servers.ts';
import { isStorageError } from '../storage/storage.ts';
import { primaryAddress } from './host-address.ts';
import type { Setting } from './setting.ts';

/** How long a member waits for the others. */
const QUORUM_MS = 300_000;
const PROMOTE_MS = 300_000;
const REPORT_EVERY_MS = 10_000;
const READ_TIMEOUT_MS = 2000;
const READ_AGAIN_MS = 200;

/**
 * Starts etcd for `--etcd=embedded`. Resolves to the flags with those of a connection to this etcd. Rejects with a
 * `StartError`, or with the error of the storage or of the system.
 */
export async function startEmbeddedEtcd(setting: Setting): Promise<ControlPlaneFlags> {
  const { flags, clock, logger, onClose, onFatal } = setting;
  const problem = problemOf(flags);
  if (problem !== undefined) throw new StartError(problem);
  await checkBinary(flags.etcdBinary);
  const paths = etcdPaths(resolve(flags.dataDir));
  await mkdir(paths.data, { recursive: true, mode: 0o700 });
  await chmod(paths.data, 0o700);
  const record = await readMember(paths);
  // A member keeps the address by which the others know it.
  const address =
    record === undefined ? addressOf(flags) : new URL(record.peerUrl).hostname.replace(/^\[(.*)\]$/, '$1');
  const tls = await ensureEtcdCertificates(paths, address, clock.now());
  try {
    const member = record ?? (await createMember(flags, paths, { address, tls }));
    const runner = await chooseRunner({
      binary: flags.etcdBinary,
      arguments: argumentsOf(member, paths, localUrl(flags)),
      dataDirectory: paths.data,
      pidFile: paths.pid,
      logFile: paths.log,
      clock,
      logger,
      onRemoved: (error) => {
        logger.error({ err: error, directory: paths.data }, 'This member of etcd was removed from its cluster');
        onFatal?.(error);
      },
    });
    await runner.start();
    onClose(() => runner.close());
    if (member.isJoined) await becomeVoter(setting, { member, tls });
    const servers = [localUrl(flags)];
    await waitForQuorum(setting, { servers, tls, runner });
    return {
      ...flags,
      ...connectionFlags(paths, await memberServers(localUrl(flags), { asked: [localUrl(flags)], member, tls })),
    };
  } catch (error) {
    if (error instanceof EtcdError) throw new StartError(error.message, { cause: error });
    throw error;
  }
}

/** Chooses whether etcd runs as a unit of systemd or as a child process. */
async function chooseRunner(options: EtcdRunnerOptions): Promise<EtcdRunner> {
  if (!systemdHost.isRunning || process.geteuid?.() !== 0) return new EtcdSupervisor(options);
  const present = await dataDirectoryOfUnit(hostUnits);
  const isService = unitOf(process.pid, systemdHost) !== undefined;
  const isUnit = present === options.dataDirectory || (present === undefined && isService);
  return isUnit ? new EtcdUnit(options, hostUnits) : new EtcdSupervisor(options);
}

function problemOf(flags: ControlPlaneFlags): string | undefined {
  if (flags.etcdServers.length > 0) return '--etcd=embedded and --etcd-servers exclude each other';
  if (storageBackendOf(flags) !== 'etcd3')
    return `--etcd=embedded and --storage-backend=${flags.storageBackend} exclude each other`;
  if (existsSync(join(resolve(flags.dataDir), 'storage/orchlet.db')))
    return `${flags.dataDir} has a cluster in its database: give another --data-dir, or move the cluster to an etcd with 'orchlet migrate'`;
  return undefined;
}

/** Checks that etcd runs and has members without a vote, which exist since etcd 3.4. */
async function checkBinary(binary: string): Promise<void> {
  const { stdout } = await promisify(execFile)(binary, ['--version']).catch((cause: unknown) => {
    throw new StartError(
      `etcd cannot be run (${binary}): install it (apt install etcd-server), or give --etcd-binary`,
      { cause },
    );
  });
  const [, major = '0', minor = '0'] = /etcd Version: (\d+)\.(\d+)/.exec(stdout) ?? [];
  if (Number(major) < 3 || (Number(major) === 3 && Number(minor) < 4))
    throw new StartError(`${binary} is etcd ${major}.${minor}, and 3.4 or later is needed`);
}

const addressOf = (flags: ControlPlaneFlags): string => flags.etcdAddress || flags.advertiseAddress || primaryAddress();
const urlOf = (address: string, port: number): string =>
  `https://${isIPv6(address) ? `[${address}]` : address}:${port}`;
const localUrl = (flags: ControlPlaneFlags): string => urlOf('127.0.0.1', flags.etcdClientPort);

interface LocalMember {
  readonly address: string;
  readonly tls: GrpcTls;
}

/** Creates the first member of a cluster, or adds one to the cluster of `--etcd-join`. Writes its record before etcd starts. */
async function createMember(
  flags: ControlPlaneFlags,
  paths: EtcdPaths,
  { address, tls }: LocalMember,
): Promise<MemberRecord> {
  const name = `${hostname().toLowerCase()}-${randomBytes(4).toString('hex')}`;
  const peerUrl = urlOf(address, flags.etcdPeerPort);
  const isJoined = flags.etcdJoin.length > 0;
  const initialCluster = isJoined
    ? await addMember({ servers: flags.etcdJoin, tls, name, peerUrl }, systemClock)
    : `${name}=${peerUrl}`;
  const record = { name, peerUrl, clientUrl: urlOf(address, flags.etcdClientPort), initialCluster, isJoined };
  await writeMember(paths, record);
  return record;
}

function argumentsOf(member: MemberRecord, paths: EtcdPaths, local: string): readonly string[] {
  const crt = (name: 'ca' | 'server' | 'peer'): string => certificatePath(paths, name);
  return [
    ...['--name', member.name, '--data-dir', paths.data],
    ...['--listen-peer-urls', member.peerUrl, '--initial-advertise-peer-urls', member.peerUrl],
    ...[
      '--listen-client-urls',
      [...new Set([local, member.clientUrl])].join(),
      '--advertise-client-urls',
      member.clientUrl,
    ],
    ...['--initial-cluster', member.initialCluster, '--initial-cluster-state', member.isJoined ? 'existing' : 'new'],
    ...['--cert-file', crt('server'), '--key-file', keyPath(paths, 'server')],
    ...['--trusted-ca-file', crt('ca'), '--client-cert-auth=true'],
    ...['--peer-cert-file', crt('peer'), '--peer-key-file', keyPath(paths, 'peer')],
    ...['--peer-trusted-ca-file', crt('ca'), '--peer-client-cert-auth=true', '--peer-cert-allowed-cn', PEER_NAME],
    ...['--logger', 'zap', '--log-level', 'warn', '--log-outputs', paths.log],
  ];
}

/** Gives the member a vote. A member without a vote refuses most requests, so the other members are called. */
async function becomeVoter(
  { flags, clock, logger }: Setting,
  { member, tls }: { readonly member: MemberRecord; readonly tls: GrpcTls },
): Promise<void> {
  const { name, peerUrl } = member;
  // The members that were known when this one joined may be gone, so its own address is tried as well.
  const servers = [...new Set([...flags.etcdJoin, localUrl(flags)])];
  await promoteMember({ servers, tls, name, peerUrl, clock, timeoutMs: PROMOTE_MS });
  logger.info({ member: name }, 'This member of etcd has a vote');
}

interface Waiting {
  readonly servers: readonly string[];
  readonly tls: GrpcTls;
  readonly runner: EtcdRunner;
}

/**
 * Resolves when this member reads from a majority. Rejects with a `StartError` after five minutes, and at once with the error
 * of a read that fails for another reason than that etcd is unavailable.
 */
async function waitForQuorum({ clock, logger }: Setting, { servers, tls, runner }: Waiting): Promise<void> {
  const etcd = await EtcdServers.open({ servers, tls, clock });
  const startedMs = clock.monotonic();
  let reportedMs = startedMs;
  try {
    for (;;) {
      try {
        await etcd.run((rpc, options) => rpc.call('range', { key: Buffer.from('/') }, options), {
          timeoutMs: READ_TIMEOUT_MS,
        });
        return;
      } catch (error) {
        if (!isStorageError(error, 'unavailable')) throw error;
        const nowMs = clock.monotonic();
        if (nowMs - startedMs > QUORUM_MS)
          throw new StartError(`etcd has no majority: ${error.message}; its last line: ${await runner.lastLine()}`, {
            cause: error,
          });
        if (nowMs - reportedMs > REPORT_EVERY_MS) {
          reportedMs = nowMs;
          logger.warn({ err: error, lastLine: await runner.lastLine() }, 'Waiting for a majority of etcd');
        }
        await clock.sleep(READ_AGAIN_MS);
      }
    }
  } finally {
    etcd.close();
  }
}

function connectionFlags(paths: EtcdPaths, etcdServers: readonly string[]): Partial<ControlPlaneFlags> {
  return {
    etcdServers,
    etcdCafile: certificatePath(paths, 'ca'),
    etcdCertfile: certificatePath(paths, 'client'),
    etcdKeyfile: keyPath(paths, 'client'),
  };
}
