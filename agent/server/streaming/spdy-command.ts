/**
 * Serves exec and attach over SPDY/3.1. stdin, stdout, stderr, errors and terminal sizes each have a stream, which a header
 * names.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../api/machinery/clock.ts';
import { SpdyConnection } from '../../protocols/spdy/connection.ts';
import type { SpdyStream } from '../../protocols/spdy/stream.ts';
import {
  endStream,
  outcomeStatus,
  outcomeText,
  type RemoteCommand,
  SizeQueue,
  type WantedStreams,
} from './remote-command.ts';

const PROTOCOLS = ['v4.channel.k8s.io', 'v3.channel.k8s.io', 'v2.channel.k8s.io', 'channel.k8s.io'] as const;
const STREAMS_WITHIN_MS = 30_000;
const STREAM_TYPES: ReadonlySet<string> = new Set(['error', 'stdin', 'stdout', 'stderr', 'resize']);

/**
 * Returns the protocol to use, from those that the client offers in order of preference, or `undefined` if none is supported.
 */
function chooseProtocol(offered: readonly string[], known: readonly string[]): string | undefined {
  return offered.find((protocol) => known.includes(protocol));
}

/** The values of `X-Stream-Protocol-Version`, in the order of the client's preference. */
export function offeredProtocols(request: IncomingMessage): string[] {
  const header = request.headers['x-stream-protocol-version'];
  const text = Array.isArray(header) ? header.join(',') : (header ?? '');
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

/** What an `upgrade` event has. `head` are the bytes that have arrived after the request. */
export interface UpgradeRequest {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
}

/** Responds to the upgrade and waits for the streams. Throws if the client does not open them in time. */
export async function acceptSpdyCommand(
  { request, socket, head }: UpgradeRequest,
  wanted: WantedStreams,
  clock: Clock,
): Promise<RemoteCommand> {
  const offered = offeredProtocols(request);
  const protocol = offered.length === 0 ? 'channel.k8s.io' : chooseProtocol(offered, PROTOCOLS);
  if (protocol === undefined) {
    socket.end(
      `HTTP/1.1 403 Forbidden\r\nX-Accept-Stream-Protocol-Versions: ${PROTOCOLS.join(', ')}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
    );
    throw new Error(`none of the protocols ${offered.join(', ')} is known`);
  }
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: ${protocol}\r\n\r\n`,
  );
  const found = new Map<string, SpdyStream>();
  const expected = expectedStreams(wanted, protocol);
  const complete = Promise.withResolvers<void>();
  const connection = new SpdyConnection(socket, head, (stream) => {
    const type = stream.headers['streamtype'] ?? '';
    if (!STREAM_TYPES.has(type) || found.has(type)) {
      // Without a reader, the data of the stream would stay in memory.
      stream.destroy();
      return;
    }
    found.set(type, stream);
    if (expected.every((name) => found.has(name))) complete.resolve();
  });
  const gone = new AbortController();
  const onClosed = (): void => {
    gone.abort(new Error('the client is gone'));
    complete.reject(new Error('the client closed the connection before its streams were there'));
  };
  connection.closed.then(onClosed, onClosed);
  const timer = clock.after(STREAMS_WITHIN_MS, () =>
    complete.reject(new Error('the client did not open its streams in time')),
  );
  try {
    await complete.promise;
  } catch (error) {
    connection.close();
    throw error;
  } finally {
    timer.cancel();
  }
  const sizes = new SizeQueue();
  const resize = found.get('resize');
  if (resize === undefined) sizes.end();
  else readSizes(resize, sizes);
  gone.signal.addEventListener('abort', () => sizes.end(), { once: true });
  return {
    stdin: found.get('stdin'),
    stdout: found.get('stdout'),
    stderr: found.get('stderr'),
    resize: sizes,
    signal: gone.signal,
    async finish(outcome) {
      await Promise.all([endStream(found.get('stdout')), endStream(found.get('stderr'))]);
      const error = found.get('error');
      const text = protocol === 'v4.channel.k8s.io' ? JSON.stringify(outcomeStatus(outcome)) : outcomeText(outcome);
      if (text !== '') error?.write(text);
      await endStream(error);
      connection.close();
    },
  };
}

function expectedStreams(wanted: WantedStreams, protocol: string): string[] {
  const hasResize = wanted.tty && (protocol === 'v4.channel.k8s.io' || protocol === 'v3.channel.k8s.io');
  return [
    'error',
    ...(wanted.stdin ? ['stdin'] : []),
    ...(wanted.stdout ? ['stdout'] : []),
    ...(wanted.stderr && !wanted.tty ? ['stderr'] : []),
    ...(hasResize ? ['resize'] : []),
  ];
}

/** Parses terminal sizes: consecutive JSON objects, with or without line ends. Of several at once only the last one counts. */
function readSizes(stream: SpdyStream, sizes: SizeQueue): void {
  let pending = '';
  stream.on('data', (chunk: Buffer) => {
    pending += chunk.toString();
    const end = pending.lastIndexOf('}');
    if (end >= 0) {
      sizes.push(pending.slice(Math.max(0, pending.lastIndexOf('{', end)), end + 1));
      pending = pending.slice(end + 1);
    }
    if (pending.length > 1024) pending = '';
  });
  stream.on('end', () => sizes.end());
  stream.on('close', () => sizes.end());
}
