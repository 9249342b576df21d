/** Starts a standby with the addresses of this host. */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import { storageBackendOf } from '../options/storage.ts';
import { type Standby, startStandby } from '../standby/standby.ts';
import { hostAddresses, hostNames } from './host-address.ts';
import { PublishedAddress } from './published-address.ts';

interface OpenStandbyOptions {
  readonly flags: ControlPlaneFlags;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called when the copy is lost: the process must exit. */
  readonly onFatal: (error: Error) => void;
}

/**
 * Starts the standby of `--standby-of`. Resolves to `undefined` if this control plane is the first of the two. Rejects as
 * `startStandby` does.
 */
export function openStandby({ flags, ...options }: OpenStandbyOptions): Promise<Standby | undefined> {
  const address = new PublishedAddress(flags.advertiseAddress);
  return startStandby({
    ...options,
    flags,
    storageBackend: storageBackendOf(flags),
    hosts: [...hostNames(), ...(flags.externalHostname === '' ? [] : [flags.externalHostname])],
    addresses: () => [...hostAddresses(), ...(flags.advertiseAddress === '' ? [] : [flags.advertiseAddress])],
    advertised: () => address.current() ?? '127.0.0.1',
  });
}
