/**
 * Reads which interfaces of this host lead to other hosts. The control plane chooses the address that it publishes by them, and
 * the agent the addresses of its node.
 */
import { readFileSync } from 'node:fs';

/** Networks of containers on this host, which other hosts do not reach; `orc` and ten digits is the agent's in Docker. */
const CONTAINERS = /^(docker|br-|veth|cni|cbr|orch|orc[0-9a-f]{10}$)/;

/** Whether an interface belongs to a network of containers, by its name. */
export const isContainerInterface = (name: string): boolean => CONTAINERS.test(name);

/** Returns the interfaces with a default route, the preferred one first; those of IPv4 come before those of IPv6. */
export function defaultRouteInterfaces(): readonly string[] {
  return [...new Set([...defaultsOf(read('route')), ...defaults6Of(read('ipv6_route'))])];
}

function read(name: string): string {
  try {
    return readFileSync(`/proc/net/${name}`, 'utf8');
  } catch {
    // A kernel without IPv6, or another system.
    return '';
  }
}

/**
 * Reads `/proc/net/route`: the interface, then the destination, as the seventh column the metric, and the mask after it.
 * Programs for private networks have routes to half of all addresses, which are no default routes.
 */
export function defaultsOf(text: string): string[] {
  const found = rowsOf(text).flatMap(([name = '', to, , , , , metric = '', mask]) =>
    to === '00000000' && mask === '00000000' ? [{ name, metric: Number(metric) }] : [],
  );
  return byMetric(found);
}

/** Reads `/proc/net/ipv6_route`: destination, length of its prefix, the metric as the sixth column, and the interface. */
export function defaults6Of(text: string): string[] {
  const found = rowsOf(text).flatMap((row) => {
    const name = row[9] ?? '';
    const isDefault = /^0{32}$/.test(row[0] ?? '') && row[1] === '00';
    return isDefault && name !== 'lo' && name !== '' ? [{ name, metric: Number.parseInt(row[5] ?? '', 16) }] : [];
  });
  return byMetric(found);
}

const rowsOf = (text: string): string[][] => text.split('\n').map((line) => line.trim().split(/\s+/));

const byMetric = (found: readonly { readonly name: string; readonly metric: number }[]): string[] =>
  found.toSorted((a, b) => a.metric - b.metric).map(({ name }) => name);
