/**
 * Serves exec and attach over SPDY/3.1. stdin, stdout, stderr, errors and terminal sizes each have a stream, which a header
 * names.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../api/machinery/clock.ts';
import { newBadRequest, newStatusError } from '../../../api/meta/status-error.ts';
import { SpdyConnection } from '../../base/protocols/spdy/connection.ts';
import type { SpdyStream } from '../../base/protocols/spdy/stream.ts';
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
/** The longest incomplete terminal size that is kept, in characters. */
const MAX_SIZE_CHARACTERS = 1024;
const STREAM_TYPES: ReadonlySet<string> = new Set(['error', 'stdin', 'stdout', 'stderr', 'resize']);

/**
 * Returns the first accepted protocol of those that the client offers. As in the kubelet, throws a `StatusError` with code 400
 * if the client offers none, and with code 403 if none of its protocols is accepted.
 */
export function negotiateProtocol(request: IncomingMessage, accepted: readonly string[]): string {
  const offered = offeredProtocols(request);
  if (offered.length === 0) throw newBadRequest('unable to upgrade: X-Stream-Protocol-Version is required\n');
  const chosen = offered.find((protocol) => accepted.includes(protocol));
  if (chosen !== undefined) return chosen;
  const problem = `unable to negotiate protocol: client supports [${offered.join(' ')}], server accepts [${accepted.join(' ')}]`;
  throw newStatusError(403, 'Forbidden', `unable to upgrade: ${problem}\n`);
}

/** Returns the values of `X-Stream-Protocol-Version`, in the order of the client's preference. */
function offeredProtocols(request: IncomingMessage): string[] {
  const header = request.headers['x-stream-protocol-version'];
  const text = Array.isArray(header) ? header.join(',') : (header ?? '');
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

/** The arguments of an `upgrade` event. `head` has the bytes that have arrived after the request. */
export interface UpgradeRequest {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  /** Called with the number of received bytes that nobody has read, when it changes. */
  readonly onHeld?: (bytes: number) => void;
}

/**
 * Responds to the upgrade and waits for the streams. Throws the errors of `negotiateProtocol` before the response. Afterwards,
 * it closes the connection and throws if the client does not open the streams in time, or is gone.
 */
export async function acceptSpdyCommand(
  { request, socket, head, onHeld }: UpgradeRequest,
  wanted: WantedStreams,
  clock: Clock,
): Promise<RemoteCommand> {
  const protocol = negotiateProtocol(request, PROTOCOLS);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: ${protocol}\r\n\r\n`,
  );
  const found = new Map<string, SpdyStream>();
  const expected = expectedStreams(wanted, protocol);
  const complete = Promise.withResolvers<void>();
  const onStream = (stream: SpdyStream): void => {
    const type = stream.headers['streamtype'] ?? '';
    if (!STREAM_TYPES.has(type) || found.has(type)) {
      // Without a reader, the data of the stream would stay in memory.
      stream.destroy();
      return;
    }
    found.set(type, stream);
    if (expected.every((name) => found.has(name))) complete.resolve();
  };
  const connection = new SpdyConnection(socket, head, onStream, onHeld);
  const clientGone = new AbortController();
  const onClosed = (): void => {
    clientGone.abort(new Error('the client is gone'));
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
  clientGone.signal.addEventListener('abort', () => sizes.end(), { once: true });
  return {
    stdin: found.get('stdin'),
    stdout: found.get('stdout'),
    stderr: found.get('stderr'),
    resize: sizes,
    signal: clientGone.signal,
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

/**
 * Parses terminal sizes: consecutive JSON objects, with or without line ends. Only the last of several that arrive at once
 * counts.
 */
function readSizes(stream: SpdyStream, sizes: SizeQueue): void {
  let pending = '';
  stream.on('data', (chunk: Buffer) => {
    pending += chunk.toString();
    const end = pending.lastIndexOf('}');
    if (end >= 0) {
      sizes.push(pending.slice(Math.max(0, pending.lastIndexOf('{', end)), end + 1));
      pending = pending.slice(end + 1);
    }
    if (pending.length > MAX_SIZE_CHARACTERS) pending = '';
  });
  stream.on('end', () => sizes.end());
  stream.on('close', () => sizes.end());
}
