/** Implements the CEL libraries of IP addresses and CIDRs: `cidr('10.0.0.0/8').containsIP('10.1.2.3')`. */
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

/** Parses an IP address. Returns `undefined` for zones, leading zeros and IPv4-mapped IPv6 addresses. */
function strictIp(text: string): IpAddress | undefined {
  const found = parseIp(text);
  return found === undefined || found.mapped || /(^|\.)0\d/.test(text) ? undefined : found;
}

function ipOf(text: string): Ip {
  const found = strictIp(text);
  if (found !== undefined) return new Ip(found);
  const shown = quoteText(text);
  if (parseIp(text)?.mapped === true) throw new CelError(`IPv4-mapped IPv6 address ${shown} is not allowed`);
  const [address = '', zone = ''] = text.split('%');
  if (zone !== '' && address.includes(':') && parseIp(address) !== undefined)
    throw new CelError(`IP address ${shown} with zone value is not allowed`);
  const prefix = `IP Address ${shown} parse error during conversion from string`;
  throw new CelError(`${prefix}: ParseAddr(${shown}): ${parseProblem(text)}`);
}

/** Returns the message of Go's `netip.ParseAddr` for a text that is not an address; for IPv6, only a general one. */
function parseProblem(text: string): string {
  const first = /[.:%]/.exec(text)?.[0];
  if (first === '%') return 'missing IPv6 address';
  return first === '.' ? ipv4Problem(text) : 'unable to parse IP';
}

function ipv4Problem(text: string): string {
  let [dots, value, digits] = [0, 0, 0];
  for (const [index, char] of [...text].entries()) {
    const place = ` (at ${quoteText(text.slice(index))})`;
    if (char >= '0' && char <= '9') {
      if (digits === 1 && value === 0) return 'IPv4 field has octet with leading zero';
      value = value * 10 + Number(char);
      digits++;
      if (value > 255) return 'IPv4 field has value >255';
    } else if (char !== '.') return `unexpected character${place}`;
    else if (digits === 0 || index === text.length - 1) return `IPv4 field must have at least one digit${place}`;
    else if (dots === 3) return 'IPv4 address too long';
    else [dots, value, digits] = [dots + 1, 0, 0];
  }
  return 'IPv4 address too short';
}

function strictCidr(text: string): CidrBlock | undefined {
  const found = parseCidr(text);
  return found === undefined || found.address.mapped ? undefined : found;
}

function cidrOf(text: string): Cidr {
  const found = strictCidr(text);
  if (found !== undefined) return new Cidr(found);
  if (parseCidr(text)?.address.mapped === true)
    throw new CelError(`${CIDR_PREFIX}IPv4-mapped IPv6 address ${quoteText(text)} is not allowed`);
  // kube-apiserver repeats the prefix.
  throw new CelError(`${CIDR_PREFIX}${CIDR_PREFIX}netip.ParsePrefix(${quoteText(text)}): ${prefixProblem(text)}`);
}

const CIDR_PREFIX = 'network address parse error during conversion from string: ';

/** Returns the message of Go's `netip.ParsePrefix` for a text that is not a prefix; for IPv6, see `parseProblem`. */
function prefixProblem(text: string): string {
  const slash = text.lastIndexOf('/');
  if (slash < 0) return "no '/'";
  const address = text.slice(0, slash);
  const bits = text.slice(slash + 1);
  if (strictIp(address) === undefined) return `ParseAddr(${quoteText(address)}): ${parseProblem(address)}`;
  return /^(?:0|[1-9]\d*)$/.test(bits) ? 'prefix length out of range' : `bad bits after slash: ${quoteText(bits)}`;
}

const isGlobal = (value: IpAddress): boolean =>
  !isUnspecified(value) &&
  formatIp(value) !== '255.255.255.255' &&
  !isLoopback(value) &&
  !isMulticast(value) &&
  !isLinkLocalUnicast(value);

const ofIp = (name: string, check: (value: IpAddress) => boolean): FunctionRow =>
  method(name, [ip], bool, ({ value }: Ip) => check(value));

/** The overloads of the libraries `ip` and `cidr`. */
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
  method('containsIP', [cidr, string], bool, (a: Cidr, b: string) => {
    const address = strictIp(b);
    if (address === undefined) throw new CelError('no such overload');
    return cidrContains(a.value, address);
  }),
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
