/** Checks the formats of values in schemas. A format that is not known accepts every value. */
import { isRequestUri } from '../../../api/meta/go-url.ts';
import { parseCidr, parseIp } from '../../../api/meta/ip-addresses.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../../../api/meta/names.ts';
import { isBase64, isDate, isDateTime, uuidPattern } from '../../../api/meta/text-formats.ts';
import { innerSchemas, type JsonSchema } from './json-schema.ts';

/**
 * Matches a hostname. A single label has a dash at most as its second character, and a name with dots ends in a label of
 * letters, as in the OpenAPI library of kube-apiserver.
 */
const HOSTNAME =
  /^(?:[a-zA-Z0-9\p{S}\p{L}]-?[a-zA-Z0-9\p{S}\p{L}]{0,62}|(?:[a-zA-Z0-9\p{S}\p{L}](?:[a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?\.)+[a-zA-Z\p{L}]{2,63})$/u;
const UUIDS: Readonly<Record<string, RegExp>> = {
  uuid: uuidPattern('[0-9a-f]'),
  uuid3: uuidPattern('3'),
  uuid4: uuidPattern('4', '[89ab]'),
  uuid5: uuidPattern('5', '[89ab]'),
};

const COLOR_PART = '\\s*(?:0|[1-9]\\d?|1\\d\\d?|2[0-4]\\d|25[0-5])\\s*';
const PATTERNS: ReadonlyMap<string, RegExp> = new Map(
  Object.entries({
    ...UUIDS,
    mac: /^(?:[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?:(?:\1[0-9a-f]{2}){2}|(?:\1[0-9a-f]{2}){14})?|[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}(?:\.[0-9a-f]{4}|(?:\.[0-9a-f]{4}){7})?)$/i,
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
  /^(?:4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|(?:2131|1800|35\d{3})\d{11})$/;

/** The formats of texts that `fitsFormat` checks without a pattern. */
const WITHOUT_PATTERN: ReadonlySet<string> = new Set([
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

const isKnown = ({ type, format = '' }: JsonSchema): boolean => format === '' || formatOf(type, format) !== '';

/** Returns all formats in the schema that validation does not know for the type of their value. */
export function unknownFormats(schema: JsonSchema): string[] {
  const { format = '' } = schema;
  return [...(isKnown(schema) ? [] : [format]), ...[...innerSchemas(schema)].flatMap(unknownFormats)];
}

/** Whether the format is one of integers and numbers, which are checked by range. */
export const isNumberFormat = (format: string): boolean => OF_NUMBERS.has(format);

/** Returns the format that validation checks for a type, or `''` if it checks none. */
export function formatOf(type = '', format = ''): string {
  if (type === 'integer') return format === 'int32' || format === 'int64' ? format : '';
  if (type === 'number') return format === 'float' || format === 'double' ? format : '';
  return (type === '' || type === 'string') && (WITHOUT_PATTERN.has(format) || PATTERNS.has(format)) ? format : '';
}

/** Whether the text has the format, by the rules of kube-openapi. True for a format that is not known. */
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
    case 'datetime':
      return isDateTime(text);
    case 'ipv4':
      return text.includes('.') && parseIp(text) !== undefined;
    case 'ipv6':
      return text.includes(':') && parseIp(text) !== undefined;
    case 'cidr':
      return parseCidr(text) !== undefined;
    case 'email':
      return EMAIL.test(text);
    case 'hostname':
      return text.length <= 255 && HOSTNAME.test(text) && text.split('.').every(({ length }) => length <= 63);
    case 'uri':
      return isRequestUri(text);
    case 'byte':
      return isBase64(text);
    default:
      return true;
  }
}

const ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\u0080-\\u{10ffff}-]+";
const ADDRESS = `(?:${ATOM}(?:\\.${ATOM})*|"(?:[^"\\\\]|\\\\.)*")@(?:${ATOM}(?:\\.${ATOM})*|\\[[^\\[\\]]*\\])`;
/** An address alone, or in angle brackets after the name of its owner. */
const EMAIL = new RegExp(`^\\s*(?:${ADDRESS}|(?:[^<>@,;:\\s][^<>@,;:]*)?<${ADDRESS}>)\\s*$`, 'u');
