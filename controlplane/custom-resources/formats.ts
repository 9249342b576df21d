/** Checks the formats of values in schemas. A format that is not known accepts every value. */
import { dnsLabelErrors, dnsSubdomainErrors } from '../../api/meta/names.ts';
import { parseCidr, parseIp } from '../../api/meta/ip-addresses.ts';
import { itemsOf, type JsonSchema } from './json-schema.ts';

const HOSTNAME = /^([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*\.?$/;
const DATE_TIME = /^(\d{4}-\d{2}-\d{2})[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:?\d{2})$/;
const uuid = (version: string): RegExp =>
  new RegExp(`^[0-9a-f]{8}-?[0-9a-f]{4}-?${version}[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$`, 'i');
const UUIDS: Readonly<Record<string, RegExp>> = {
  uuid: uuid('[0-9a-f]'),
  uuid3: uuid('3'),
  uuid4: uuid('4'),
  uuid5: uuid('5'),
};

const COLOR_PART = '\\s*(?:0|[1-9]\\d?|1\\d\\d?|2[0-4]\\d|25[0-5])\\s*';
const PATTERNS: ReadonlyMap<string, RegExp> = new Map(
  Object.entries({
    ...UUIDS,
    mac: /^(?:[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?:(?:\1[0-9a-f]{2}){2})?|[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}(?:\.[0-9a-f]{4})?)$/i,
    ssn: /^\d{3}[- ]?\d{2}[- ]?\d{4}$/,
    hexcolor: /^#?(?:[0-9a-f]{3}|[0-9a-f]{6})$/i,
    rgbcolor: new RegExp(`^rgb\\(${COLOR_PART},${COLOR_PART},${COLOR_PART}\\)$`),
    bsonobjectid: /^[0-9a-f]{24}$/i,
  }),
);

const GO_DURATION = /^[+-]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)$/;
const UNITS = ['ns', 'us', 'µs', 'ms', 's', 'm', 'h', 'hr', 'd', 'w', 'wk'];
/** Units that are matched by their prefix, such as `minutes`. */
const LONG_UNITS = ['nano', 'micro', 'milli', 'sec', 'min', 'hour', 'day', 'week'];

/** Whether the text is a duration such as `1h30m` or `2 days`. */
function isDuration(text: string): boolean {
  if (GO_DURATION.test(text)) return true;
  return [...text.matchAll(/(?<!\d)\d+\s*([A-Za-zµ]+)/g)].some(([, word = '']) => {
    const unit = word.toLowerCase();
    return UNITS.includes(unit) || LONG_UNITS.some((long) => unit.startsWith(long));
  });
}

/** Checks the last digit, which is a checksum of the others. */
function isIsbn(text: string, length: 10 | 13): boolean {
  const digits = text.replace(/[\s-]+/g, '');
  if (length === 10) {
    if (!/^\d{9}[\dX]$/.test(digits)) return false;
    const sum = [...digits].reduce((total, digit, at) => total + (digit === 'X' ? 10 : Number(digit)) * (10 - at), 0);
    return sum % 11 === 0;
  }
  if (!/^\d{13}$/.test(digits)) return false;
  return [...digits].reduce((total, digit, at) => total + Number(digit) * (at % 2 === 0 ? 1 : 3), 0) % 10 === 0;
}

function isCreditCard(text: string): boolean {
  const digits = text.replace(/\D+/g, '');
  if (!CARD.test(digits)) return false;
  const sum = [...digits].toReversed().reduce((total, digit, at) => {
    const value = Number(digit) * (at % 2 === 0 ? 1 : 2);
    return total + (value > 9 ? value - 9 : value);
  }, 0);
  return sum % 10 === 0;
}

const CARD =
  /^(?:4\d{12}(?:\d{3})?|5[1-5]\d{14}|(?:222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|(?:2131|1800|35\d{3})\d{11}|6[27]\d{14})$/;

const OTHERS: ReadonlySet<string> = new Set([
  'duration',
  'isbn',
  'isbn10',
  'isbn13',
  'creditcard',
  'k8s-short-name',
  'k8s-long-name',
  'date',
  'date-time',
  'datetime',
  'ipv4',
  'ipv6',
  'cidr',
  'email',
  'hostname',
  'uri',
  'byte',
  'password',
]);

const OF_NUMBERS: ReadonlySet<string> = new Set(['int32', 'int64', 'float', 'double']);

function isKnown({ type = '', format = '' }: JsonSchema): boolean {
  if (format === '') return true;
  if (type === 'string') return OTHERS.has(format) || PATTERNS.has(format);
  return type === '' || ((type === 'integer' || type === 'number') && OF_NUMBERS.has(format));
}

/** Returns all formats in the schema that validation does not know for the type of their value. */
export function unknownFormats(schema: JsonSchema): string[] {
  const { format = '', properties = {}, additionalProperties } = schema;
  const items = itemsOf(schema);
  const inner = [
    ...Object.values(properties),
    ...(items === undefined ? [] : [items]),
    ...(typeof additionalProperties === 'object' ? [additionalProperties] : []),
  ];
  return [...(isKnown(schema) ? [] : [format]), ...inner.flatMap(unknownFormats)];
}

/** Whether an integer is in the range of its format. */
export function fitsIntegerFormat(format: string, value: number | bigint): boolean {
  if (format !== 'int32' && format !== 'int64') return true;
  const bits = format === 'int32' ? 31 : 63;
  return value >= -(2 ** bits) && BigInt.asIntN(bits + 1, BigInt(value)) === BigInt(value);
}

export function fitsFormat(format: string, text: string): boolean {
  const pattern = PATTERNS.get(format);
  if (pattern !== undefined) return pattern.test(text);
  switch (format) {
    case 'duration':
      return isDuration(text);
    case 'isbn':
      return isIsbn(text, 10) || isIsbn(text, 13);
    case 'isbn10':
      return isIsbn(text, 10);
    case 'isbn13':
      return isIsbn(text, 13);
    case 'creditcard':
      return isCreditCard(text);
    case 'k8s-short-name':
      return dnsLabelErrors(text).length === 0;
    case 'k8s-long-name':
      return dnsSubdomainErrors(text).length === 0;
    case 'date':
      return isDate(text);
    case 'date-time':
    case 'datetime': {
      const parts = DATE_TIME.exec(text);
      return parts !== null && isDate(parts[1] ?? '');
    }
    case 'ipv4':
      return !text.includes(':') && parseIp(text) !== undefined;
    case 'ipv6':
      return text.includes(':') && parseIp(text) !== undefined;
    case 'cidr':
      return parseCidr(text) !== undefined;
    case 'email':
      return /^[^\s@<>]+@[^\s@<>]+$/.test(text);
    case 'hostname':
      return text.length <= 255 && HOSTNAME.test(text);
    case 'uri':
      return URL.canParse(text) || text.startsWith('/');
    case 'byte':
      return /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text);
    default:
      return true;
  }
}

function isDate(text: string): boolean {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return false;
  const time = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(text);
}
