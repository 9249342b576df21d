/** Formats of strings in schemas. A format that is not known fits everything. */
import { parseCidr, parseIp } from '../../../api/meta/ip-addresses.ts';

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

export function fitsFormat(format: string, text: string): boolean {
  const pattern = UUIDS[format];
  if (pattern !== undefined) return pattern.test(text);
  switch (format) {
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
