/** The CEL libraries of Kubernetes: quantities, IP addresses and CIDRs, URLs, semantic versions and named formats. */
import { quoteText } from '../meta/quote.ts';
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
} from '../meta/ip-addresses.ts';
import {
  dnsLabelErrors,
  dnsSubdomainErrors,
  labelValueErrors,
  qualifiedNameErrors,
  rfc1035LabelErrors,
} from '../meta/names.ts';
import {
  addQuantities,
  approximate,
  compareQuantities,
  newQuantity,
  parseQuantity,
  type Quantity as QuantityValue,
  QuantityError,
  subtractQuantities,
} from '../meta/quantity.ts';
import { both, fn, type FunctionRow, method } from './functions.ts';
import { reading } from './reading-cost.ts';
import { bool, double, int, list, map, opaque, optional, string } from './types.ts';
import { CelError, type CelMap, Double, OpaqueValue, Optional } from './values.ts';

class Quantity extends OpaqueValue {
  readonly typeName = 'kubernetes.Quantity';
  readonly value: QuantityValue;
  constructor(value: QuantityValue) {
    super();
    this.value = value;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Quantity && compareQuantities(this.value, other.value) === 0;
  }
}

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

class Url extends OpaqueValue {
  readonly typeName = 'kubernetes.URL';
  readonly value: URL;
  readonly text: string;
  constructor(value: URL, text: string) {
    super();
    this.value = value;
    this.text = text;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Url && other.text === this.text;
  }
}

class Semver extends OpaqueValue {
  readonly typeName = 'kubernetes.Semver';
  readonly numbers: readonly [bigint, bigint, bigint];
  readonly prerelease: readonly string[];
  constructor(numbers: readonly [bigint, bigint, bigint], prerelease: readonly string[]) {
    super();
    this.numbers = numbers;
    this.prerelease = prerelease;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Semver && compareVersions(this, other) === 0;
  }
}

const quantity = opaque('kubernetes.Quantity');

function quantityOf(text: string): QuantityValue | undefined {
  try {
    return parseQuantity(text);
  } catch (error) {
    if (error instanceof QuantityError) return undefined;
    throw error;
  }
}

function wholeOf({ value }: Quantity): bigint | undefined {
  return value.nano % 1_000_000_000n === 0n ? value.nano / 1_000_000_000n : undefined;
}

const order = (holds: (difference: number) => boolean) => (a: Quantity, b: Quantity) =>
  holds(compareQuantities(a.value, b.value));

const quantities: FunctionRow[] = [
  fn('quantity', [string], quantity, (text: string) => {
    const value = quantityOf(text);
    if (value === undefined) {
      throw new CelError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
    }
    return new Quantity(value);
  }),
  fn('isQuantity', [string], bool, (text: string) => quantityOf(text) !== undefined),
  method('sign', [quantity], int, ({ value }: Quantity) => (value.nano > 0n ? 1n : value.nano < 0n ? -1n : 0n)),
  method(
    'isGreaterThan',
    [quantity, quantity],
    bool,
    order((difference) => difference > 0),
  ),
  method(
    'isLessThan',
    [quantity, quantity],
    bool,
    order((difference) => difference < 0),
  ),
  method('compareTo', [quantity, quantity], int, (a: Quantity, b: Quantity) =>
    BigInt(compareQuantities(a.value, b.value)),
  ),
  method('asApproximateFloat', [quantity], double, ({ value }: Quantity) => new Double(approximate(value))),
  method('isInteger', [quantity], bool, (value: Quantity) => wholeOf(value) !== undefined),
  method('asInteger', [quantity], int, (value: Quantity) => {
    const whole = wholeOf(value);
    if (whole === undefined) throw new CelError('cannot convert value to integer');
    return whole;
  }),
  method(
    'add',
    [quantity, quantity],
    quantity,
    (a: Quantity, b: Quantity) => new Quantity(addQuantities(a.value, b.value)),
  ),
  method(
    'add',
    [quantity, int],
    quantity,
    (a: Quantity, b: bigint) => new Quantity(addQuantities(a.value, newQuantity(b))),
  ),
  method(
    'sub',
    [quantity, quantity],
    quantity,
    (a: Quantity, b: Quantity) => new Quantity(subtractQuantities(a.value, b.value)),
  ),
  method(
    'sub',
    [quantity, int],
    quantity,
    (a: Quantity, b: bigint) => new Quantity(subtractQuantities(a.value, newQuantity(b))),
  ),
];

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

const addresses: FunctionRow[] = [
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

const url = opaque('kubernetes.URL');

/** Accepts an absolute URL, or an absolute path. */
function urlValue(text: string): Url | undefined {
  if (text.startsWith('/') && !text.startsWith('//')) return new Url(new URL(`path:${text}`), text);
  return /^[a-zA-Z][a-zA-Z0-9+.-]*:/.test(text) && URL.canParse(text) ? new Url(new URL(text), text) : undefined;
}

/** Keeps a scheme's default port if the URL contains it, unlike JavaScript's URL. */
function hostOf({ value, text }: Url): string {
  if (value.protocol === 'path:') return '';
  const authority = /^[a-zA-Z][a-zA-Z0-9+.-]*:\/\/([^/?#]*)/.exec(text)?.[1] ?? '';
  return authority.slice(authority.lastIndexOf('@') + 1);
}

const urls: FunctionRow[] = [
  fn('url', [string], url, (text: string) => {
    const value = urlValue(text);
    if (value === undefined)
      throw new CelError(
        `URL parse error during conversion from string: parse ${quoteText(text)}: invalid URI for request`,
      );
    return value;
  }),
  fn('isURL', [string], bool, (text: string) => urlValue(text) !== undefined),
  method('getScheme', [url], string, ({ value }: Url) =>
    value.protocol === 'path:' ? '' : value.protocol.slice(0, -1),
  ),
  method('getHost', [url], string, hostOf),
  method('getHostname', [url], string, (value: Url) =>
    hostOf(value)
      .replace(/:\d*$/, '')
      .replace(/^\[|\]$/g, ''),
  ),
  method('getPort', [url], string, (value: Url) => /:(\d+)$/.exec(hostOf(value))?.[1] ?? ''),
  method('getEscapedPath', [url], string, ({ text }: Url) =>
    text.replace(/^[a-zA-Z][a-zA-Z0-9+.-]*:(?:\/\/[^/?#]*)?/, '').replace(/[?#].*$/s, ''),
  ),
  method('getQuery', [url], map(string, list(string)), ({ value }: Url) => {
    const query: CelMap = new Map();
    for (const [name, text] of value.searchParams) {
      const known = query.get(name);
      query.set(name, Array.isArray(known) ? [...(known as string[]), text] : [text]);
    }
    return query;
  }),
];

const semver = opaque('kubernetes.Semver');
const VERSION = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$/;

function normalized(text: string): string {
  const [, core = '', rest = ''] = /^v?([0-9.]+)(.*)$/s.exec(text.trim()) ?? [];
  const parts = core.split('.').map((part) => part.replace(/^0+(?=\d)/, ''));
  while (parts.length < 3) parts.push('0');
  return parts.join('.') + rest;
}

function semverOf(text: string): Semver | undefined {
  const found = VERSION.exec(text);
  if (found === null) return undefined;
  const [, major = '0', minor = '0', patch = '0', prerelease] = found;
  return new Semver([BigInt(major), BigInt(minor), BigInt(patch)], prerelease?.split('.') ?? []);
}

function compareVersions(a: Semver, b: Semver): number {
  for (let index = 0; index < 3; index += 1) {
    const [left = 0n, right = 0n] = [a.numbers[index], b.numbers[index]];
    if (left !== right) return left < right ? -1 : 1;
  }
  if (a.prerelease.length === 0 || b.prerelease.length === 0) return b.prerelease.length - a.prerelease.length;
  for (let index = 0; index < Math.max(a.prerelease.length, b.prerelease.length); index += 1) {
    const [left, right] = [a.prerelease[index], b.prerelease[index]];
    if (left === undefined || right === undefined) return left === undefined ? -1 : 1;
    if (left === right) continue;
    const [x, y] = [/^\d+$/.test(left), /^\d+$/.test(right)];
    if (x !== y) return x ? -1 : 1;
    return (x ? Number(left) < Number(right) : left < right) ? -1 : 1;
  }
  return 0;
}

const parsedVersion = (text: string): Semver => {
  const found = semverOf(text);
  if (found === undefined)
    throw new CelError(`semver parse error during conversion from string: Invalid version ${quoteText(text)}`);
  return found;
};

const versions: FunctionRow[] = [
  fn('semver', [string], semver, parsedVersion),
  fn('semver', [string, bool], semver, (text: string, lenient: boolean) =>
    parsedVersion(lenient ? normalized(text) : text),
  ),
  fn('isSemver', [string], bool, (text: string) => semverOf(text) !== undefined),
  fn(
    'isSemver',
    [string, bool],
    bool,
    (text: string, lenient: boolean) => semverOf(lenient ? normalized(text) : text) !== undefined,
  ),
  method('major', [semver], int, ({ numbers }: Semver) => numbers[0]),
  method('minor', [semver], int, ({ numbers }: Semver) => numbers[1]),
  method('patch', [semver], int, ({ numbers }: Semver) => numbers[2]),
  method('isGreaterThan', [semver, semver], bool, (a: Semver, b: Semver) => compareVersions(a, b) > 0),
  method('isLessThan', [semver, semver], bool, (a: Semver, b: Semver) => compareVersions(a, b) < 0),
  method('compareTo', [semver, semver], int, (a: Semver, b: Semver) => BigInt(Math.sign(compareVersions(a, b)))),
];

class Format extends OpaqueValue {
  readonly typeName = 'kubernetes.NamedFormat';
  readonly name: string;
  readonly check: (text: string) => string[];
  constructor(name: string, check: (text: string) => string[]) {
    super();
    this.name = name;
    this.check = check;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Format && other.name === this.name;
  }
}

const namedFormat = opaque('kubernetes.NamedFormat');
const prefix = (check: (text: string) => string[]) => (text: string) => check(text.replace(/-$/, 'a'));
const says = (ok: (text: string) => boolean, why: string) => (text: string) => (ok(text) ? [] : [why]);

const FORMATS: Readonly<Record<string, (text: string) => string[]>> = {
  dns1123Label: dnsLabelErrors,
  dns1123Subdomain: dnsSubdomainErrors,
  dns1035Label: rfc1035LabelErrors,
  qualifiedName: qualifiedNameErrors,
  dns1123LabelPrefix: prefix(dnsLabelErrors),
  dns1123SubdomainPrefix: prefix(dnsSubdomainErrors),
  dns1035LabelPrefix: prefix(rfc1035LabelErrors),
  labelValue: labelValueErrors,
  uri: says((text) => urlValue(text) !== undefined, 'invalid URI for request'),
  uuid: says(
    (text) => /^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$/.test(text),
    'does not match the UUID format',
  ),
  byte: says((text) => /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text), 'invalid base64'),
  date: says((text) => /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text)), 'invalid date'),
  datetime: says(
    (text) => /^\d{4}-\d{2}-\d{2}[Tt].+/.test(text) && !Number.isNaN(Date.parse(text)),
    'invalid datetime',
  ),
};

const formats: FunctionRow[] = [
  ...Object.entries(FORMATS).map(([name, check]) =>
    fn(`format.${name}`, [], namedFormat, () => new Format(name, check)),
  ),
  fn('format.named', [string], optional(namedFormat), (name: string) => {
    const check = Object.hasOwn(FORMATS, name) ? FORMATS[name] : undefined;
    return new Optional(check === undefined ? undefined : new Format(name, check));
  }),
  ...both('validate', [namedFormat, string], optional(list(string)), ({ check }: Format, text: string) => {
    const errors = check(text);
    return new Optional(errors.length === 0 ? undefined : errors);
  }),
];

const patches: FunctionRow[] = [
  fn('jsonpatch.escapeKey', [string], string, (key: string) => key.replaceAll('~', '~0').replaceAll('/', '~1')),
];

/** To parse or to compare one of these values takes the time of some steps. */
const STEPS = 4;

export const kubernetesFunctions: readonly FunctionRow[] = reading(
  [...quantities, ...addresses, ...urls, ...versions, ...formats, ...patches],
  STEPS,
);
