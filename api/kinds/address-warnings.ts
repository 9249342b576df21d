/** Returns warnings about IP addresses and CIDRs that are valid but not in their canonical form. */
import { quote } from '../meta/field-error.ts';
import {
  canonicalIp,
  cidrFormErrors,
  formatCidr,
  formatIp,
  ipErrors,
  parseCidr,
  parseIp,
} from '../meta/ip-addresses.ts';

/** Returns warnings about an address that is not canonical, also one with leading zeros or of IPv4 within IPv6. */
export function ipWarnings(field: string, text: string): string[] {
  const canonical = canonicalIp(text);
  if (canonical === undefined || canonical === text) return [];
  if (ipErrors(field, text).length > 0)
    return [`${field}: non-standard IP address ${quote(text)} is invalid: use ${quote(canonical)}`];
  return parseIp(text)?.family === 6
    ? [`${field}: IPv6 address ${quote(text)} should be in RFC 5952 canonical format (${quote(canonical)})`]
    : [];
}

/** Returns warnings about a range that is not canonical, or that has bits beyond its prefix. */
export function cidrWarnings(field: string, text: string): string[] {
  const cidr = parseCidr(text);
  if (cidr === undefined) return [];
  const canonical = formatCidr(cidr);
  const warnings: string[] = [];
  if (cidr.address.value !== cidr.base) {
    const single = `${formatIp(cidr.address)}/${cidr.family === 4 ? 32 : 128}`;
    warnings.push(
      `${field}: CIDR value ${quote(text)} is ambiguous in this context (should be ${quote(canonical)} or ${quote(single)}?)`,
    );
  }
  if (cidrFormErrors(field, text).length > 0)
    warnings.push(`${field}: non-standard CIDR value ${quote(text)} is invalid: use ${quote(canonical)}`);
  if (warnings.length === 0 && cidr.family === 6 && canonical !== text)
    warnings.push(
      `${field}: IPv6 CIDR value ${quote(text)} should be in RFC 5952 canonical format (${quote(canonical)})`,
    );
  return warnings;
}
