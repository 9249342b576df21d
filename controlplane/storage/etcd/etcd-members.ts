/**
 * Reads and changes the members of an etcd cluster (API v3 over gRPC): their names and URLs, which one leads, alarms, and
 * snapshots.
 */
import { createHash } from 'node:crypto';
import { openChannel, type GrpcTls } from '../../../api/grpc/grpc-channel.ts';
import { grpcClient, type GrpcClient } from '../../../api/grpc/grpc-client.ts';
import { GrpcError } from '../../../api/grpc/grpc-error.ts';
import { EtcdError } from './etcd-client.ts';
import { etcdTarget } from './etcd-interface.ts';

/** Identifiers are unsigned integers of 64 bits, as decimal text. */
export interface EtcdMember {
  readonly id: string;
  /** The name of the member. Empty until the member has started. */
  readonly name: string;
  readonly peerUrls: readonly string[];
  /** The list is empty until the member has started. */
  readonly clientUrls: readonly string[];
  /** A learner follows the others, but has no vote. */
  readonly isLearner: boolean;
}

/** What one member reports about itself. */
export interface EtcdStatus {
  /** The member that answered. */
  readonly memberId: string;
  /** The member that leads. `0` if there is none. */
  readonly leaderId: string;
  readonly version: string;
  readonly databaseBytes: number;
  readonly isLearner: boolean;
}

const MESSAGES = {
  ResponseHeader: { clusterId: '1 decimal', memberId: '2 decimal' },
  Member: {
    id: '1 decimal',
    name: '2 string',
    peerUrls: '3 string[]',
    clientUrls: '4 string[]',
    isLearner: '5 bool',
  },
  MemberListRequest: {},
  MemberAddRequest: { peerUrls: '1 string[]', isLearner: '2 bool' },
  MemberAddResponse: { header: '1 ResponseHeader', member: '2 Member', members: '3 Member[]' },
  MemberIdRequest: { id: '1 decimal' },
  MembersResponse: { header: '1 ResponseHeader', members: '2 Member[]' },
  StatusRequest: {},
  StatusResponse: {
    header: '1 ResponseHeader',
    version: '2 string',
    dbSize: '3 decimal',
    leader: '4 decimal',
    isLearner: '10 bool',
  },
  // `action` is GET (0), ACTIVATE (1) or DEACTIVATE (2). `alarm` is NOSPACE (1) or CORRUPT (2).
  AlarmRequest: { action: '1 int32', memberId: '2 decimal', alarm: '3 int32' },
  AlarmMember: { memberId: '1 decimal', alarm: '2 int32' },
  AlarmResponse: { header: '1 ResponseHeader', alarms: '2 AlarmMember[]' },
  SnapshotRequest: {},
  SnapshotResponse: { header: '1 ResponseHeader', remainingBytes: '2 decimal', blob: '3 bytes' },
} as const;

const METHODS = {
  memberList: ['etcdserverpb.Cluster', 'MemberListRequest', 'MembersResponse'],
  memberAdd: ['etcdserverpb.Cluster', 'MemberAddRequest', 'MemberAddResponse'],
  memberRemove: ['etcdserverpb.Cluster', 'MemberIdRequest', 'MembersResponse'],
  memberPromote: ['etcdserverpb.Cluster', 'MemberIdRequest', 'MembersResponse'],
  status: ['etcdserverpb.Maintenance', 'StatusRequest', 'StatusResponse'],
  alarm: ['etcdserverpb.Maintenance', 'AlarmRequest', 'AlarmResponse'],
  snapshot: ['etcdserverpb.Maintenance', 'SnapshotRequest', 'SnapshotResponse'],
} as const;

const CALL = { timeoutMs: 10_000 };
const HASH_BYTES = 32;
/** The actions of an alarm request, and the alarm of a member whose database has reached its quota (etcd's rpc.proto). */
const GET = 0;
const ACTIVATE = 1;
const DEACTIVATE = 2;
const NOSPACE = 1;

/** A connection to one member, which must be closed. */
export class EtcdMembers {
  readonly #url: string;
  readonly #rpc: GrpcClient<typeof MESSAGES, typeof METHODS>;

  private constructor(url: string, rpc: GrpcClient<typeof MESSAGES, typeof METHODS>) {
    this.#url = url;
    this.#rpc = rpc;
  }

  /**
   * Creates the access to the member with this URL (`https://10.0.0.1:2379`). Throws `EtcdError` if the text is no such URL.
   */
  static async at(url: string, tls: GrpcTls): Promise<EtcdMembers> {
    const server = etcdTarget(url);
    if (server === undefined)
      throw new EtcdError(`${url} is not a URL of an etcd server, such as https://10.0.0.1:2379`);
    const channel = await openChannel({
      target: server.target,
      tls: server.isTls ? tls : undefined,
    });
    return new EtcdMembers(url, grpcClient(channel, { messages: MESSAGES, methods: METHODS }));
  }

  async list(): Promise<readonly EtcdMember[]> {
    return (await this.#call((rpc) => rpc.call('memberList', {}, CALL))).members;
  }

  /** Adds a member without a vote. Resolves to it, before it has started. */
  async addLearner(peerUrl: string): Promise<EtcdMember> {
    const request = { peerUrls: [peerUrl], isLearner: true };
    const { member } = await this.#call((rpc) => rpc.call('memberAdd', request, CALL));
    if (member === null) throw new EtcdError(`etcd at ${this.#url} has added no member`);
    return member;
  }

  /** Gives a learner its vote. Throws while it is behind the leader. */
  async promote(id: string): Promise<void> {
    await this.#call((rpc) => rpc.call('memberPromote', { id }, CALL));
  }

  async remove(id: string): Promise<void> {
    await this.#call((rpc) => rpc.call('memberRemove', { id }, CALL));
  }

  async status(timeoutMs = CALL.timeoutMs): Promise<EtcdStatus> {
    const { header, leader, version, dbSize, isLearner } = await this.#call((rpc) =>
      rpc.call('status', {}, { timeoutMs }),
    );
    const memberId = header?.memberId ?? '0';
    return { memberId, leaderId: leader, version, databaseBytes: Number(dbSize), isLearner };
  }

  /** Raises the alarm of a member without space, upon which the cluster takes no writes. */
  async raiseNoSpace(): Promise<void> {
    const { memberId } = await this.status();
    await this.#call((rpc) => rpc.call('alarm', { action: ACTIVATE, memberId, alarm: NOSPACE }, CALL));
  }

  /** Ends all alarms. Resolves to their number. */
  async disarm(): Promise<number> {
    const { alarms } = await this.#call((rpc) => rpc.call('alarm', { action: GET }, CALL));
    for (const { memberId, alarm } of alarms)
      await this.#call((rpc) => rpc.call('alarm', { action: DEACTIVATE, memberId, alarm }, CALL));
    return alarms.length;
  }

  /**
   * Passes the database of the member to `write`, part by part, and then its SHA-256, which is checked here. Resolves to the
   * number of bytes, with the hash. Throws `EtcdError` if the snapshot breaks off or is damaged.
   */
  async snapshot(write: (part: Buffer) => void): Promise<number> {
    const hash = createHash('sha256');
    // The last bytes are held back, because they may be those of the hash.
    let held = Buffer.alloc(0);
    let bytes = 0;
    let remaining = '';
    await this.#call((rpc) =>
      rpc.stream(
        'snapshot',
        {},
        ({ blob, remainingBytes }) => {
          write(blob);
          bytes += blob.length;
          remaining = remainingBytes;
          held = Buffer.concat([held, blob]);
          const end = Math.max(0, held.length - HASH_BYTES);
          hash.update(held.subarray(0, end));
          held = Buffer.from(held.subarray(end));
        },
        { signal: new AbortController().signal },
      ),
    );
    if (remaining !== '0' || !hash.digest().equals(held))
      throw new EtcdError(`the snapshot of etcd at ${this.#url} is incomplete or damaged`);
    return bytes;
  }

  close(): void {
    this.#rpc.close();
  }

  async #call<T>(run: (rpc: GrpcClient<typeof MESSAGES, typeof METHODS>) => Promise<T>): Promise<T> {
    try {
      return await run(this.#rpc);
    } catch (error) {
      if (!(error instanceof GrpcError)) throw error;
      throw new EtcdError(`etcd at ${this.#url} failed: ${error.details || error.message}`, { cause: error });
    }
  }
}
