/**
 * The name server for the node's pods. It resolves names and addresses of the cluster's domain from the agent's
 * informers, and forwards all other queries to the host's name servers. It serves UDP and TCP, IPv4 and IPv6 on one port.
 * Netfilter rules of the service proxy keep other clients away: before they are written, no query is answered.
 *
 * It continues to resolve cluster names while the kube-apiserver is not reachable.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { isIPv6, createServer, type Server, type Socket } from 'node:net';
import dnsPacket, { type Answer, type DecodedPacket, type Question } from 'dns-packet';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { Family } from '../serviceproxy/addresses.ts';
import { ClientShares } from './client-shares.ts';
import type { DnsObserver } from './dns-metrics.ts';
import { type ClusterNames, clusterRecords, reverseRecords } from './records.ts';
import type { ResponseCache } from './response-cache.ts';
import {
  answerOf,
  balanced,
  MAX_UDP_BYTES,
  reply,
  type Resolved,
  SHORTEST_RECORD_BYTES,
  startOfAuthority,
  type Transport,
} from './responses.ts';
import { encodeQuestion, isEncodable } from './message-writer.ts';
import { UpstreamOrder } from './upstream-order.ts';
import { askOverTcp, askOverUdp, framed, LONGEST_MESSAGE_BYTES, parseUpstream, queriesOf } from './upstream.ts';
import {
  BAD_VERSION,
  FORMAT_ERROR,
  HEADER_BYTES,
  NO_ERROR,
  NO_SUCH_NAME,
  NOT_IMPLEMENTED,
  REFUSED,
  RESPONSE,
  SERVER_FAILURE,
} from './message-header.ts';

/** The sources of the server's answers, and the bounds within which it serves. */
interface ClusterDnsOptions {
  readonly names: ClusterNames;
  /** The domain of the cluster, such as `cluster.local`. */
  readonly domain: string;
  /**
   * Whether the informers have synced. Until then, queries for cluster names fail with SERVFAIL instead of NXDOMAIN.
   */
  readonly synced: () => boolean;
  /** Returns the name servers for a name outside the cluster in their order, as `address` or `address:port`. */
  readonly upstreams: (name: string) => Promise<readonly string[]>;
  /** Responses of other name servers. */
  readonly cache: ResponseCache;
  readonly clock: Clock;
  /** Returns a number from 0 to less than 1. */
  readonly random?: () => number;
  readonly observer?: DnsObserver;
  readonly logger: Logger;
}

/** All addresses of the host. */
const ALL_ADDRESSES = ['0.0.0.0', '::'] as const;
/** The attempts to find a port that is free for UDP and TCP. */
const MAX_LISTEN_ATTEMPTS = 10;
const UPSTREAM_TIMEOUT_MS = 2000;
/** The maximum numbers of concurrently forwarded queries. Further ones fail with SERVFAIL. */
const FORWARDED = { maxTotal: 1000, maxPerClient: 200 };
const TCP_IDLE_MS = 10_000;
const CONNECTIONS = { maxTotal: 100, maxPerClient: 20 };
/** The maximum number of queries of one connection that are answered at the same time. */
const MAX_PIPELINED = 16;
const MAX_BYTES = { udp: MAX_UDP_BYTES, tcp: LONGEST_MESSAGE_BYTES } as const;
/** The maximum length of a CNAME chain. */
const MAX_ALIASES = 8;

/** The types of queries for a whole zone. */
const TRANSFERS: ReadonlySet<string> = new Set(['AXFR', 'IXFR']);
/** The opcode bits of the flags; 0 is a query. */
const OPCODE = 0x7800;
/** The errors of a host without IPv6. */
const NO_IPV6: ReadonlySet<string> = new Set(['EAFNOSUPPORT', 'EADDRNOTAVAIL', 'EINVAL']);

/** The client that sent a query. */
interface Client {
  readonly address: string;
  readonly transport: Transport;
}

/** The sockets of one address. */
interface Listener {
  readonly family: Family;
  readonly udp: UdpSocket;
  readonly tcp: Server;
}

/** Owns the sockets of the name server. */
export class ClusterDns {
  readonly #options: ClusterDnsOptions;
  #listeners: readonly Listener[] = [];
  readonly #servedFamilies = new Set<Family>();
  #port = 0;
  readonly #forwardedQueries = new ClientShares(FORWARDED);
  readonly #upstreamOrder: UpstreamOrder;
  readonly #connections = new ClientShares(CONNECTIONS);

  constructor(options: ClusterDnsOptions) {
    this.#options = options;
    this.#upstreamOrder = new UpstreamOrder(options.clock);
  }

  /** The port of the server, or 0 until it listens. */
  get port(): number {
    return this.#port;
  }

  /** The families in which this host has the server. */
  get families(): readonly Family[] {
    return this.#listeners.map(({ family }) => family);
  }

  /** Lets the server answer queries of this family from now on. To be called once rules keep other clients away. */
  serve(family: Family): void {
    this.#servedFamilies.add(family);
  }

  /** Binds UDP and TCP of all addresses to the same port. For port 0 the system chooses it. */
  async listen(port: number, addresses: readonly string[] = ALL_ADDRESSES): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        for (const address of addresses) await this.#bind(this.#listeners.length === 0 ? port : this.#port, address);
        return;
      } catch (error) {
        await this.close();
        // Another process may use the chosen port with the other protocol, so another port is tried.
        if (port !== 0 || attempt === MAX_LISTEN_ATTEMPTS) throw error;
      }
    }
  }

  async #bind(port: number, address: string): Promise<void> {
    const family = isIPv6(address) ? 'IPv6' : 'IPv4';
    const udp = family === 'IPv6' ? createSocket({ type: 'udp6', ipv6Only: true }) : createSocket('udp4');
    const tcp = createServer((socket) => this.#accept(socket, family));
    const listener = { family, udp, tcp } as const;
    try {
      await new Promise<void>((resolve, reject) => {
        udp.once('error', reject).bind(port, address, resolve);
      });
      await new Promise<void>((resolve, reject) => {
        tcp.once('error', reject).listen({ port: udp.address().port, host: address, ipv6Only: true }, resolve);
      });
    } catch (error) {
      await closeListener(listener);
      if (family === 'IPv6' && NO_IPV6.has((error as NodeJS.ErrnoException).code ?? '')) return;
      throw error;
    }
    udp.removeAllListeners('error');
    udp.on('error', (error) =>
      this.#options.logger.warn({ err: error.message }, 'The UDP socket of the name server failed'),
    );
    udp.on('message', (message, peer) => {
      if (!this.#servedFamilies.has(family)) return;
      this.#answer(message, { address: peer.address, transport: 'udp' })
        .then((answer) => {
          if (answer !== undefined && this.#listeners.includes(listener)) udp.send(answer, peer.port, peer.address);
        })
        .catch(this.#logFailure);
    });
    this.#listeners = [...this.#listeners, listener];
    this.#port = udp.address().port;
  }

  async close(): Promise<void> {
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) await closeListener(listener);
  }

  #accept(socket: Socket, family: Family): void {
    const address = socket.remoteAddress ?? '';
    socket.on('error', () => socket.destroy());
    if (!this.#servedFamilies.has(family) || !this.#connections.take(address)) {
      socket.destroy();
      return;
    }
    socket.setTimeout(TCP_IDLE_MS, () => socket.destroy());
    this.#serveConnection(socket, { address, transport: 'tcp' })
      .catch(this.#logFailure)
      .finally(() => {
        this.#connections.release(address);
        socket.destroy();
      });
  }

  /**
   * Answers the queries of a TCP connection. Reads on only while the client takes the responses, so that a connection has a
   * bounded number of them in memory.
   */
  async #serveConnection(socket: Socket, client: Client): Promise<void> {
    const pending = new Set<Promise<void>>();
    for await (const message of queriesOf(socket)) {
      const answering = this.#answer(message, client)
        .then((answer) => {
          if (answer === undefined) socket.destroy();
          else socket.write(framed(answer));
        })
        .catch((error: unknown) => {
          socket.destroy();
          this.#logFailure(error);
        })
        .finally(() => pending.delete(answering));
      pending.add(answering);
      if (pending.size >= MAX_PIPELINED) await Promise.race(pending);
      if (socket.writableNeedDrain) await drained(socket);
    }
    await Promise.all(pending);
  }

  /** Logged on debug level only, because any client can cause these failures at will. */
  readonly #logFailure = (error: unknown): void =>
    this.#options.logger.debug({ err: error }, 'Cannot answer a DNS message');

  /** Returns `undefined` for a message that is not a query or cannot be decoded. Rejects if the response cannot be encoded. */
  async #answer(message: Buffer, client: Client): Promise<Buffer | undefined> {
    const fault = queryFault(message);
    if (fault !== undefined) return fault === 'no query' ? undefined : formatError(message);
    const { transport } = client;
    let query: DecodedPacket;
    try {
      query = dnsPacket.decode(message);
    } catch {
      // What cannot be decoded may not be DNS at all, so it gets no response.
      return undefined;
    }
    const [question] = query.questions ?? [];
    if (query.type !== 'query' || question === undefined) return undefined;
    if (!isEncodable(question.name)) return formatError(message);
    const startMs = this.#options.clock.monotonic();
    const response = await this.#respond(message, query, question, client);
    this.#options.observer?.answered({
      transport,
      client: client.address,
      zone: this.#zoneOf(question.name),
      type: question.type,
      code: response.readUInt16BE(2) & 0xf,
      seconds: (this.#options.clock.monotonic() - startMs) / 1000,
    });
    return response;
  }

  #zoneOf(name: string): string {
    const { domain } = this.#options;
    const lower = name.toLowerCase();
    return lower === domain || lower.endsWith(`.${domain}`) ? `${domain}.` : '.';
  }

  async #respond(message: Buffer, query: DecodedPacket, question: Question, client: Client): Promise<Buffer> {
    const { transport } = client;
    try {
      const refusal = refusalOf(query, question);
      if (refusal !== NO_ERROR) return reply(query, { code: refusal, answers: [], additionals: [] }, transport);
      const local = await this.#resolveLocally(question, 0, client);
      if (local !== undefined) {
        const answers = balanced(local.answers, this.#random);
        return reply(query, { ...local, answers }, transport, this.#options.domain);
      }
      return await this.#forward(message, question.name, client);
    } catch (error) {
      this.#options.logger.debug({ name: question.name, err: errorMessage(error) }, 'Cannot resolve a name');
      return reply(query, { code: SERVER_FAILURE, answers: [], additionals: [] }, transport);
    }
  }

  /** Resolves a name of the cluster. Returns `undefined` if the query must be forwarded. */
  async #resolveLocally(
    { name: asked, type }: Question,
    aliases: number,
    client: Client,
  ): Promise<Resolved | undefined> {
    const { domain, names, synced } = this.#options;
    const name = asked.toLowerCase().replace(/\.$/, '');
    const isOurs = name === domain || name.endsWith(`.${domain}`);
    const isReverse = name.endsWith('.in-addr.arpa') || name.endsWith('.ip6.arpa');
    if (!isOurs && !isReverse) return undefined;
    if (isOurs && !synced()) return { code: SERVER_FAILURE, answers: [], additionals: [] };
    const most = Math.floor(MAX_BYTES[client.transport] / SHORTEST_RECORD_BYTES);
    const zone = { domain, names, most, from: this.#random() };
    const found = (isOurs ? clusterRecords : reverseRecords)({ name, type }, zone);
    // An address that is not in the cluster may belong to another zone.
    if (found === undefined) return isOurs ? { code: NO_SUCH_NAME, answers: [], additionals: [] } : undefined;
    if (name === domain && type === 'SOA')
      return { code: NO_ERROR, answers: [startOfAuthority(domain)], additionals: [] };
    const answers = found.answers.map((record) => answerOf(record, asked));
    const additionals = found.additionals.map((record) => answerOf(record));
    const [alias] = found.answers;
    if (alias?.type !== 'CNAME' || type === 'CNAME') return { code: NO_ERROR, answers, additionals };
    const next =
      aliases < MAX_ALIASES ? await this.#followAlias({ name: alias.data, type }, aliases + 1, client) : undefined;
    return { code: NO_ERROR, answers: next === undefined ? [] : [...answers, ...next], additionals };
  }

  /** Returns the records of an alias's target; `undefined` if that is a name of the cluster without such, as in CoreDNS. */
  async #followAlias(next: Question, aliases: number, client: Client): Promise<readonly Answer[] | undefined> {
    const local = await this.#resolveLocally(next, aliases, client);
    if (local !== undefined) return local.answers.length > 0 ? local.answers : undefined;
    const question = encodeQuestion({
      type: 'query',
      id: Math.floor(Math.random() * 65_536),
      flags: dnsPacket.RECURSION_DESIRED,
      questions: [next],
    });
    const answer = await this.#forward(question, next.name, { ...client, transport: 'udp' });
    // Decoding takes time for each record, so its input is bounded. An honest response to a query without EDNS has at most 512
    // bytes, which is below the bound.
    if (answer.length > MAX_UDP_BYTES) throw new Error('a name server sent a longer response than the query allows');
    return dnsPacket.decode(answer).answers ?? [];
  }

  async #forward(message: Buffer, name: string, { address, transport }: Client): Promise<Buffer> {
    if (!this.#forwardedQueries.take(address))
      throw new Error('too many queries are being forwarded to other name servers');
    try {
      return await this.#options.cache.resolve(message, transport, () => this.#askUpstreams(message, name, transport));
    } finally {
      this.#forwardedQueries.release(address);
    }
  }

  async #askUpstreams(message: Buffer, name: string, transport: Transport): Promise<Buffer> {
    const ask = transport === 'udp' ? askOverUdp : askOverTcp;
    let last: unknown = new Error('the host has no name server configured');
    for (const upstream of this.#upstreamOrder.of(await this.#options.upstreams(name))) {
      try {
        const response = await ask(parseUpstream(upstream), message, UPSTREAM_TIMEOUT_MS);
        this.#upstreamOrder.answered(upstream);
        return response;
      } catch (error) {
        this.#upstreamOrder.failed(upstream);
        last = error;
      }
    }
    throw last;
  }

  readonly #random = (): number => (this.#options.random ?? Math.random)();
}

async function closeListener({ udp, tcp }: Listener): Promise<void> {
  await new Promise<void>((resolve) => udp.close(resolve));
  if (tcp.listening) await new Promise<void>((resolve) => tcp.close(() => resolve()));
}

/**
 * Checks the header of a message before the message is decoded: a query has one question and no records but those of EDNS
 * and of a signature. Decoding thousands of questions that share one long name would block the agent for a second.
 */
function queryFault(message: Buffer): 'no query' | 'malformed' | undefined {
  if (message.length < HEADER_BYTES || (message.readUInt16BE(2) & RESPONSE) !== 0) return 'no query';
  const [questions, answers, authorities, additionals] = [4, 6, 8, 10].map((at) => message.readUInt16BE(at));
  const isPlain = questions === 1 && answers === 0 && authorities === 0 && (additionals ?? 0) <= 2;
  return isPlain ? undefined : 'malformed';
}

/** Returns the response code of a query that this server always refuses; NO_ERROR for others. */
function refusalOf(query: DecodedPacket, question: Question): number {
  const option = query.additionals?.find((each) => each.type === 'OPT');
  if (option !== undefined && option.ednsVersion !== 0) return BAD_VERSION;
  if (((query.flags ?? 0) & OPCODE) !== 0) return NOT_IMPLEMENTED;
  return TRANSFERS.has(question.type) ? REFUSED : NO_ERROR;
}

/** Returns a response of a header alone, with the message's id: a question that is malformed cannot be repeated in it. */
function formatError(message: Buffer): Buffer {
  const response = Buffer.alloc(HEADER_BYTES);
  response.writeUInt16BE(message.readUInt16BE(0), 0);
  response.writeUInt16BE(RESPONSE | (message.readUInt16BE(2) & OPCODE) | FORMAT_ERROR, 2);
  return response;
}

/** Resolves when the socket takes more, or is closed. */
function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      socket.off('drain', done).off('close', done);
      resolve();
    };
    socket.once('drain', done).once('close', done);
  });
}
