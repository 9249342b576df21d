/**
 * Keeps a Lease in kube-system for each running API server, like kube-apiserver. Each server removes the Leases of servers that
 * have not run for a long time.
 */
import { createHash, randomUUID } from 'node:crypto';
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import { type Clock, formatMicroTime } from '../../../api/machinery/clock.ts';
import type { Lease } from '../../../api/kinds/kinds.ts';
import { leases } from '../../../api/client/resources.ts';
import type { TypedClient } from '../../../api/client/typed-client.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { isConflict, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { HOSTNAME_LABEL } from '../../../api/meta/well-known-labels.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

const LABEL = 'apiserver.kubernetes.io/identity';
const VALUE = 'kube-apiserver';
/** The interval of renewals. This and the times below are those of kube-apiserver. */
const RENEW_MS = 10_000;
const DURATION_SECONDS = 3600;
const CLEAN_UP_MS = 3_600_000;
/** The digits of base32 in lower case (RFC 4648). */
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
const NAME_BYTES = 16;

interface ServerIdentityOptions {
  readonly client: TypedClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly hostname: string;
}

/** Returns the name of a server, which is the same after each start on its host. */
export function serverName(hostname: string): string {
  const digest = createHash('sha256').update(hostname).digest().subarray(0, NAME_BYTES);
  const bits = [...digest].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  const digits = bits.match(/.{1,5}/g) ?? [];
  return `apiserver-${digits.map((five) => ALPHABET.charAt(Number.parseInt(five.padEnd(5, '0'), 2))).join('')}`;
}

/** Renews the Lease until it is closed. Failures are logged and tried again. */
export function keepServerIdentity(options: ServerIdentityOptions): { close(): Promise<void> } {
  const { clock, logger, hostname } = options;
  const name = serverName(hostname);
  const holder = `${name}_${randomUUID()}`;
  const stop = new AbortController();
  const loop = new WakeableLoop({
    clock,
    backoff: new Backoff({ firstMs: RENEW_MS, longestMs: RENEW_MS }),
    onError: (error) => logger.warn({ err: error, lease: name }, 'The Lease of this server could not be renewed'),
  });
  let cleanedMs = Number.NEGATIVE_INFINITY;
  const running = loop.run(stop.signal, async () => {
    await renew(options, name, holder);
    if (clock.monotonic() - cleanedMs >= CLEAN_UP_MS) {
      await cleanUp(options);
      cleanedMs = clock.monotonic();
    }
    return RENEW_MS;
  });
  return {
    async close() {
      stop.abort(new Error('the server is closed'));
      await running;
    },
  };
}

async function renew({ client, clock, hostname }: ServerIdentityOptions, name: string, holder: string): Promise<void> {
  const found: Lease | undefined = await tolerate(client.get(leases, SYSTEM_NAMESPACE, name), isNotFound);
  const labels = { [LABEL]: VALUE, [HOSTNAME_LABEL]: hostname };
  const spec = {
    holderIdentity: holder,
    leaseDurationSeconds: DURATION_SECONDS,
    renewTime: formatMicroTime(clock.now()),
  };
  if (found === undefined) {
    const metadata = { name, namespace: SYSTEM_NAMESPACE, labels };
    await client.create(leases, SYSTEM_NAMESPACE, {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata,
      spec,
    });
    return;
  }
  const metadata = { ...found.metadata, labels: { ...found.metadata.labels, ...labels } };
  await tolerate(client.update(leases, { ...found, metadata, spec }), isConflict);
}

async function cleanUp({ client, clock }: ServerIdentityOptions): Promise<void> {
  const { items } = await client.list(leases, { namespace: SYSTEM_NAMESPACE, labelSelector: `${LABEL}=${VALUE}` });
  for (const lease of items) {
    const { renewTime, leaseDurationSeconds = 0 } = lease.spec ?? {};
    const renewedMs = renewTime === undefined ? Number.NaN : Date.parse(renewTime);
    if (!(renewedMs + leaseDurationSeconds * 1000 < clock.now())) continue;
    const { name = '', resourceVersion } = lease.metadata;
    const preconditions = resourceVersion === undefined ? {} : { preconditions: { resourceVersion } };
    const deletion = client.delete(leases, SYSTEM_NAMESPACE, name, preconditions);
    await tolerate(deletion, (error) => isNotFound(error) || isConflict(error));
  }
}
