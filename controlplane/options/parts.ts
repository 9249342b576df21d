/**
 * Defines the flags of the parts of a cluster other than the API server. Each can be disabled, so that another program provides
 * it.
 */
import { flag } from '../../api/component/flags.ts';
import { quoteText } from '../../api/meta/quote.ts';

const PARTS = 'Parts';
const DISABLEABLE = [
  'local-storage',
  'manifests',
  'metrics-server',
  'name-server',
  'network-policies',
  'service-lb',
] as const;

/** A value of `--disable`. */
type Part = (typeof DISABLEABLE)[number];

/** Parses a port, such as `22`, or a range of ports, such as `2379-2380`. Returns `undefined` for other texts. */
export function portSpan(text: string): { readonly first: number; readonly last: number } | undefined {
  const [, from = '', to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const [first, last] = [Number(from), Number(to)];
  return from === '' || first < 1 || first > last || last > 65_535 ? undefined : { first, last };
}

/** The rows by the property under which the program reads them. */
export const partsFlags = {
  disable: flag({
    name: 'disable',
    type: 'list',
    default: [],
    group: PARTS,
    choices: DISABLEABLE,
    help: 'Parts that do not run. What they have created stays, except the addresses of load balancers.',
  }),
  serviceLbReservedPorts: flag({
    name: 'service-lb-reserved-ports',
    type: 'list',
    // ssh, etcd, the API server, VXLAN, agents and the other servers of Kubernetes, WireGuard.
    default: ['22', '2379-2380', '6443', '8472', '10248-10259', '51820'],
    group: PARTS,
    help: "Ports and ranges of ports of the nodes that no service of type LoadBalancer gets, of any protocol. The port of this server and etcd's are never allocated.",
    check(texts) {
      const wrong = texts.find((text) => portSpan(text) === undefined);
      return wrong === undefined ? undefined : `${quoteText(wrong)} is neither a port nor a range such as 10248-10259`;
    },
  }),
  manifestsDir: flag({
    name: 'manifests-dir',
    type: 'list',
    default: ['/etc/orchlet/manifests'],
    group: PARTS,
    help: 'Folders whose manifests are applied, beside manifests in the data directory.',
  }),
} as const;

/** Whether the part runs: `--disable` does not name it. */
export function isPartEnabled(flags: { readonly disable: readonly string[] }, part: Part): boolean {
  return !flags.disable.includes(part);
}
