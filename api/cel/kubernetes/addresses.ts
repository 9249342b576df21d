/** The CEL libraries of IP addresses and CIDRs: `cidr('10.0.0.0/8').containsIP('10.1.2.3')`. */
import {
  type Cidr as CidrBlock,
  cidrContains,
  cidrCovers,
  formatCidr,
  formatIp,
  type Ip as IpAddress,
  isLinkLocalMulticast,
  isLinkLocalUnicast,
  isLoopback,
  isMulticast,
  isUnspecified,
  parseCidr,
  parseIp,
} from '../../meta/ip-addresses.ts';
import { quoteText } from '../../meta/quote.ts';
import { fn, type FunctionRow, method } from '../functions.ts';
import { bool, int, opaque, string } from '../types.ts';
import { CelError, OpaqueValue } from '../values.ts';

class Ip extends OpaqueValue {
  readonly typeName = 'net.IP';
  readonly value: IpAddress;
  constructor(value: IpAddress) {
    super();
    this.value = value;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Ip && other.value.family === this.value.family && other.value.value === this.value.value;
  }
}

class Cidr extends OpaqueValue {
  readonly typeName = 'net.CIDR';
  readonly value: CidrBlock;
  constructor(value: CidrBlock) {
    super();
    this.value = value;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Cidr && formatCidr(other.value) === formatCidr(this.value);
  }
}

const ip = opaque('net.IP');
const cidr = opaque('net.CIDR');

/** Rejects zones, leading zeros and IPv4-mapped IPv6 addresses. */
function strictIp(text: string): IpAddress | undefined {
  const found = parseIp(text);
  return found === undefined || found.mapped || /(^|\.)0\d/.test(text) ? undefined : found;
}

function ipOf(text: string): Ip {
  const found = strictIp(text);
  if (found === undefined)
    throw new CelError(`IP Address ${quoteText(text)} parse error during conversion from string`);
  return new Ip(found);
}

function strictCidr(text: string): CidrBlock | undefined {
  const found = parseCidr(text);
  return found === undefined || found.address.mapped ? undefined : found;
}

function cidrOf(text: string): Cidr {
  const found = strictCidr(text);
  if (found === undefined)
    throw new CelError(`network address parse error during conversion from string: ${quoteText(text)}`);
  return new Cidr(found);
}

const isGlobal = (value: IpAddress): boolean =>
  !isUnspecified(value) &&
  formatIp(value) !== '255.255.255.255' &&
  !isLoopback(value) &&
  !isMulticast(value) &&
  !isLinkLocalUnicast(value);

const ofIp = (name: string, check: (value: IpAddress) => boolean): FunctionRow =>
  method(name, [ip], bool, ({ value }: Ip) => check(value));

export const addresses: readonly FunctionRow[] = [
  fn('ip', [string], ip, ipOf),
  method('ip', [cidr], ip, ({ value }: Cidr) => new Ip(value.address)),
  fn('isIP', [string], bool, (text: string) => strictIp(text) !== undefined),
  fn('ip.isCanonical', [string], bool, (text: string) => formatIp(ipOf(text).value) === text),
  fn('string', [ip], string, ({ value }: Ip) => formatIp(value)),
  method('family', [ip], int, ({ value }: Ip) => BigInt(value.family)),
  ofIp('isUnspecified', isUnspecified),
  ofIp('isLoopback', isLoopback),
  ofIp('isLinkLocalMulticast', isLinkLocalMulticast),
  ofIp('isLinkLocalUnicast', isLinkLocalUnicast),
  ofIp('isGlobalUnicast', isGlobal),
  fn('cidr', [string], cidr, cidrOf),
  fn('isCIDR', [string], bool, (text: string) => strictCidr(text) !== undefined),
  fn('string', [cidr], string, ({ value }: Cidr) => `${formatIp(value.address)}/${value.prefixLength}`),
  method('containsIP', [cidr, ip], bool, (a: Cidr, b: Ip) => cidrContains(a.value, b.value)),
  method('containsIP', [cidr, string], bool, (a: Cidr, b: string) => cidrContains(a.value, ipOf(b).value)),
  method('containsCIDR', [cidr, cidr], bool, (a: Cidr, b: Cidr) => cidrCovers(a.value, b.value)),
  method('containsCIDR', [cidr, string], bool, (a: Cidr, b: string) => cidrCovers(a.value, cidrOf(b).value)),
  method('prefixLength', [cidr], int, ({ value }: Cidr) => BigInt(value.prefixLength)),
  method(
    'masked',
    [cidr],
    cidr,
    ({ value }: Cidr) => new Cidr({ ...value, address: { family: value.family, value: value.base, mapped: false } }),
  ),
];
