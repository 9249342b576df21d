/**
 * Compacts the history of etcd once an interval, with the protocol of kube-apiserver: all servers on one etcd, kube-apiservers
 * among them, try to write the next version of the key `compact_rev_key`, and the first one that succeeds compacts. The value
 * of the key is the compacted revision.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import { isStorageError } from '../storage.ts';
import { COMPARE_VERSION } from './etcd-interface.ts';
import type { EtcdServers } from './etcd-servers.ts';

/** The key that all servers on one etcd compete for, with kube-apiserver's name. */
export const COMPACTION_KEY = 'compact_rev_key';

interface EtcdCompactorOptions {
  readonly servers: EtcdServers;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly intervalMs: number;
  readonly signal: AbortSignal;
}

/** What a server has read at its last turn: the version of the key `compact_rev_key`, and the newest revision of etcd. */
interface Turn {
  readonly version: number;
  readonly revision: number;
}

/** Takes a turn at compacting the history of etcd in each interval, until the signal aborts. Failures are logged. */
export async function compactEtcd({ servers, clock, logger, intervalMs, signal }: EtcdCompactorOptions): Promise<void> {
  let turn: Turn = { version: 0, revision: 0 };
  const compact = async (): Promise<void> => {
    turn = await takeTurn(servers, turn);
  };
  const onError = (error: unknown): void => {
    if (!isStorageError(error, 'closed')) logger.warn({ err: error }, 'The history of etcd could not be compacted');
  };
  await periodically(compact, { clock, periodMs: intervalMs, signal, onError, first: 'later' });
}

/** Compacts up to the revision of the last turn, unless another server has taken this turn. Resolves to the turn after it. */
export async function takeTurn(servers: EtcdServers, { version, revision }: Turn): Promise<Turn> {
  const key = Buffer.from(COMPACTION_KEY);
  const { header, succeeded, responses } = await servers.run(
    (rpc, options) =>
      rpc.call(
        'txn',
        {
          compare: [{ target: COMPARE_VERSION, key, version }],
          success: [{ requestPut: { key, value: Buffer.from(String(revision)) } }],
          failure: [{ requestRange: { key } }],
        },
        options,
      ),
    { isWrite: true },
  );
  const newest = header?.revision ?? 0;
  if (!succeeded) return { version: responses[0]?.responseRange?.kvs[0]?.version ?? 0, revision: newest };
  if (revision > 0) await compactThrough(servers, revision);
  return { version: version + 1, revision: newest };
}

/** Drops the history up to `revision`, also if it is dropped already. */
export async function compactThrough(servers: EtcdServers, revision: number): Promise<void> {
  try {
    await servers.run((rpc, options) => rpc.call('compact', { revision }, options));
  } catch (error) {
    if (!isStorageError(error, 'compacted')) throw error;
  }
}
