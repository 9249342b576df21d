/** Finds the etcd that the control plane of a data directory runs (`--etcd=embedded`), for the commands of this host. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { GrpcTls } from '../../api/grpc/grpc-channel.ts';
import {
  certificatePath,
  etcdPaths,
  keyPath,
  readEtcdClient,
  readMember,
} from '../../controlplane/storage/etcd-member/etcd-files.ts';
import { withFirst, withMembers } from '../../controlplane/storage/etcd-member/etcd-membership.ts';
import type { EtcdMember } from '../../controlplane/storage/etcd/etcd-members.ts';
import { CommandError } from '../command-line/command.ts';
import type { EmbeddedEtcd } from './control-plane-bundle.ts';
import type { CommandIo } from '../command-line/io.ts';
import { withRightsOfOwner } from '../host/owner-rights.ts';

/** The etcd of one data directory, as its own member sees the cluster. */
export interface OwnEtcd {
  readonly tls: GrpcTls;
  /** The URL of the own member. */
  readonly ownUrl: string;
  /** All members of the cluster, also those that have not started. */
  readonly members: readonly EtcdMember[];
  /** The URLs of all members that have started. The own one is first. */
  readonly urls: readonly string[];
}

/** Finds the etcd of a control plane as `findOwnEtcd` does, with the rights of this process. */
async function ownEtcdOf(dataDirectory: string): Promise<OwnEtcd | undefined> {
  const paths = etcdPaths(resolve(dataDirectory));
  const [record, tls] = await Promise.all([readMember(paths), readEtcdClient(paths)]);
  if (record === undefined || tls === undefined) return undefined;
  const members = await withMembers(record.clientUrl, tls, (etcd) => etcd.list());
  const all = members.flatMap(({ clientUrls }) => clientUrls.slice(0, 1));
  return { tls, ownUrl: record.clientUrl, members, urls: [...new Set([record.clientUrl, ...all])] };
}

/**
 * Finds the etcd that the control plane of this host runs. Resolves to `undefined` if the control plane runs no etcd. Rejects
 * with `EtcdError` if its etcd does not answer.
 */
export function findOwnEtcd(dataDirectory: string, io: CommandIo): Promise<OwnEtcd | undefined> {
  return withRightsOfOwner(dataDirectory, io, () => ownEtcdOf(dataDirectory));
}

/** Finds the etcd as `findOwnEtcd` does. Rejects with `CommandError` if the control plane runs none. */
export async function requireOwnEtcd(dataDirectory: string, io: CommandIo): Promise<OwnEtcd> {
  const etcd = await findOwnEtcd(dataDirectory, io);
  if (etcd !== undefined) return etcd;
  throw new CommandError(
    `the control plane of ${dataDirectory} runs no etcd: give the --data-dir of one that runs with --etcd=embedded`,
  );
}

/** Resolves to what a further control plane needs to join the etcd of this host. `undefined` if there is none. */
export async function embeddedEtcdOf(dataDirectory: string): Promise<EmbeddedEtcd | undefined> {
  const etcd = await ownEtcdOf(dataDirectory);
  if (etcd === undefined) return undefined;
  const paths = etcdPaths(resolve(dataDirectory));
  const [caCertificate, caKey] = await Promise.all([
    readFile(certificatePath(paths, 'ca')),
    readFile(keyPath(paths, 'ca')),
  ]);
  return { caCertificate, caKey, members: etcd.urls };
}

/**
 * Removes a member through the first other member that answers, because a removed member stops at once. An only member is asked
 * itself.
 */
export function removeMember(etcd: OwnEtcd, leaving: EtcdMember): Promise<void> {
  const others = etcd.urls.filter((url) => !leaving.clientUrls.includes(url));
  return withFirst(others.length === 0 ? etcd.urls : others, etcd.tls, (one) => one.remove(leaving.id));
}
