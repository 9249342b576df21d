/**
 * Opens the streams of a CRI runtime. The runtime returns a URL for each exec, attach or port-forward, and serves SPDY/3.1
 * there, as the kubelet does for its own clients.
 */
import { request as httpsRequest } from 'node:https';
import type { Duplex, Readable, Writable } from 'node:stream';
import { writeOut } from '../../../api/http/back-pressure.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import { request as httpRequest } from '../../../api/http/node-http.ts';
import { SpdyConnection } from '../../base/protocols/spdy/connection.ts';
import type { SpdyStream } from '../../base/protocols/spdy/stream.ts';
import { RuntimeError, type StreamIo } from '../runtime.ts';

const COMMAND_PROTOCOL = 'v4.channel.k8s.io';
const FORWARD_PROTOCOL = 'portforward.k8s.io';
const MAX_OUTCOME_BYTES = 64 * 1024;
/** How long a command that has closed its output may leave its input unread. */
const STUCK_MS = 5_000;
/** The length of an unreadable result that an error quotes. */
const QUOTED_CHARACTERS = 200;

function dial(url: string, protocol: string, signal: AbortSignal): Promise<SpdyConnection> {
  const request = (url.startsWith('https:') ? httpsRequest : httpRequest)(url, {
    method: 'POST',
    // The runtime's streaming server has a self-signed certificate and listens on this host only.
    ...(url.startsWith('https:') ? { rejectUnauthorized: false } : {}),
    headers: { Connection: 'Upgrade', Upgrade: 'SPDY/3.1', 'X-Stream-Protocol-Version': protocol },
    agent: false,
    signal,
  });
  return new Promise((resolve, reject) => {
    request.once('upgrade', (_response, socket: Duplex, head) => {
      // An error of the socket ends the reads of the connection, and with them every stream.
      socket.on('error', () => undefined);
      holdFailedWrites(socket);
      resolve(new SpdyConnection(socket, head));
    });
    request.once('response', (response) => {
      // The body of the response may have no end.
      response.destroy();
      reject(
        new RuntimeError('unknown', `the runtime's streaming server responded with status ${response.statusCode ?? 0}`),
      );
    });
    request.once('error', (error) =>
      reject(
        new RuntimeError('unavailable', `cannot reach the runtime's streaming server: ${error.message}`, {
          cause: error,
        }),
      ),
    );
    request.end();
  });
}

/**
 * Holds failed writes until the reads have detected the end. A runtime closes the connection right after its last message,
 * even while it still receives input: the failed write would destroy the socket together with received data that has not been
 * read.
 */
function holdFailedWrites(socket: Duplex): void {
  const held =
    (done: (error?: Error | null) => void) =>
    (error?: Error | null): void => {
      if (!(error instanceof Error) || socket.readableEnded) done(error);
      else socket.once('end', () => socket.destroy());
    };
  const write = socket._write.bind(socket);
  const writeMany = socket._writev?.bind(socket);
  socket._write = (chunk: unknown, encoding, done) => write(chunk, encoding, held(done));
  if (writeMany !== undefined) socket._writev = (chunks, done) => writeMany(chunks, held(done));
}

/**
 * Resolves to the exit code when the command has exited, its output is written and the runtime has reported the result. Rejects
 * with a `RuntimeError` if the signal aborts, the command does not read its input, or the runtime reports no exit code.
 */
export async function runRemoteCommand(url: string, io: StreamIo, clock: Clock): Promise<number> {
  const connection = await dial(url, COMMAND_PROTOCOL, io.signal);
  const onAbort = (): void => connection.abandon();
  io.signal.addEventListener('abort', onAbort, { once: true });
  try {
    const open = (streamtype: string): Promise<SpdyStream> => connection.open({ streamtype });
    const outcome = readAll(await open('error'));
    // The outcome is awaited after the streams, which may fail first.
    outcome.catch(() => undefined);
    const stdin = io.stdin === undefined ? undefined : await open('stdin');
    const outputs: Promise<void>[] = [];
    if (io.stdout !== undefined) outputs.push(copy(await open('stdout'), io.stdout as Writable));
    if (io.stderr !== undefined && !io.tty) outputs.push(copy(await open('stderr'), io.stderr as Writable));
    // A failed resize ends the connection, which the streams report.
    if (io.tty && io.resize !== undefined) sendSizes(io.resize, await open('resize')).catch(() => connection.abandon());
    if (stdin !== undefined) {
      io.stdin?.on('error', () => stdin.end());
      io.stdin?.pipe(stdin);
    }
    await Promise.all(outputs);
    if (stdin !== undefined && io.stdin !== undefined) await settledUnlessStuck(outcome, io.stdin, stdin, clock);
    return exitCodeOf(await outcome);
  } catch (error) {
    if (io.signal.aborted) throw new RuntimeError('unknown', 'the stream was closed', { cause: error });
    throw error;
  } finally {
    io.signal.removeEventListener('abort', onAbort);
    // The rest of the input stays unread.
    io.stdin?.unpipe();
    io.stdin?.pause();
    connection.abandon();
  }
}

/**
 * Watches the input after the output has ended. containerd 1.6 never reports the exit of a command with unread input:
 * it waits until the input is read, which the command no longer does. Throws if waiting input is not read for `STUCK_MS`;
 * otherwise resolves or rejects once the outcome has done so.
 */
async function settledUnlessStuck(
  outcome: Promise<string>,
  from: NodeJS.ReadableStream,
  stdin: SpdyStream,
  clock: Clock,
): Promise<void> {
  let readBytes = 0;
  let before = -1;
  const count = (chunk: Buffer): void => void (readBytes += chunk.length);
  from.on('data', count);
  const over = new AbortController();
  const settled = outcome.finally(() => over.abort());
  try {
    for (;;) {
      await Promise.race([settled, pause(clock, STUCK_MS, over.signal)]);
      if (over.signal.aborted) return;
      if (stdin.writableNeedDrain && readBytes === before)
        throw new RuntimeError('unknown', 'the command closed its output and stopped reading its input');
      before = readBytes;
    }
  } finally {
    from.off('data', count);
    // The caller gets the failure from `outcome`.
    settled.catch(() => undefined);
    over.abort();
  }
}

/**
 * Opens a connection to a port of a sandbox. The runtime connects when it has both streams, and reports a failure on
 * the error stream.
 */
export async function forwardRemotePort(url: string, port: number, signal: AbortSignal): Promise<Duplex> {
  const connection = await dial(url, FORWARD_PROTOCOL, signal);
  const headers = { port: String(port), requestid: '0' };
  const failures = await connection.open({ ...headers, streamtype: 'error' });
  const data = await connection.open({ ...headers, streamtype: 'data' });
  failures.end();
  const onAbort = (): void => void data.destroy();
  signal.addEventListener('abort', onAbort, { once: true });
  data.once('close', () => {
    signal.removeEventListener('abort', onAbort);
    connection.close();
  });
  readAll(failures).then(
    (text) => {
      if (text !== '') data.destroy(new RuntimeError('unavailable', withoutPrefix(text)));
    },
    () => undefined,
  );
  return data;
}

async function readAll(stream: SpdyStream): Promise<string> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of stream as AsyncIterable<Buffer>) {
    size += part.length;
    if (size <= MAX_OUTCOME_BYTES) parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

/** Copies one stream to another. Does not end the target, which belongs to the caller. */
async function copy(from: Readable, to: Writable): Promise<void> {
  for await (const chunk of from) {
    if (to.destroyed || to.writableEnded) return;
    await writeOut(to, chunk as Buffer);
  }
}

async function sendSizes(sizes: NonNullable<StreamIo['resize']>, stream: SpdyStream): Promise<void> {
  try {
    for await (const { width, height } of sizes) stream.write(JSON.stringify({ Width: width, Height: height }));
  } finally {
    stream.end();
  }
}

interface Outcome {
  readonly status?: string;
  readonly message?: string;
  readonly reason?: string;
  readonly details?: { readonly causes?: readonly { readonly reason?: string; readonly message?: string }[] };
}

/**
 * Parses the result of a command. Throws for a text that is not JSON. Also throws for an empty text, which is not success: it
 * means that the runtime stopped or lost the connection.
 */
function outcomeOf(text: string): Outcome {
  if (text === '')
    throw new RuntimeError('unknown', 'the runtime closed the stream without reporting the result of the command');
  try {
    return JSON.parse(text) as Outcome;
  } catch (error) {
    throw new RuntimeError(
      'unknown',
      `the runtime reported an incomplete result of the command: ${text.slice(0, QUOTED_CHARACTERS)}`,
      {
        cause: error,
      },
    );
  }
}

function exitCodeOf(text: string): number {
  const outcome = outcomeOf(text);
  if (outcome.status === 'Success') return 0;
  const code = outcome.details?.causes?.find((cause) => cause.reason === 'ExitCode')?.message;
  if (outcome.reason === 'NonZeroExitCode' && code !== undefined) return Number(code);
  throw new RuntimeError('unknown', withoutPrefix(outcome.message ?? text));
}

/** The text that a runtime's streaming server writes before the cause of a failure. The agent's server writes the same. */
const FAILURE_PREFIX =
  /^(?:Internal error occurred: )?error (?:executing command in|attaching to) container: |^error forwarding port \d+ to pod \S+, uid : /;

const withoutPrefix = (message: string): string => message.replace(FAILURE_PREFIX, '');
