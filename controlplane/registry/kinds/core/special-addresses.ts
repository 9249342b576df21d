/** Refuses addresses to which services and endpoints must not send traffic. */
import { type FieldError, invalid } from '../../../../api/meta/field-error.ts';
import {
  isLinkLocalMulticast,
  isLinkLocalUnicast,
  isLoopback,
  isUnspecified,
  parseIp,
} from '../../../../api/meta/ip-addresses.ts';

/** Refuses unspecified, loopback and link-local addresses, because they have a meaning only on the host or the link. */
export function specialAddressErrors(field: string, address: string): FieldError[] {
  const ip = parseIp(address);
  if (ip === undefined) return [invalid(field, address, 'must be a valid IP address')];
  const errors: FieldError[] = [];
  const refuse = (why: string): void => {
    errors.push(invalid(field, address, why));
  };
  if (isUnspecified(ip)) refuse(`may not be unspecified (${address})`);
  if (isLoopback(ip)) refuse('may not be in the loopback range (127.0.0.0/8, ::1/128)');
  if (isLinkLocalUnicast(ip)) refuse('may not be in the link-local range (169.254.0.0/16, fe80::/10)');
  if (isLinkLocalMulticast(ip)) refuse('may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)');
  return errors;
}
