/**
 * Forwards a query to another name server and returns its response.
 *
 * The query gets a random id, and its response the id of the client again. A client that knew the id could forge the
 * response of the name server, which is cached for other clients (RFC 5452).
 */
import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import { answersQuestion } from './message-ttls.ts';
import { HEADER_BYTES, RESPONSE } from './message-header.ts';

interface Upstream {
  readonly address: string;
  readonly port: number;
}

/** Parses `9.9.9.9`, `9.9.9.9:5353`, `2620:fe::fe` and `[2620:fe::fe]:5353`. */
export function parseUpstream(text: string): Upstream {
  const bracketed = /^\[([^\]]+)\](?::(\d+))?$/.exec(text) ?? /^([^:]+)(?::(\d+))?$/.exec(text);
  if (bracketed === null) return { address: text, port: 53 };
  return { address: bracketed[1] ?? '', port: Number(bracketed[2] ?? 53) };
}

interface Exchange {
  /** The query with the id of this exchange. */
  readonly query: Buffer;
  /** Returns the response with the client's id, or `undefined` for a message that does not answer the query. */
  accept(message: Buffer): Buffer | undefined;
}

function exchangeOf(question: Buffer): Exchange {
  const id = randomInt(0x1_0000);
  const query = Buffer.from(question);
  query.writeUInt16BE(id, 0);
  return {
    query,
    accept(message) {
      if (message.length < HEADER_BYTES || message.readUInt16BE(0) !== id) return undefined;
      const flags = message.readUInt16BE(2);
      if ((flags & RESPONSE) === 0) return undefined;
      // A server that cannot read the query may answer without it.
      const isBareError = message.readUInt16BE(4) === 0 && (flags & 0xf) !== 0;
      if (!isBareError && !answersQuestion(query, message)) return undefined;
      const response = Buffer.from(message);
      response.writeUInt16BE(question.readUInt16BE(0), 0);
      return response;
    },
  };
}

/**
 * Sends a query and resolves to the response. Rejects if no response to the query arrives in time. Each query has its own
 * socket and therefore its own port.
 */
export function askOverUdp({ address, port }: Upstream, question: Buffer, timeoutMs: number): Promise<Buffer> {
  const { query, accept } = exchangeOf(question);
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
  return new Promise<Buffer>((resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`name server ${address}: ${why}`));
    // This timeout limits a network wait, so it uses real time instead of the injected clock.
    const timeout = AbortSignal.timeout(timeoutMs);
    timeout.addEventListener('abort', () => fail('no answer in time'), { once: true });
    socket.on('error', (error) => fail(error.message));
    socket.on('message', (message) => {
      const response = accept(message);
      if (response !== undefined) resolve(response);
    });
    socket.connect(port, address, () => socket.send(query));
  }).finally(() => socket.close());
}

/** Forwards a query over TCP. Rejects if no answer comes in time, or one that is not to this query. */
export function askOverTcp({ address, port }: Upstream, question: Buffer, timeoutMs: number): Promise<Buffer> {
  const { query, accept } = exchangeOf(question);
  const socket = connect({ host: address, port });
  return new Promise<Buffer>((resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`name server ${address}: ${why}`));
    // The timeout limits the whole response: one that comes byte by byte would hold its place among the forwarded queries for
    // hours.
    AbortSignal.timeout(timeoutMs).addEventListener('abort', () => fail('no answer in time'), { once: true });
    socket.on('error', (error) => fail(error.message));
    socket.on('close', () => fail('closed the connection'));
    const read = new FramedMessages((message) => {
      const response = accept(message);
      if (response === undefined) fail('the answer belongs to another query');
      else resolve(response);
    });
    socket.on('data', (data: Buffer) => read.push(data));
    socket.on('connect', () => socket.write(framed(query)));
  }).finally(() => socket.destroy());
}

/** The length of a message over TCP has two bytes. */
export const LONGEST_MESSAGE_BYTES = 0xffff;
/** A name, EDNS options and a signature fit into it many times over. */
const MAX_QUERY_BYTES = 4096;

/** Prefixes a message with its length in two bytes, as DNS over TCP requires. */
export function framed(message: Uint8Array): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}

/** Splits a stream into messages. Buffers at most one incomplete message of 64 KiB. */
export class FramedMessages {
  readonly #onMessage: (message: Buffer) => void;
  #incomplete: Buffer = Buffer.alloc(0);

  constructor(onMessage: (message: Buffer) => void) {
    this.#onMessage = onMessage;
  }

  /** Takes the next bytes of the connection, and calls `onMessage` with each message that they complete. */
  push(data: Buffer): void {
    let received = this.#incomplete.length === 0 ? data : Buffer.concat([this.#incomplete, data]);
    while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
      const end = 2 + received.readUInt16BE(0);
      this.#onMessage(received.subarray(2, end));
      received = received.subarray(end);
    }
    this.#incomplete = received;
  }
}

/** Reads the queries of a client from a connection, one at a time. Throws if one is too long. */
export async function* queriesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let received: Buffer = Buffer.alloc(0);
  for await (const chunk of chunks) {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    while (received.length >= 2) {
      const end = 2 + received.readUInt16BE(0);
      if (end > 2 + MAX_QUERY_BYTES) throw new Error('a DNS query is too long');
      if (received.length < end) break;
      yield received.subarray(2, end);
      received = received.subarray(end);
    }
  }
}
