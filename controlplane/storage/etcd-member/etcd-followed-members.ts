/**
 * Keeps a control plane with a member of etcd informed of the other members, as they join and leave. It uses them while its own
 * one is down.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { GrpcTls } from '../../../api/grpc/grpc-channel.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import { EtcdError } from '../etcd/etcd-client.ts';
import type { EtcdServers } from '../etcd/etcd-servers.ts';
import { type EtcdPaths, type MemberRecord, readMember } from './etcd-files.ts';
import { withFirst } from './etcd-membership.ts';

/** The members from which the list of all members is read, and the own member. */
interface AskedMembers {
  /** The URLs of members, of which the first one that answers is used. */
  readonly asked: readonly string[];
  readonly member: Pick<MemberRecord, 'peerUrl'>;
  readonly tls: GrpcTls;
}

const CHECK_EVERY_MS = 10_000;

/**
 * Resolves to the URL of the own member, followed by a URL of each other member. Members without a vote are left out. Throws
 * `EtcdError` if none of `asked` answers.
 */
export async function memberServers(local: string, { asked, member, tls }: AskedMembers): Promise<readonly string[]> {
  const members = await withFirst(asked, tls, (etcd) => etcd.list());
  const others = members.filter(({ peerUrls, isLearner }) => !peerUrls.includes(member.peerUrl) && !isLearner);
  return [local, ...others.flatMap(({ clientUrls }) => clientUrls.slice(0, 1))];
}

/** The connections whose list of members is kept current. */
interface FollowedMembers {
  /** The members of etcd. The first URL is that of the own member. */
  readonly servers: EtcdServers;
  readonly paths: EtcdPaths;
  readonly tls: GrpcTls;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** Replaces the servers by the members of the cluster whenever these change, until the signal aborts. Never rejects. */
export async function followMembers(options: FollowedMembers): Promise<void> {
  const { servers, clock, logger, signal } = options;
  const [local = ''] = servers.urls;
  const onError = (error: unknown): void => {
    if (!(error instanceof EtcdError)) logger.error({ err: error }, 'The members of etcd cannot be read');
    else logger.debug({ err: error }, 'The members of etcd cannot be read now');
  };
  const check = (): Promise<void> => checkMembers(local, options);
  await periodically(check, { clock, periodMs: CHECK_EVERY_MS, signal, onError, first: 'later' });
}

async function checkMembers(local: string, { servers, paths, tls, logger, signal }: FollowedMembers): Promise<void> {
  const member = await readMember(paths);
  if (member === undefined) return;
  const { urls } = servers;
  // The member in use is the one that answers.
  const found = await memberServers(local, { asked: [...new Set([servers.url, ...urls])], member, tls });
  if (signal.aborted || found.toSorted().join() === urls.toSorted().join()) return;
  await servers.replace(found);
  logger.info({ servers: found }, 'The members of etcd changed');
}
