/**
 * Publishes where this server is and keeps that current, as the host's addresses come and change: serving certificate,
 * `cluster-info`, and the endpoints of the service `kubernetes`.
 */
import { dirname } from 'node:path';
import { Backoff } from '../../api/machinery/backoff.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import { keepKubernetesService } from '../bootstrap/kubernetes-service.ts';
import { ensureClusterInfo } from '../bootstrap/node-bootstrap.ts';
import { readSignedBundle } from '../pki/authority-rotation.ts';
import { hostAddresses } from './host-address.ts';
import type { Parts } from './parts.ts';
import { PublishedAddress } from './published-address.ts';

const CHECK_MS = 10_000;

/** `port`: where the server listens. Resolves when `cluster-info` is there. */
export async function keepPublished(parts: Parts, port: number): Promise<void> {
  const { flags, clock, logger, clients, onClose } = parts;
  const address = new PublishedAddress(flags.advertiseAddress);
  const service = keepKubernetesService({
    client: clients.system,
    clock,
    logger,
    address: () => address.current(),
    port,
    serviceClusterCidrs: flags.serviceClusterIpRange,
  });
  onClose(() => service.close());
  let published = await publish(parts, address, port);
  let known = hostAddresses().join();
  const loop = new WakeableLoop({
    clock,
    backoff: new Backoff({ firstMs: CHECK_MS, longestMs: CHECK_MS }),
    onError: (error) => logger.warn({ err: error }, 'A changed address of the host could not be published; retrying'),
  });
  const stop = new AbortController();
  const running = loop.run(stop.signal, async () => {
    const found = hostAddresses().join();
    if (found !== known) {
      await parts.security.pki.check();
      known = found;
    }
    if (serverOf(parts, address, port) !== published) published = await publish(parts, address, port);
    return CHECK_MS;
  });
  onClose(async () => {
    stop.abort(new Error('the server is closed'));
    await running;
  });
}

function serverOf({ flags }: Parts, address: PublishedAddress, port: number): string {
  const host = flags.externalHostname || (address.current() ?? '127.0.0.1');
  return `https://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

async function publish(parts: Parts, address: PublishedAddress, port: number): Promise<string> {
  const { clients, security, logger } = parts;
  const server = serverOf(parts, address, port);
  await ensureClusterInfo(clients.system, {
    server,
    ca: security.pki.material().ca.certificatePem,
    signedBundle: await readSignedBundle(dirname(security.pki.paths.caCertificate)),
  });
  logger.info({ server }, 'The address of the API for other hosts is published');
  return server;
}
