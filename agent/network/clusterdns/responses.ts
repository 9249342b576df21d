/** Builds DNS responses: truncated to what the client can take, and with an SOA record where they deny something. Pure. */
import dnsPacket, { type Answer, type DecodedPacket, type Packet } from 'dns-packet';
import { MAX_LABEL_LENGTH } from '../../../api/meta/names.ts';
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
/** The UDP size for a client without EDNS, and the largest UDP response to any client. */
const PLAIN_UDP_BYTES = 512;
/** The size of UDP responses and the advertised EDNS buffer, as DNS flag day 2020 recommends to prevent fragments. */
export const MOST_UDP_BYTES = 1232;
/** The shortest record in a response: the root as name, type, class, TTL, length and an IPv4 address. */
export const SHORTEST_RECORD_BYTES = 15;

/** The longest name of a message (RFC 1035, section 2.3.4). */
const LONGEST_NAME_BYTES = 255;
/** The types whose data is a name, and the members of the data of other types that are names. */
const NAMED_BY_DATA: ReadonlySet<string> = new Set(['CNAME', 'DNAME', 'NS', 'PTR']);
const NAMES_IN_DATA = [
  'target',
  'exchange',
  'mname',
  'rname',
  'mbox',
  'txt',
  'replacement',
  'nextDomain',
  'signersName',
];

/**
 * Whether the name can stand in a message. The encoder writes the length of any label into one byte, in which the lengths from
 * 64 on mean something else, and ends a name at an empty label. A Service may have an `externalName` with such labels.
 */
export function isEncodable(name: string): boolean {
  // An escaped dot is part of a label.
  const plain = name.replaceAll('\\.', '-').replace(/^\.|\.$/g, '');
  if (plain === '') return true;
  const isLabel = (label: string): boolean => label !== '' && Buffer.byteLength(label) <= MAX_LABEL_LENGTH;
  return Buffer.byteLength(plain) + 2 <= LONGEST_NAME_BYTES && plain.split('.').every(isLabel);
}

function namesOf(record: Answer): readonly string[] {
  const data: unknown = 'data' in record ? record.data : undefined;
  if (typeof data === 'string') return NAMED_BY_DATA.has(record.type) ? [record.name, data] : [record.name];
  if (typeof data !== 'object' || data === null) return [record.name];
  const members = new Map<string, unknown>(Object.entries(data));
  return [record.name, ...NAMES_IN_DATA.map((name) => members.get(name)).filter((name) => typeof name === 'string')];
}

/** Encodes a message. Throws if it has a name that no message can have. */
export function encodeMessage(message: Packet): Buffer {
  const { questions = [], answers = [], authorities = [], additionals = [] } = message;
  const names = [...questions.map(({ name }) => name), ...[answers, authorities, additionals].flat().flatMap(namesOf)];
  const wrong = names.find((name) => !isEncodable(name));
  if (wrong !== undefined) throw new Error(`no DNS message can have the name ${JSON.stringify(wrong)}`);
  return dnsPacket.encode(message);
}

/**
 * Builds a response record with the name in the spelling of the query, because some clients use mixed case and verify
 * it.
 */
export function answerOf(record: DnsRecord, asked: string = record.name): Answer {
  if (record.type === 'TXT') return { type: 'TXT', name: asked, ttl: TTL_SECONDS, data: record.data };
  if (record.type === 'SRV') return { type: 'SRV', name: asked, ttl: TTL_SECONDS, data: record.data };
  return { type: record.type, name: asked, ttl: TTL_SECONDS, data: record.data };
}

/**
 * Encodes the response. Additional records are omitted if they do not fit; answers that do not fit set the flag TC. With
 * `domain` the response is authoritative, and a denial has an SOA record. Throws if a name of a record cannot be encoded.
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
      : Math.min(MOST_UDP_BYTES, Math.max(PLAIN_UDP_BYTES, option?.udpPayloadSize ?? 0));
  const flags =
    (query.flag_rd === true ? dnsPacket.RECURSION_DESIRED : 0) |
    dnsPacket.RECURSION_AVAILABLE |
    (domain === undefined ? 0 : dnsPacket.AUTHORITATIVE_ANSWER) |
    code;
  const optional: Answer[] =
    option === undefined
      ? []
      : [
          {
            type: 'OPT',
            name: '.',
            udpPayloadSize: MOST_UDP_BYTES,
            extendedRcode: 0,
            ednsVersion: 0,
            flags: 0,
            flag_do: false,
            options: [],
          },
        ];
  const encode = (parts: Partial<Resolved>, more: number): Buffer =>
    encodeMessage({
      type: 'response',
      id: query.id ?? 0,
      flags: flags | more,
      questions: query.questions ?? [],
      answers: [...(parts.answers ?? [])],
      authorities: answers.length > 0 || domain === undefined ? [] : [startOfAuthority(domain)],
      additionals: [...(parts.additionals ?? []), ...optional],
    });
  for (const parts of [{ answers, additionals }, { answers }]) {
    // A service may have thousands of endpoints: what cannot fit is not encoded at all.
    if (((parts.additionals?.length ?? 0) + answers.length) * SHORTEST_RECORD_BYTES > limit) continue;
    const whole = encode(parts, 0);
    if (whole.length <= limit) return whole;
  }
  return encode({}, dnsPacket.TRUNCATED_RESPONSE);
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
