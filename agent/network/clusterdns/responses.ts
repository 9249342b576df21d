/** Builds DNS responses: truncated to what the client can take, and with an SOA record where they deny something. Pure. */
import dnsPacket, { type Answer, type DecodedPacket } from 'dns-packet';
import { MessageWriter } from './message-writer.ts';
import type { DnsRecord } from './records.ts';
import { LONGEST_MESSAGE_BYTES } from './upstream.ts';

/** The transport of a query, which decides how long its response may be. */
export type Transport = 'udp' | 'tcp';

/** The answer to a query. `code` is the RCODE, for example 3 for NXDOMAIN. */
export interface Resolved {
  readonly code: number;
  readonly answers: readonly Answer[];
  readonly additionals: readonly Answer[];
}

const TTL_SECONDS = 5;
/** The maximum size of a UDP response to a client without EDNS. */
const PLAIN_UDP_BYTES = 512;
/**
 * The maximum size of any UDP response, and the advertised EDNS buffer, as DNS flag day 2020 recommends to prevent fragments.
 */
export const MAX_UDP_BYTES = 1232;
/** The size of the record OPT without options. */
const OPTION_BYTES = 11;
/** The bits of a response code that the header has room for. */
const CODE_OF_HEADER = 0xf;
/** The shortest record in a response: the root as name, type, class, TTL, length and an IPv4 address. */
export const SHORTEST_RECORD_BYTES = 15;

/**
 * Builds a response record with the name in the spelling of the query, because some clients use mixed case and verify
 * it.
 */
export function answerOf(record: DnsRecord, queriedName: string = record.name): Answer {
  if (record.type === 'TXT') return { type: 'TXT', name: queriedName, ttl: TTL_SECONDS, data: record.data };
  if (record.type === 'SRV') return { type: 'SRV', name: queriedName, ttl: TTL_SECONDS, data: record.data };
  return { type: record.type, name: queriedName, ttl: TTL_SECONDS, data: record.data };
}

/**
 * Encodes the response. Answers that do not fit are omitted and set the flag TC. With `domain` the response is
 * authoritative, and without answers it has an SOA record. Throws if a name of a record cannot be encoded.
 */
export function reply(
  query: DecodedPacket,
  { code, answers, additionals }: Resolved,
  transport: Transport,
  domain?: string,
): Buffer {
  const option = query.additionals?.find((each) => each.type === 'OPT');
  const limit =
    transport === 'tcp'
      ? LONGEST_MESSAGE_BYTES
      : Math.min(MAX_UDP_BYTES, Math.max(PLAIN_UDP_BYTES, option?.udpPayloadSize ?? 0));
  const flags =
    (query.flag_rd === true ? dnsPacket.RECURSION_DESIRED : 0) |
    dnsPacket.RECURSION_AVAILABLE |
    (domain === undefined ? 0 : dnsPacket.AUTHORITATIVE_ANSWER) |
    (code & CODE_OF_HEADER);
  const room = option === undefined ? limit : limit - OPTION_BYTES;
  const head = { type: 'response', id: query.id ?? 0, flags, questions: query.questions ?? [] } as const;
  const writer = new MessageWriter(head, room);
  const isWhole = answers.every((answer) => writer.add('answers', answer));
  if (answers.length === 0 && domain !== undefined) writer.add('authorities', startOfAuthority(domain));
  if (isWhole) writer.addAll('additionals', additionals);
  if (option !== undefined) writer.add('additionals', optionRecord(code));
  return writer.message(isWhole ? 0 : dnsPacket.TRUNCATED_RESPONSE);
}

const optionRecord = (code: number): Answer => ({
  type: 'OPT',
  name: '.',
  udpPayloadSize: MAX_UDP_BYTES,
  extendedRcode: code >> 4,
  ednsVersion: 0,
  flags: 0,
  flag_do: false,
  options: [],
});

/**
 * Returns the answers with the addresses in random order, after the aliases that lead to them: many clients use the first
 * address. `random` returns a number from 0 to less than 1.
 */
export function balanced(answers: readonly Answer[], random: () => number): readonly Answer[] {
  const isAddress = ({ type }: Answer): boolean => type === 'A' || type === 'AAAA';
  const addresses = answers.filter(isAddress);
  for (let last = addresses.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    const [a, b] = [addresses[last], addresses[other]];
    if (a !== undefined && b !== undefined) [addresses[last], addresses[other]] = [b, a];
  }
  return [...answers.filter((answer) => !isAddress(answer)), ...addresses];
}

/** Builds the SOA record, which limits how long clients cache a negative response. */
export function startOfAuthority(domain: string): Answer {
  return {
    type: 'SOA',
    name: domain,
    ttl: TTL_SECONDS,
    data: {
      mname: `ns.dns.${domain}`,
      rname: `hostmaster.${domain}`,
      serial: 1,
      refresh: 7200,
      retry: 1800,
      expire: 86_400,
      minimum: TTL_SECONDS,
    },
  };
}
