/**
 * The DNS server for the node's pods. It resolves names and addresses of the cluster's domain from the agent's
 * informers, and forwards all other queries to the host's name servers. It serves UDP and TCP on one port. Netfilter
 * rules of the service proxy keep other clients away.
 *
 * It continues to resolve cluster names while the kube-apiserver is not reachable.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { isIPv6, createServer, type Server, type Socket } from 'node:net';
import dnsPacket, { type Answer, type DecodedPacket, type Question } from 'dns-packet';
import type { Logger } from '../../../api/component/logger.ts';
import { type ClusterNames, clusterRecords, type DnsRecord, reverseRecords } from './records.ts';
import { askOverTcp, askOverUdp, framed, FramedMessages, parseUpstream } from './upstream.ts';

export interface ClusterDnsOptions {
  readonly names: ClusterNames;
  /** For example `cluster.local`. */
  readonly domain: string;
  /**
   * Whether the informers have synced. Until then, queries for cluster names fail with SERVFAIL instead of NXDOMAIN.
   */
  readonly synced: () => boolean;
  /**
   * Returns the host's name servers in their order, as `address` or `address:port`. Called for each forwarded query.
   */
  readonly upstreams: () => Promise<readonly string[]>;
  readonly logger: Logger;
}

const TTL_SECONDS = 5;
/** The UDP size for a client without EDNS, and the largest UDP response to any client. */
const PLAIN_UDP_BYTES = 512;
const MOST_UDP_BYTES = 1232;
const UPSTREAM_MS = 2000;
/** The maximum number of concurrently forwarded queries. Further ones fail with SERVFAIL. */
const MOST_PENDING = 1000;
const TCP_IDLE_MS = 10_000;
const MOST_TCP = 100;
/** The maximum length of a CNAME chain. */
const MOST_ALIASES = 8;

/** The opcode bits of the flags; 0 is a query. */
const OPCODE = 0x7800;
const NO_ERROR = 0;
const SERVER_FAILURE = 2;
const NO_SUCH_NAME = 3;
const NOT_IMPLEMENTED = 4;

type Transport = 'udp' | 'tcp';

interface Resolved {
  readonly code: number;
  readonly answers: readonly Answer[];
  readonly additionals: readonly Answer[];
}

export class ClusterDns {
  readonly #options: ClusterDnsOptions;
  #udp: UdpSocket | undefined;
  #tcp: Server | undefined;
  #port = 0;
  #pending = 0;

  constructor(options: ClusterDnsOptions) {
    this.#options = options;
  }

  /** 0 until the server listens. */
  get port(): number {
    return this.#port;
  }

  /** Binds UDP and TCP to the same port. For port 0 the system chooses it. */
  async listen(port: number, address = '0.0.0.0'): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#bind(port, address);
        return;
      } catch (error) {
        await this.close();
        // Another process may use the chosen port with the other protocol, so another port is tried.
        if (port !== 0 || attempt === 10) throw error;
      }
    }
  }

  async #bind(port: number, address: string): Promise<void> {
    const udp = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
    this.#udp = udp;
    await new Promise<void>((resolve, reject) => {
      udp.once('error', reject).bind(port, address, resolve);
    });
    udp.removeAllListeners('error');
    udp.on('error', (error) =>
      this.#options.logger.warn({ err: error.message }, 'The UDP socket of the DNS server failed'),
    );
    udp.on('message', (message, peer) => {
      this.#answer(message, 'udp')
        .then((answer) => {
          if (answer !== undefined && this.#udp === udp) udp.send(answer, peer.port, peer.address);
        })
        .catch(this.#logFailure);
    });
    const tcp = createServer((socket) => this.#converse(socket));
    tcp.maxConnections = MOST_TCP;
    this.#tcp = tcp;
    await new Promise<void>((resolve, reject) => {
      tcp.once('error', reject).listen(udp.address().port, address, resolve);
    });
    this.#port = udp.address().port;
  }

  async close(): Promise<void> {
    const [udp, tcp] = [this.#udp, this.#tcp];
    this.#udp = undefined;
    this.#tcp = undefined;
    if (udp !== undefined) await new Promise<void>((resolve) => udp.close(resolve));
    if (tcp?.listening === true) await new Promise<void>((resolve) => tcp.close(() => resolve()));
  }

  #converse(socket: Socket): void {
    socket.setTimeout(TCP_IDLE_MS, () => socket.destroy());
    socket.on('error', () => socket.destroy());
    const messages = new FramedMessages((message) => {
      this.#answer(message, 'tcp')
        .then((answer) => {
          if (answer === undefined) socket.destroy();
          else socket.write(framed(answer));
        })
        .catch((error: unknown) => {
          socket.destroy();
          this.#logFailure(error);
        });
    });
    socket.on('data', (data: Buffer) => messages.push(data));
  }

  /** Logged on debug level only, because any client can cause these failures at will. */
  readonly #logFailure = (error: unknown): void =>
    this.#options.logger.debug({ err: error }, 'Cannot answer a DNS message');

  /** Returns `undefined` for a message that is not a query. Rejects if the response cannot be encoded. */
  async #answer(message: Buffer, transport: Transport): Promise<Buffer | undefined> {
    let query: DecodedPacket;
    try {
      query = dnsPacket.decode(message);
    } catch {
      // A malformed message has no reliable id to respond to.
      return undefined;
    }
    const [question] = query.questions ?? [];
    if (query.type !== 'query' || question === undefined) return undefined;
    try {
      if (((query.flags ?? 0) & OPCODE) !== 0)
        return reply(query, { code: NOT_IMPLEMENTED, answers: [], additionals: [] }, transport);
      const local = await this.#local(question, 0);
      if (local !== undefined) return reply(query, local, transport, this.#options.domain);
      return await this.#forward(message, transport);
    } catch (error) {
      this.#options.logger.debug(
        { name: question.name, err: error instanceof Error ? error.message : error },
        'Cannot resolve a name',
      );
      return reply(query, { code: SERVER_FAILURE, answers: [], additionals: [] }, transport);
    }
  }

  /** Resolves a name of the cluster. Returns `undefined` if the query must be forwarded. */
  async #local({ name: asked, type }: Question, aliases: number): Promise<Resolved | undefined> {
    const { domain, names, synced } = this.#options;
    const name = asked.toLowerCase().replace(/\.$/, '');
    const isOurs = name === domain || name.endsWith(`.${domain}`);
    const isReverse = name.endsWith('.in-addr.arpa') || name.endsWith('.ip6.arpa');
    if (!isOurs && !isReverse) return undefined;
    if (isOurs && !synced()) return { code: SERVER_FAILURE, answers: [], additionals: [] };
    const found = isOurs ? clusterRecords(name, type, domain, names) : reverseRecords(name, type, domain, names);
    // An address that is not in the cluster may belong to another zone.
    if (found === undefined) return isOurs ? { code: NO_SUCH_NAME, answers: [], additionals: [] } : undefined;
    const answers = found.answers.map((record) => answerOf(record, asked));
    const [alias] = found.answers;
    if (alias?.type === 'CNAME' && type !== 'CNAME' && aliases < MOST_ALIASES)
      answers.push(...(await this.#follow(alias.data, type, aliases + 1)));
    return { code: NO_ERROR, answers, additionals: found.additionals.map((record) => answerOf(record)) };
  }

  async #follow(name: string, type: Question['type'], aliases: number): Promise<readonly Answer[]> {
    const local = await this.#local({ name, type }, aliases);
    if (local !== undefined) return local.answers;
    const question = dnsPacket.encode({
      type: 'query',
      id: Math.floor(Math.random() * 65_536),
      flags: dnsPacket.RECURSION_DESIRED,
      questions: [{ name, type }],
    });
    return dnsPacket.decode(await this.#forward(question, 'udp')).answers ?? [];
  }

  async #forward(message: Buffer, transport: Transport): Promise<Buffer> {
    if (this.#pending >= MOST_PENDING) throw new Error('too many queries are being forwarded to other name servers');
    this.#pending += 1;
    try {
      const upstreams = await this.#options.upstreams();
      let last: unknown = new Error('the host has no name server configured');
      for (const upstream of upstreams) {
        try {
          const ask = transport === 'udp' ? askOverUdp : askOverTcp;
          return await ask(parseUpstream(upstream), message, UPSTREAM_MS);
        } catch (error) {
          last = error;
        }
      }
      throw last;
    } finally {
      this.#pending -= 1;
    }
  }
}

/**
 * Builds a response record with the name in the spelling of the query, because some clients use mixed case and verify
 * it.
 */
function answerOf(record: DnsRecord, asked: string = record.name): Answer {
  if (record.type === 'TXT') return { type: 'TXT', name: asked, ttl: TTL_SECONDS, data: record.data };
  if (record.type === 'SRV') return { type: 'SRV', name: asked, ttl: TTL_SECONDS, data: record.data };
  return { type: record.type, name: asked, ttl: TTL_SECONDS, data: record.data };
}

function reply(
  query: DecodedPacket,
  { code, answers, additionals }: Resolved,
  transport: Transport,
  domain?: string,
): Buffer {
  const option = query.additionals?.find((each) => each.type === 'OPT');
  const limit =
    transport === 'tcp'
      ? Number.POSITIVE_INFINITY
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
    dnsPacket.encode({
      type: 'response',
      id: query.id ?? 0,
      flags: flags | more,
      questions: query.questions ?? [],
      answers: [...(parts.answers ?? [])],
      authorities: answers.length > 0 || domain === undefined ? [] : [startOfAuthority(domain)],
      additionals: [...(parts.additionals ?? []), ...optional],
    });
  for (const parts of [{ answers, additionals }, { answers }]) {
    const whole = encode(parts, 0);
    if (whole.length <= limit) return whole;
  }
  return encode({}, dnsPacket.TRUNCATED_RESPONSE);
}

/** Builds the SOA record, which limits how long clients cache a negative response. */
function startOfAuthority(domain: string): Answer {
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
