/** Builds packets in hexadecimal, for tests that send what the kernel would not. */
import { spawnSync } from 'node:child_process';
import { isIPv4 } from 'node:net';
import { ipBytes } from '../../api/pki/names.ts';
import { run } from './running-cluster.ts';

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

/** Returns the checksum of SCTP (RFC 9260, appendix A), whose bytes stand in the packet in the reverse order. */
function crc32c(data: Buffer): number {
  let crc = 0xffff_ffff;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ ((crc & 1) === 0 ? 0 : 0x82f6_3b78);
  }
  return ~crc >>> 0;
}

/** Returns the first packet of an SCTP association, with its chunk INIT, without a header of IP. */
function sctpInit(from: number, to: number): string {
  const init = Buffer.alloc(32);
  init.writeUInt16BE(from, 0);
  init.writeUInt16BE(to, 2);
  init.writeUInt8(1, 12);
  init.writeUInt16BE(20, 14);
  init.writeUInt32BE(0x1234_5678, 16);
  init.writeUInt32BE(65_536, 20);
  init.writeUInt16BE(1, 24);
  init.writeUInt16BE(1, 26);
  init.writeUInt32BE(1, 28);
  init.writeUInt32LE(crc32c(init), 8);
  return init.toString('hex');
}

export const hasPerl = spawnSync('perl', ['-e', '1']).status === 0;

/** The script that sends a packet of SCTP. A kernel without SCTP sockets has raw ones for its packets. */
const SEND_SCTP = `use Socket qw(:DEFAULT getaddrinfo); my ($host, $data) = @ARGV;
my ($err, $to) = getaddrinfo($host, "", { flags => Socket::AI_NUMERICHOST, socktype => 3 });
socket(my $s, $to->{family}, 3, 132) or die $!; defined send($s, pack("H*", $data), 0, $to->{addr}) or die $!;`;

/** Sends the first packet of an SCTP association from a network namespace. */
export function sendSctp(
  namespace: string,
  { address, port }: { readonly address: string; readonly port: number },
): void {
  run('ip', ['netns', 'exec', namespace, 'perl', '-e', SEND_SCTP, address, sctpInit(40_000, port)]);
}
