/**
 * Forwards a query to another name server and returns its response, both unchanged. `ClusterDns` calls it for names
 * outside the cluster.
 */
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';

export interface Upstream {
  readonly address: string;
  readonly port: number;
}

/** Parses `9.9.9.9`, `9.9.9.9:5353`, `2620:fe::fe` and `[2620:fe::fe]:5353`. */
export function parseUpstream(text: string): Upstream {
  const bracketed = /^\[([^\]]+)\](?::(\d+))?$/.exec(text) ?? /^([^:]+)(?::(\d+))?$/.exec(text);
  if (bracketed === null) return { address: text, port: 53 };
  return { address: bracketed[1] ?? '', port: Number(bracketed[2] ?? 53) };
}

/**
 * Rejects if no response with the query's id arrives in time. Each query has its own socket and therefore its own port.
 */
export function askOverUdp({ address, port }: Upstream, question: Buffer, timeoutMs: number): Promise<Buffer> {
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
  return new Promise<Buffer>((resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`name server ${address}: ${why}`));
    // This timeout limits a network wait, so it uses real time instead of the injected clock.
    const timeout = AbortSignal.timeout(timeoutMs);
    timeout.addEventListener('abort', () => fail('no answer in time'), { once: true });
    socket.on('error', (error) => fail(error.message));
    socket.on('message', (answer) => {
      if (answer.length >= 12 && answer.readUInt16BE(0) === question.readUInt16BE(0)) resolve(answer);
    });
    socket.connect(port, address, () => socket.send(question));
  }).finally(() => socket.close());
}

export function askOverTcp({ address, port }: Upstream, question: Buffer, timeoutMs: number): Promise<Buffer> {
  const socket = connect({ host: address, port });
  return new Promise<Buffer>((resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`name server ${address}: ${why}`));
    // It limits the whole response: one that comes byte by byte would hold its place among the forwarded queries for hours.
    AbortSignal.timeout(timeoutMs).addEventListener('abort', () => fail('no answer in time'), { once: true });
    socket.on('error', (error) => fail(error.message));
    socket.on('close', () => fail('closed the connection'));
    const read = new FramedMessages(resolve);
    socket.on('data', (data: Buffer) => read.push(data));
    socket.on('connect', () => socket.write(framed(question)));
  }).finally(() => socket.destroy());
}

/** The length of a message over TCP has two bytes. */
export const LONGEST_MESSAGE_BYTES = 0xffff;
/** A name, EDNS options and a signature fit into it many times over. */
const LONGEST_QUERY_BYTES = 4096;

/** Prefixes a message with its length in two bytes, as DNS over TCP requires. */
export function framed(message: Uint8Array): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}

/** Splits a stream into messages. Buffers at most one incomplete message of 64 KiB. */
export class FramedMessages {
  readonly #onMessage: (message: Buffer) => void;
  #rest: Buffer = Buffer.alloc(0);

  constructor(onMessage: (message: Buffer) => void) {
    this.#onMessage = onMessage;
  }

  push(data: Buffer): void {
    let rest = this.#rest.length === 0 ? data : Buffer.concat([this.#rest, data]);
    while (rest.length >= 2 && rest.length >= 2 + rest.readUInt16BE(0)) {
      const end = 2 + rest.readUInt16BE(0);
      this.#onMessage(rest.subarray(2, end));
      rest = rest.subarray(end);
    }
    this.#rest = rest;
  }
}

/** Reads the queries of a client from a connection, one at a time. Throws if one is too long. */
export async function* queriesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of chunks) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    while (rest.length >= 2) {
      const end = 2 + rest.readUInt16BE(0);
      if (end > 2 + LONGEST_QUERY_BYTES) throw new Error('a DNS query is too long');
      if (rest.length < end) break;
      yield rest.subarray(2, end);
      rest = rest.subarray(end);
    }
  }
}
