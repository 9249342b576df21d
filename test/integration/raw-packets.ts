/** Builds packets in hexadecimal, for tests that send what the kernel would not. */
import { isIPv4 } from 'node:net';
import { ipBytes } from '../../api/pki/names.ts';

/** Returns the bytes of an address in hexadecimal. */
export const ip = (address: string): string => ipBytes(address).toString('hex');
/** Returns the checksum of an IP or UDP header (RFC 1071) in hexadecimal. */
export const checksum = (data: Buffer): string => {
  let sum = 0;
  for (let at = 0; at < data.length; at += 2) sum += data.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return (~sum & 0xffff).toString(16).padStart(4, '0');
};

/** Returns a UDP packet from port 1 to port 2 without a payload, after the type of its frame. */
export function packet(from: string, to: string): string {
  const udp = '0001000200080000';
  if (!isIPv4(from)) return `86dd60000000000811ff${ip(from)}${ip(to)}${udp}`;
  const header = (sum: string): string => `4500001c00000000ff11${sum}${ip(from)}${ip(to)}`;
  return `0800${header(checksum(Buffer.from(header('0000'), 'hex')))}${udp}`;
}
