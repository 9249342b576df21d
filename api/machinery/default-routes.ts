/** Reads which interfaces of this host lead to other hosts. */
import { readFileSync } from 'node:fs';

/**
 * Matches the names of interfaces of container networks, which other hosts do not reach. The agent names its own network in
 * Docker `orc` and ten hexadecimal digits.
 */
const CONTAINERS = /^(docker|br-|veth|cni|cbr|orch|orc[0-9a-f]{10}$)/;

/** Whether an interface belongs to a network of containers, by its name. */
export const isContainerInterface = (name: string): boolean => CONTAINERS.test(name);

/**
 * Returns the interfaces with a default route, the preferred one first; those of IPv4 come before those of IPv6. The list is
 * empty if the kernel does not publish its routes.
 */
export function defaultRouteInterfaces(): readonly string[] {
  return [...new Set([...defaultsOf(read('route')), ...defaults6Of(read('ipv6_route'))])];
}

function read(name: string): string {
  try {
    return readFileSync(`/proc/net/${name}`, 'utf8');
  } catch {
    // A kernel without IPv6 has no file of its routes, and another operating system has neither file.
    return '';
  }
}

/**
 * Returns the interfaces of the default routes in the text of `/proc/net/route`, by metric. The first two columns are the
 * interface and the destination, and the seventh and eighth are the metric and the mask.
 */
export function defaultsOf(text: string): string[] {
  const found = rowsOf(text).flatMap(([name = '', to, , , , , metric = '', mask]) =>
    to === '00000000' && mask === '00000000' ? [{ name, metric: Number(metric) }] : [],
  );
  return byMetric(found);
}

/**
 * Returns the interfaces of the default routes in the text of `/proc/net/ipv6_route`, by metric. The first two columns are the
 * destination and the length of its prefix, the sixth is the metric, and the tenth is the interface. The kernel's own route on
 * `lo`, which rejects packets, does not count.
 */
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
