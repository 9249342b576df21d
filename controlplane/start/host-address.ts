/** Finds the names and addresses of this host. */
import { hostname, networkInterfaces } from 'node:os';

/** Returns all addresses of the host except link-local ones of IPv6, loopback last. */
export function hostAddresses(): string[] {
  const found = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
  const usable = found.filter((entry) => !entry.address.startsWith('fe80:'));
  return [...usable.filter((entry) => !entry.internal), ...usable.filter((entry) => entry.internal)].map(
    (entry) => entry.address,
  );
}

/** Returns the first address of the host that is not loopback, and `127.0.0.1` if there is none. */
export function primaryAddress(): string {
  return hostAddresses().find((address) => !address.startsWith('127.') && address !== '::1') ?? '127.0.0.1';
}

/** Returns the name of the host and `localhost`. The host's name is in lower case, as certificates have it. */
export function hostNames(): string[] {
  return ['localhost', hostname().toLowerCase()];
}
