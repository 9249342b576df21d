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

export type Part = (typeof DISABLEABLE)[number];

export const partsFlags = {
  disable: flag({
    name: 'disable',
    type: 'list',
    default: [],
    group: PARTS,
    help: `Parts that do not run: ${DISABLEABLE.join(', ')}. What they have made stays, except the addresses of load balancers.`,
    check(names) {
      const unknown = names.find((name) => !(DISABLEABLE as readonly string[]).includes(name));
      return unknown === undefined
        ? undefined
        : `${quoteText(unknown)} cannot be disabled; what can be is ${DISABLEABLE.join(', ')}`;
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

export function isPartEnabled(flags: { readonly disable: readonly string[] }, part: Part): boolean {
  return !flags.disable.includes(part);
}
