/** Checks of option values. A check returns the reason to reject a value, or `undefined` if it is valid. */
import { isIP } from 'node:net';
import { quoteText } from '../../api/meta/quote.ts';

type Check<T> = (value: T) => string | undefined;

/** Accepts numbers from `low` to `high`, both included. */
export function within(low: number, high: number): Check<number> {
  return (value) => (value >= low && value <= high ? undefined : `must be between ${low} and ${high}, inclusive`);
}

/** Accepts numbers from `low` on. */
export function atLeast(low: number): Check<number> {
  return (value) => (value >= low ? undefined : `must be at least ${low}`);
}

/** Accepts a port, or 0 for no port. */
export const portOrNone: Check<number> = within(0, 65_535);
/** Accepts percentages from 0 to 100. */
export const percent: Check<number> = within(0, 100);
/** Accepts 0 and more. */
export const notNegative: Check<number> = atLeast(0);

/** Accepts durations above 0, in milliseconds. */
export const positiveDuration: Check<number> = (ms) => (ms > 0 ? undefined : 'must be longer than 0');

/** Accepts one IPv4 or IPv6 address without a prefix length. */
export const address: Check<string> = (text) => (isIP(text) === 0 ? 'must be an IP address' : undefined);

/** Accepts a list of IP addresses; the reason names the first wrong one. */
export const addresses: Check<readonly string[]> = (list) => {
  const wrong = list.find((text) => isIP(text) === 0);
  return wrong === undefined ? undefined : `${quoteText(wrong)} is not an IP address`;
};

/** Accepts one address, or one of each family. `::` or `0.0.0.0` alone only selects the preferred family. */
export const nodeAddresses: Check<readonly string[]> = (list) => {
  const wrong = addresses(list);
  if (wrong !== undefined) return wrong;
  if (list.length > 2) return 'must contain no more than two addresses';
  const [first, second] = list;
  if (first === undefined || second === undefined) return undefined;
  if ([first, second].some((text) => text === '0.0.0.0' || text === '::'))
    return "dual-stack must not include '0.0.0.0' or '::'";
  return isIP(first) === isIP(second) ? 'must contain one IPv4 and one IPv6 address' : undefined;
};

/** Accepts one CIDR, or one of each family separated by a comma, and an empty text. */
export const podRanges: Check<string> = (text) => {
  if (text === '') return undefined;
  const ranges = text.split(',').map((range) => /^(.+)\/(\d{1,3})$/.exec(range));
  const families = ranges.map((range) => isIP(range?.[1] ?? ''));
  const isRight = families.every(
    (family, index) => family !== 0 && Number(ranges[index]?.[2]) <= (family === 4 ? 32 : 128),
  );
  return isRight && families.length <= 2 && new Set(families).size === families.length
    ? undefined
    : 'must be a range such as 10.244.0.0/24, or one of each family';
};

const QUANTITY = /^[+-]?(\d+(?:\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$/;

/** Accepts quantities of resources in the form of Kubernetes, such as `500m` and `10Mi`. */
export const quantity: Check<string> = (text) =>
  QUANTITY.test(text) ? undefined : `${quoteText(text)} is not a quantity such as 10Mi`;

/** Accepts an amount for each resource that can be reserved. */
export const reservation: Check<Readonly<Record<string, string>>> = (amounts) => {
  for (const [name, amount] of Object.entries(amounts)) {
    if (!['cpu', 'memory', 'ephemeral-storage', 'pid'].includes(name) && !name.startsWith('hugepages-'))
      return `cannot reserve ${quoteText(name)} resource`;
    const wrong = quantity(amount);
    if (wrong !== undefined) return wrong;
    if (amount.startsWith('-')) return `${quoteText(amount)} must not be negative`;
  }
  return undefined;
};

/** Accepts `key=value:effect` and `key:effect`. */
export const taints: Check<readonly string[]> = (list) => {
  for (const text of list) {
    const match = /^[^=:]+(?:=[^:]*)?:(\w+)$/.exec(text);
    if (match === null) return `invalid taint spec: ${text}`;
    if (!['NoSchedule', 'PreferNoSchedule', 'NoExecute'].includes(match[1] ?? ''))
      return `invalid taint spec: ${text}, unsupported taint effect`;
  }
  return undefined;
};

/** The range of `--cpu-cfs-quota-period`: 1 ms to 1 s. */
export const quotaPeriod: Check<number> = within(1, 1000);
