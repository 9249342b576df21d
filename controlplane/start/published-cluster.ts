/**
 * Publishes where this server is and keeps that current, as the host's addresses come and change: serving certificate,
 * `cluster-info`, and the endpoints of the service `kubernetes`.
 */
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { readPem } from '../../api/pki/pem.ts';
import { StartError } from '../model/start-error.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import { typedClient } from '../../api/client/typed-client.ts';
import { keepKubernetesService } from '../controllers/cluster-objects/kubernetes-service.ts';
import { type ServerAddresses, serverAddresses } from '../controllers/cluster-objects/server-addresses.ts';
import { keepServerIdentity } from '../controllers/cluster-objects/server-identity.ts';
import { storageBackendOf } from '../options/storage.ts';
import { ensureClusterInfo, publishedCa, publishedHost } from '../controllers/cluster-objects/node-bootstrap.ts';
import { readSignedBundle } from '../security/pki/authority-rotation.ts';
import { hostAddresses } from './host-address.ts';
import type { Parts } from './parts.ts';
import { PublishedAddress } from './published-address.ts';
import { whenRoom } from './when-room.ts';
import { peerUrl } from '../standby/peer-paths.ts';

const CHECK_MS = 10_000;

/** Resolves to the addresses of the other servers that run on the storage. Only storage on etcd can have several servers. */
export async function otherServers({ flags, storage, clock }: Parts): Promise<readonly string[]> {
  if (storageBackendOf(flags) !== 'etcd3') return [];
  const ownAddress = new PublishedAddress(flags.advertiseAddress).current();
  return (await serverAddresses(storage, clock).all()).filter((address) => address !== ownAddress);
}

/**
 * Checks that all servers on the storage have one CA. Rejects with a `StartError` if other servers run on the storage and the
 * cluster has another CA: they would refuse each other's certificates and tokens.
 */
export async function refuseOtherCa({ flags, storage, clock, clients, security }: Parts): Promise<void> {
  if (storageBackendOf(flags) !== 'etcd3') return;
  const servers = await serverAddresses(storage, clock).all();
  const clusterCa = await publishedCa(clients.system);
  if (servers.length === 0 || clusterCa === undefined) return;
  const ownCa = security.pki.material().ca.certificatePem;
  const isShared = blocksOf(ownCa).some((block) => blocksOf(clusterCa).includes(block));
  if (!isShared)
    throw new StartError(
      `the cluster on ${flags.etcdServers.join()} has another CA than ${security.pki.paths.caCertificate}, and other control planes run (${servers.join(', ')}): bring its keys to this host with 'orchlet join --control-plane'`,
    );
}

const blocksOf = (pem: string): readonly string[] =>
  readPem(pem).flatMap(({ label, text }) => (label === 'CERTIFICATE' ? text.trim() : []));

/**
 * Publishes the addresses of this server, and again when they change. `port` is where it listens. Resolves when `cluster-info`
 * is there, or when there is no room for it.
 */
export async function keepPublished(parts: Parts, port: number): Promise<void> {
  const { flags, clock, logger, clients, onClose } = parts;
  const address = new PublishedAddress(flags.advertiseAddress);
  const servers = storageBackendOf(flags) === 'etcd3' ? serverAddresses(parts.storage, clock) : undefined;
  const service = keepKubernetesService({
    client: clients.system,
    clock,
    logger,
    address: () => address.current(),
    port,
    publishes: flags.endpointReconcilerType !== 'none',
    serviceClusterCidrs: flags.serviceClusterIpRange,
    servers,
  });
  onClose(() => service.close());
  if (servers !== undefined) {
    const identity = keepServerIdentity({ client: typedClient(clients.system), clock, logger, hostname: hostname() });
    onClose(() => identity.close());
  }
  const wanted = async (): Promise<string> =>
    (await othersPublished(parts, servers, port)) ?? serverOf(parts, address, port);
  let published: string | undefined;
  await whenRoom(parts, 'The address of the API', async () => {
    published = await publish(parts, await wanted());
  });
  let checkedAddresses = hostAddresses().join();
  const loop = new WakeableLoop({
    clock,
    backoff: new Backoff({ firstMs: CHECK_MS, longestMs: CHECK_MS }),
    onError: (error) => logger.warn({ err: error }, 'A changed address of the host could not be published; retrying'),
  });
  const stop = new AbortController();
  const running = loop.run(stop.signal, async () => {
    const addresses = hostAddresses().join();
    if (addresses !== checkedAddresses) {
      await parts.security.pki.check();
      checkedAddresses = addresses;
    }
    const server = await wanted();
    if (published !== undefined && server !== published) published = await publish(parts, server);
    return CHECK_MS;
  });
  onClose(async () => {
    stop.abort(new Error('the server is closed'));
    await running;
  });
}

/**
 * Returns the URL with the host of `cluster-info`, if a running server has that address: each host that joins learns all
 * servers from that one. Returns `undefined` otherwise, and with `--external-hostname`, which every server publishes.
 */
async function othersPublished(
  { flags, clients }: Parts,
  servers: ServerAddresses | undefined,
  port: number,
): Promise<string | undefined> {
  if (servers === undefined || flags.externalHostname !== '') return undefined;
  const host = await publishedHost(clients.system);
  if (host === undefined || !(await servers.all()).includes(host)) return undefined;
  return peerUrl(host, port);
}

function serverOf({ flags }: Parts, address: PublishedAddress, port: number): string {
  return peerUrl(flags.externalHostname || (address.current() ?? '127.0.0.1'), port);
}

async function publish({ clients, security, logger }: Parts, server: string): Promise<string> {
  await ensureClusterInfo(clients.system, {
    server,
    ca: security.pki.material().ca.certificatePem,
    signedBundle: await readSignedBundle(dirname(security.pki.paths.caCertificate)),
  });
  logger.info({ server }, 'The address of the API for other hosts is published');
  return server;
}
