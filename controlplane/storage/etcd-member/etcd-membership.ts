/** Decides how the members of an etcd cluster change. A member joins without a vote and gets it once it has caught up. */
import type { GrpcTls } from '../../../api/grpc/grpc-channel.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { EtcdError } from '../etcd/etcd-client.ts';
import { type EtcdMember, EtcdMembers, type EtcdStatus } from '../etcd/etcd-members.ts';

/** A member as etcd's own list has it, and its answer. */
export interface MemberHealth {
  readonly member: EtcdMember;
  /** The status that the member itself reports; `undefined` if it does not answer. */
  readonly status: EtcdStatus | undefined;
}

/** Returns why a member must not be removed, or `undefined`. Pure. */
export function removalProblem(members: readonly MemberHealth[], id: string): string | undefined {
  const leaving = members.find(({ member }) => member.id === id);
  if (leaving === undefined || leaving.member.isLearner) return undefined;
  const others = members.filter(({ member }) => member.id !== id && !member.isLearner);
  if (others.length === 0) return 'it is the only member with a vote, and has all data';
  const answering = others.filter(({ status }) => status !== undefined).length;
  const majority = Math.floor(others.length / 2) + 1;
  if (answering >= majority) return undefined;
  return `only ${answering} of the ${others.length} other members with a vote answer, and ${majority} are needed to go on`;
}

/**
 * Finds a member by its name, identifier (hexadecimal, as etcdctl prints it, or decimal), address or URL. Returns `undefined`
 * if there is none, or if several have the address.
 */
export function findMember(members: readonly EtcdMember[], text: string): EtcdMember | undefined {
  const hosts = ({ peerUrls }: EtcdMember): string[] => peerUrls.map((url) => URL.parse(url)?.hostname ?? '');
  const matches = (member: EtcdMember): boolean =>
    member.name === text || member.id === text || hexId(member.id) === text || member.peerUrls.includes(text);
  const byAddress = members.filter((member) => hosts(member).includes(text));
  return members.find(matches) ?? (byAddress.length === 1 ? byAddress[0] : undefined);
}

/** Returns the identifier as etcdctl prints it. */
export const hexId = (id: string): string => BigInt(id).toString(16);

const STATUS_MS = 3000;

/** Reads the status of each member from itself. A member that does not answer in time has none. */
export async function healthOf(members: readonly EtcdMember[], tls: GrpcTls): Promise<readonly MemberHealth[]> {
  return Promise.all(
    members.map(async (member): Promise<MemberHealth> => {
      for (const url of member.clientUrls) {
        const status = await withMembers(url, tls, (etcd) => etcd.status(STATUS_MS)).catch(() => undefined);
        if (status !== undefined) return { member, status };
      }
      return { member, status: undefined };
    }),
  );
}

/** Calls the member at this URL, and closes the connection. */
export async function withMembers<T>(url: string, tls: GrpcTls, run: (etcd: EtcdMembers) => Promise<T>): Promise<T> {
  const etcd = await EtcdMembers.at(url, tls);
  try {
    return await run(etcd);
  } finally {
    etcd.close();
  }
}

/**
 * Calls the members in turn, and resolves to the first result. Throws an `EtcdError` with all failures if no call succeeds. An
 * error of another type ends the calls at once.
 */
export async function withFirst<T>(
  urls: readonly string[],
  tls: GrpcTls,
  run: (etcd: EtcdMembers) => Promise<T>,
): Promise<T> {
  const failures: string[] = [];
  for (const url of urls) {
    try {
      return await withMembers(url, tls, run);
    } catch (error) {
      if (!(error instanceof EtcdError)) throw error;
      failures.push(error.message);
    }
  }
  throw new EtcdError(failures.join('; '));
}

/** A member that is to be added. */
interface Joining {
  /** The client URLs of members of the cluster. */
  readonly servers: readonly string[];
  readonly tls: GrpcTls;
  readonly name: string;
  readonly peerUrl: string;
}

/**
 * Adds a member without a vote, or finds the one that an interrupted join added. Resolves to all members in the form of
 * `--initial-cluster`. A cluster accepts one member at a time, so this function retries for a minute. Throws `EtcdError` after
 * that, and at once if the cluster refuses the member for another reason.
 */
export async function addMember(joining: Joining, clock: Clock): Promise<string> {
  const end = clock.monotonic() + ADD_WITHIN_MS;
  for (;;) {
    try {
      return await tryToAdd(joining);
    } catch (error) {
      const isBusy = error instanceof EtcdError && BUSY.test(error.message);
      if (!isBusy || clock.monotonic() >= end) throw error;
      await clock.sleep(RETRY_EVERY_MS);
    }
  }
}

/** etcd refuses members while another one joins, or has been connected for less than five seconds. */
const BUSY = /unhealthy cluster|too many learner members/;
const ADD_WITHIN_MS = 60_000;
/** The wait between attempts to add a member, and between attempts to promote it. */
const RETRY_EVERY_MS = 1000;

function tryToAdd({ servers, tls, name, peerUrl }: Joining): Promise<string> {
  return withFirst(servers, tls, async (etcd) => {
    const existing = (await etcd.list()).find(({ peerUrls }) => peerUrls.includes(peerUrl));
    if (existing !== undefined && existing.name !== '')
      throw new EtcdError(
        `the member ${existing.name} with the address ${peerUrl} is in the cluster, and its data are not on this host: remove it with 'orchlet etcd remove ${existing.name}' on another host first`,
      );
    if (existing === undefined) await etcd.addLearner(peerUrl);
    const members = await etcd.list();
    return members
      .flatMap((member) => member.peerUrls.map((url) => `${url === peerUrl ? name : member.name}=${url}`))
      .join(',');
  });
}

interface Promotion extends Joining {
  readonly clock: Clock;
  /** How long the member may take to catch up. After that it is removed, because it keeps others from joining. */
  readonly timeoutMs: number;
}

/** Gives a learner its vote once it has caught up. Removes it at the timeout, and throws an `EtcdError`. */
export async function promoteMember({ servers, tls, peerUrl, clock, timeoutMs }: Promotion): Promise<void> {
  const end = clock.monotonic() + timeoutMs;
  const joiningMember = async (etcd: EtcdMembers): Promise<EtcdMember | undefined> =>
    (await etcd.list()).find(({ peerUrls }) => peerUrls.includes(peerUrl));
  for (;;) {
    try {
      await withFirst(servers, tls, async (etcd) => {
        const member = await joiningMember(etcd);
        if (member === undefined) throw new EtcdError(`the cluster has no member at ${peerUrl} any more`);
        if (member.isLearner) await etcd.promote(member.id);
      });
      return;
    } catch (error) {
      if (!(error instanceof EtcdError)) throw error;
      if (clock.monotonic() < end) await clock.sleep(RETRY_EVERY_MS);
      else {
        await withFirst(servers, tls, async (etcd) => {
          const member = await joiningMember(etcd);
          if (member?.isLearner === true) await etcd.remove(member.id);
        });
        const why = `the member at ${peerUrl} has not caught up within ${timeoutMs / 1000} s and was removed again`;
        throw new EtcdError(`${why}: ${error.message}`, { cause: error });
      }
    }
  }
}
