/**
 * Serves port forwarding. Over SPDY, also tunnelled in a WebSocket, each connection has a pair of streams for data and errors.
 * The older WebSocket protocol has two channels for each port.
 */
import { type Duplex, finished, pipeline } from 'node:stream';
import type { WebSocket } from 'ws';
import { GatheredBytes } from '../../../api/machinery/gathered-bytes.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { ownBytes } from '../../../api/machinery/own-bytes.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { RuntimeError } from '../../runtime/runtime.ts';
import { SpdyConnection } from '../../base/protocols/spdy/connection.ts';
import type { SpdyStream } from '../../base/protocols/spdy/stream.ts';

/** The subprotocol of port forwarding over SPDY. */
export const PORT_FORWARD_PROTOCOL = 'portforward.k8s.io';
/** The WebSocket protocol whose messages are a SPDY connection. */
export const TUNNEL_PROTOCOL = 'SPDY/3.1+portforward.k8s.io';
/** The WebSocket protocols with two channels for each port. */
export const PORT_FORWARD_CHANNELS = ['v4.channel.k8s.io', 'v4.base64.channel.k8s.io'] as const;

/** The code of the character '0'. A base64 message begins with the number of its channel as one character. */
const ASCII_ZERO = 48;
/** The number of waiting bytes, for all ports of a connection, above which the agent reads no more from the client. */
const MAX_WAITING_BYTES = 1 << 20;

/** The number of listeners of one event above which Node.js warns of a leak, for a connection to a port. */
const MAX_LISTENERS = 30;

/** How long a stream may wait for its counterpart, as in the kubelet. */
const PAIRED_WITHIN_MS = 30_000;

/** The ports of one pod. */
export interface PodPorts {
  readonly clock: Clock;
  /** Opens a connection to a port. */
  readonly dial: (port: number, signal: AbortSignal) => Promise<NodeJS.ReadWriteStream>;
  /**
   * Counts a pair of streams until the returned function is called; `undefined` if there are too many. `evict` must close it.
   */
  readonly hold: (evict: () => void) => (() => void) | undefined;
  /** Called with the number of bytes that wait for the ports, when it changes. */
  readonly onHeld: (bytes: number) => void;
  /** Returns the message that the client gets for a failed connection. */
  readonly describe: (port: number, error: unknown) => string;
}

/** A stream whose counterpart has not come, and the timer that ends it. */
interface Waiting {
  readonly stream: SpdyStream;
  readonly timer: Timer;
}

/** Serves until the connection is closed. */
export async function forwardOverSpdy(transport: Duplex, head: Buffer, ports: PodPorts): Promise<void> {
  const waiting = new Map<string, Waiting>();
  const clientGone = new AbortController();
  const onStream = (stream: SpdyStream): void => {
    const type = stream.headers['streamtype'] ?? '';
    const request =
      stream.headers['requestid'] ?? `${stream.headers['port'] ?? ''}/${type === 'error' ? stream.id : stream.id - 2}`;
    const other = waiting.get(request);
    const isPair = other !== undefined && other.stream.headers['streamtype'] !== type;
    if ((type !== 'data' && type !== 'error') || (other !== undefined && !isPair)) stream.destroy();
    else if (other === undefined) waitForPair(stream, request, waiting, ports);
    else {
      waiting.delete(request);
      other.timer.cancel();
      const [data, error] = type === 'data' ? [stream, other.stream] : [other.stream, stream];
      // The failures of the port are sent to the client. Any other one ends the connection.
      forwardPair({ data, error }, ports, clientGone.signal).catch(() => transport.destroy());
    }
  };
  const connection = new SpdyConnection(transport, head, onStream, ports.onHeld);
  await connection.closed;
  clientGone.abort(new Error('the client is gone'));
}

/**
 * Keeps a stream until its counterpart comes, and closes it if that takes too long or there are too many pairs. The first
 * stream of a pair counts until it is closed, so that clients that open only one of each pair, or do not read the errors, do
 * not fill the memory.
 */
function waitForPair(
  stream: SpdyStream,
  request: string,
  waiting: Map<string, Waiting>,
  { clock, hold }: PodPorts,
): void {
  const free = hold(() => stream.destroy());
  if (free === undefined) {
    stream.destroy();
    return;
  }
  const timer = clock.after(PAIRED_WITHIN_MS, () => stream.destroy());
  waiting.set(request, { stream, timer });
  stream.once('close', () => {
    timer.cancel();
    free();
    if (waiting.get(request)?.stream === stream) waiting.delete(request);
  });
}

async function forwardPair(
  { data, error }: { readonly data: SpdyStream; readonly error: SpdyStream },
  { dial, describe }: PodPorts,
  signal: AbortSignal,
): Promise<void> {
  const port = Number(data.headers['port']);
  let message = '';
  try {
    if (!Number.isInteger(port) || port < 1 || port > 65_535)
      throw new Error(`invalid port ${quoteText(data.headers['port'] ?? '')}: it must be between 1 and 65535`);
    const target = (await dial(port, signal)) as Duplex;
    await join(data, target);
    // Some runtimes report that nobody listens on the port only after they have accepted the connection.
    if (target.errored instanceof RuntimeError) throw target.errored;
  } catch (failure) {
    message = describe(port, failure);
  }
  // A client that never ends its side would keep the streams.
  error.end(message, () => error.destroy());
  data.destroy();
}

/**
 * Copies in both directions, and passes on that one has ended. Resolves when both have ended, or when the connection to the pod
 * (`target`) has ended and its last data was written to the client. Then closes the connection to the pod.
 */
function join(client: Duplex, target: Duplex): Promise<void> {
  // Both copies and the runtime add more listeners to the connection than the ten above which Node.js warns, but few more.
  target.setMaxListeners(MAX_LISTENERS);
  const copy = (from: Duplex, to: Duplex): Promise<void> =>
    new Promise((resolve) => {
      pipeline(from, to, () => resolve());
    });
  const ended = new Promise<void>((resolve) => {
    finished(target, { readable: true, writable: false }, () => resolve());
  });
  return Promise.race([
    Promise.all([copy(client, target), copy(target, client)]).then(() => undefined),
    ended.then(() => drained(client)),
  ]).then(() => {
    target.destroy();
  });
}

/** Resolves when the last data of the pod was written, even if the stream stays open, or when the stream is destroyed. */
function drained(stream: Duplex): Promise<void> {
  if (stream.writableFinished || stream.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    finished(stream, { readable: false, writable: true }, () => resolve());
  });
}

/**
 * Forwards ports over a WebSocket with channels. Channel 2n has the data of the n-th port, and channel 2n+1 its errors. Each
 * begins with the port in two bytes.
 */
export function forwardOverChannels(socket: WebSocket, ports: readonly number[], podPorts: PodPorts): void {
  const { dial, describe, onHeld } = podPorts;
  const isBase64 = socket.protocol.includes('base64');
  const clientGone = new AbortController();
  const limitInput = (): void => {
    const waitingBytes = inputs.reduce((sum, input) => sum + input.waitingBytes, 0);
    onHeld(waitingBytes);
    const isFull = waitingBytes > MAX_WAITING_BYTES;
    if (isFull && !socket.isPaused) socket.pause();
    else if (!isFull && socket.isPaused) socket.resume();
  };
  const inputs = ports.map(() => new PortInput(limitInput));
  const send = channelSender(socket, { isBase64 });
  for (const [index, port] of ports.entries()) {
    const announcement = Buffer.alloc(2);
    announcement.writeUInt16LE(port);
    Promise.all([send(2 * index, announcement), send(2 * index + 1, announcement)])
      .then(() => dial(port, clientGone.signal))
      .then(
        async (stream) => {
          const target = stream as Duplex;
          target.on('error', () => target.destroy());
          inputs[index]?.connect(target);
          for await (const chunk of target) await send(2 * index, chunk as Buffer);
          socket.close(1000);
        },
        (error: unknown) => {
          inputs[index]?.close();
          return send(2 * index + 1, Buffer.from(describe(port, error)));
        },
      )
      // The session ends if an open connection to the pod fails.
      .catch(() => socket.close(1000));
  }
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    // An empty message has an odd channel, which is ignored: clients send no errors.
    const first = data[0] ?? 255;
    const channel = isBase64 && !isBinary ? first - ASCII_ZERO : first;
    if (channel % 2 !== 0) return;
    inputs[channel / 2]?.give(
      isBase64 && !isBinary ? Buffer.from(data.toString('latin1', 1), 'base64') : data.subarray(1),
    );
  });
  socket.on('error', () => socket.terminate());
  socket.on('close', () => {
    clientGone.abort(new Error('the client is gone'));
    for (const input of inputs) input.close();
  });
}

/**
 * The data that a client sends to a port. Messages that wait for the connection, or for the server to read, are joined, because
 * a client may send single bytes, and a message takes a few hundred bytes of memory.
 */
class PortInput {
  readonly #onChange: () => void;
  readonly #gathered = new GatheredBytes();
  #target: Duplex | undefined;
  #writtenBytes = 0;
  #isClosed = false;

  /** `onChange` is called when `waitingBytes` changes. */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  get waitingBytes(): number {
    return this.#gathered.size + this.#writtenBytes;
  }

  give(payload: Buffer): void {
    if (this.#isClosed || payload.length === 0) return;
    this.#gathered.push(ownBytes(payload));
    this.#forward();
    this.#onChange();
  }

  connect(target: Duplex): void {
    this.#target = target;
    target.once('close', () => this.close());
    if (this.#isClosed || target.destroyed) this.close();
    else this.#forward();
  }

  /** Ends the connection, and drops what waits for it. */
  close(): void {
    this.#isClosed = true;
    this.#gathered.take();
    this.#writtenBytes = 0;
    this.#target?.destroy();
    this.#onChange();
  }

  #forward(): void {
    if (this.#target === undefined || this.#writtenBytes > 0 || this.#gathered.size === 0) return;
    const bytes = this.#gathered.take();
    this.#writtenBytes = bytes.length;
    this.#target.write(bytes, () => {
      if (this.#isClosed) return;
      this.#writtenBytes = 0;
      this.#forward();
      this.#onChange();
    });
  }
}

/** Returns the function that sends a message. It resolves when the message was written, or the client is gone. */
function channelSender(
  socket: WebSocket,
  { isBase64 }: { readonly isBase64: boolean },
): (channel: number, payload: Buffer) => Promise<void> {
  return (channel: number, payload: Buffer): Promise<void> =>
    new Promise((resolve) => {
      if (socket.readyState !== socket.OPEN) resolve();
      else
        socket.send(
          // The number is one character, as kube-apiserver sends it: two digits would be parsed as another channel.
          isBase64
            ? String.fromCharCode(ASCII_ZERO + channel) + payload.toString('base64')
            : Buffer.concat([Buffer.from([channel]), payload]),
          () => resolve(),
        );
    });
}
