/** Serves the requests of the other control plane of a pair on SQLite: for the log that a standby copies, and to step down. */
import { Backoff } from '../../api/machinery/backoff.ts';
import { background, untilDone } from '../../api/machinery/background.ts';
import { isNotFound, tolerate } from '../../api/meta/status-error.ts';
import { storageBackendOf } from '../options/storage.ts';
import type { Exchange } from '../server/exchange.ts';
import { firstRoutes } from '../standby/first.ts';
import { peerCheck, peerClient } from '../standby/identity.ts';
import { peerPaths, peerUrl } from '../standby/peer-paths.ts';
import { askToStop } from '../standby/promotion.ts';
import { readRole, writeRole } from '../standby/role.ts';
import { PublishedAddress } from './published-address.ts';
import type { Parts } from './parts.ts';

/** Returns the handler of the requests of other control planes, and `undefined` if the storage is not SQLite. */
export function peersOf(parts: Parts): ((exchange: Exchange) => boolean) | undefined {
  const { flags, clock, logger, security, directory } = parts;
  if (storageBackendOf(flags) !== 'sqlite') return undefined;
  const isPeer = peerCheck(security.pki.material().frontProxyCa.certificatePem, clock);
  return peerPaths({ isPeer, routes: firstRoutes({ ...parts, dataDirectory: directory }), logger, clock });
}

/**
 * After a promotion without the former first, asks it to take no more writes as soon as it answers. `port` is where this
 * server listens.
 */
export function stopFormerFirst({ flags, directory, security, clock, logger, signal }: Parts, port: number): void {
  if (storageBackendOf(flags) !== 'sqlite') return;
  const role = readRole(directory);
  if (role.role !== 'promoted' || role.isFenced) return;
  const { ca, frontProxyCa } = security.pki.material();
  const client = peerClient(role.from, { ca: ca.certificatePem, frontProxyCa }, clock);
  signal.addEventListener('abort', () => client.close(), { once: true });
  const host = new PublishedAddress(flags.advertiseAddress).current() ?? '127.0.0.1';
  const work = async (): Promise<void> => {
    // A standby has no such path: the former first has become one.
    const successor = { by: peerUrl(host, port), promotedAt: role.revision };
    const revision = await tolerate(askToStop(client, successor, signal), isNotFound);
    await writeRole(directory, { ...role, isFenced: true });
    logger.warn(
      { former: role.from, revision, copied: role.revision },
      'The former first control plane takes no more writes',
    );
  };
  const onError = (error: unknown, failures: number): void => {
    if (failures === 1)
      logger.warn({ err: error, former: role.from }, 'The former first control plane was not stopped yet');
  };
  const backoff = new Backoff({ firstMs: 1000, longestMs: 5000 });
  background(untilDone(work, { clock, backoff, signal, onError }), {
    logger,
    what: 'Stopping the former first control plane',
    signal,
  });
}
