/**
 * Serves port forwarding. Over SPDY, also tunnelled in a WebSocket, each connection has a pair of streams for data and errors.
 * The older WebSocket protocol has two channels for each port.
 */
import { type Duplex, finished, pipeline } from 'node:stream';
import type { WebSocket } from 'ws';
import { RuntimeError } from '../../runtime/runtime.ts';
import { SpdyConnection } from '../../protocols/spdy/connection.ts';
import type { SpdyStream } from '../../protocols/spdy/stream.ts';

/** The subprotocol of port forwarding over SPDY. */
export const PORT_FORWARD_PROTOCOL = 'portforward.k8s.io';
/** The WebSocket protocol whose messages are a SPDY connection. */
export const TUNNEL_PROTOCOL = 'SPDY/3.1+portforward.k8s.io';
/** The WebSocket protocols with two channels for each port. */
export const PORT_FORWARD_CHANNELS = ['v4.channel.k8s.io', 'v4.base64.channel.k8s.io'] as const;

/** The maximum number of bytes that wait for ports that are not connected yet, over all ports. */
const MAX_EARLY_BYTES = 1 << 20;
/** The cost of a message besides its bytes, because a client may send single bytes. */
const MESSAGE_BYTES = 128;

/** The number of event listeners on one port from which on Node.js warns of a leak. */
const MAX_LISTENERS = 30;

/** The ports of one pod. */
export interface PodPorts {
  /** Opens a connection to a port. */
  readonly dial: (port: number, signal: AbortSignal) => Promise<NodeJS.ReadWriteStream>;
  /** Returns the message that the client gets for a failed connection. */
  readonly describe: (port: number, error: unknown) => string;
}

/** Serves until the client closes the connection. */
export async function forwardOverSpdy(transport: Duplex, head: Buffer, ports: PodPorts): Promise<void> {
  const pairs = new Map<string, { data?: SpdyStream; error?: SpdyStream }>();
  const gone = new AbortController();
  const connection = new SpdyConnection(transport, head, (stream) => {
    const type = stream.headers['streamtype'] ?? '';
    const request =
      stream.headers['requestid'] ?? `${stream.headers['port'] ?? ''}/${type === 'error' ? stream.id : stream.id - 2}`;
    const pair = pairs.get(request) ?? {};
    if (type === 'data') pair.data = stream;
    else if (type === 'error') pair.error = stream;
    pairs.set(request, pair);
    // A client that resets streams before their counterparts come leaves nothing behind.
    stream.once('close', () => {
      if (pairs.get(request) === pair) pairs.delete(request);
    });
    if (pair.data !== undefined && pair.error !== undefined) {
      pairs.delete(request);
      // The client sees every failure as the end of its connection.
      forwardPair({ data: pair.data, error: pair.error }, ports, gone.signal).catch(() => transport.destroy());
    }
  });
  await connection.closed;
  gone.abort(new Error('the client is gone'));
}

async function forwardPair(
  { data, error }: { readonly data: SpdyStream; readonly error: SpdyStream },
  { dial, describe }: PodPorts,
  signal: AbortSignal,
): Promise<void> {
  const port = Number(data.headers['port']);
  try {
    if (!Number.isInteger(port) || port < 1 || port > 65_535)
      throw new Error(`the port ${JSON.stringify(data.headers['port'] ?? '')} is none`);
    const target = (await dial(port, signal)) as Duplex;
    await join(data, target);
    // Some runtimes report only after the connection that nobody listens on the port.
    if (target.errored instanceof RuntimeError) throw target.errored;
    error.end();
  } catch (failure) {
    error.end(describe(port, failure));
    data.destroy();
  }
}

/** Copies both ways; a half-close is passed on; ends when both ways have ended. */
function join(left: Duplex, right: Duplex): Promise<void> {
  // Both copies and the runtime listen on one connection: more than the ten that Node.js finds plausible, and never more.
  right.setMaxListeners(MAX_LISTENERS);
  const copy = (from: Duplex, to: Duplex): Promise<void> =>
    new Promise((resolve) => {
      pipeline(from, to, () => resolve());
    });
  const ended = new Promise<void>((resolve) => {
    finished(right, { readable: true, writable: false }, () => resolve());
  });
  return Promise.race([
    Promise.all([copy(left, right), copy(right, left)]).then(() => undefined),
    ended.then(() => drained(left)),
  ]).then(() => {
    right.destroy();
  });
}

/** Resolves when the last data of the pod was written, before the stream is closed. */
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
export function forwardOverChannels(socket: WebSocket, ports: readonly number[], { dial, describe }: PodPorts): void {
  const isBase64 = socket.protocol.includes('base64');
  const gone = new AbortController();
  const targets: (Duplex | undefined)[] = [];
  /** The data that arrived before a port responded. `undefined` once the port has responded or failed. */
  const waiting: (Buffer[] | undefined)[] = ports.map(() => []);
  let earlyBytes = 0;
  const send = channelSender(socket, { isBase64 });
  for (const [index, port] of ports.entries()) {
    const announcement = Buffer.alloc(2);
    announcement.writeUInt16LE(port);
    Promise.all([send(2 * index, announcement), send(2 * index + 1, announcement)])
      .then(() => dial(port, gone.signal))
      .then(
        async (stream) => {
          const target = stream as Duplex;
          targets[index] = target;
          target.on('error', () => target.destroy());
          for (const chunk of waiting[index] ?? []) target.write(chunk);
          waiting[index] = undefined;
          if (targets.every((_target, at) => waiting[at] === undefined)) socket.resume();
          for await (const chunk of target) await send(2 * index, chunk as Buffer);
          socket.close(1000);
        },
        (error: unknown) => {
          waiting[index] = undefined;
          socket.resume();
          return send(2 * index + 1, Buffer.from(describe(port, error)));
        },
      )
      // The session ends if the client is gone or the socket fails.
      .catch(() => socket.close(1000));
  }
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    const channel = isBase64 && !isBinary ? (data[0] ?? 48) - 48 : (data[0] ?? 255);
    const payload = isBase64 && !isBinary ? Buffer.from(data.toString('latin1', 1), 'base64') : data.subarray(1);
    if (channel % 2 !== 0 || payload.length === 0) return;
    const target = targets[channel / 2];
    if (target === undefined) {
      const early = waiting[channel / 2];
      if (early === undefined) return;
      early.push(payload);
      earlyBytes += payload.length + MESSAGE_BYTES;
      if (earlyBytes > MAX_EARLY_BYTES) socket.pause();
    } else if (target.writable && !target.write(payload) && !socket.isPaused) {
      // Messages that had arrived before the pause are still delivered. They must not add a listener each.
      socket.pause();
      const resume = (): void => {
        target.off('drain', resume).off('close', resume);
        socket.resume();
      };
      target.once('drain', resume).once('close', resume);
    }
  });
  socket.on('error', () => socket.terminate());
  socket.on('close', () => {
    gone.abort(new Error('the client is gone'));
    for (const target of targets) target?.destroy();
  });
}

/** Resolves when the client has taken the message, or is gone. */
function channelSender(
  socket: WebSocket,
  { isBase64 }: { readonly isBase64: boolean },
): (channel: number, payload: Buffer) => Promise<void> {
  return (channel: number, payload: Buffer): Promise<void> =>
    new Promise((resolve) => {
      if (socket.readyState !== socket.OPEN) resolve();
      else
        socket.send(
          // The number is one character, as by kube-apiserver: two digits would be read as another channel.
          isBase64
            ? String.fromCharCode(48 + channel) + payload.toString('base64')
            : Buffer.concat([Buffer.from([channel]), payload]),
          () => resolve(),
        );
    });
}
