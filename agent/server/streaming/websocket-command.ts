/**
 * Serves exec and attach over WebSocket. Each message begins with the number of its channel. Version 5 can close a channel,
 * such as stdin. The `base64.` protocols send text messages for browsers.
 */
import { Readable, Writable } from 'node:stream';
import type { WebSocket } from 'ws';
import { GatheredBytes } from '../../../api/machinery/gathered-bytes.ts';
import { ownBytes } from '../../../api/machinery/own-bytes.ts';
import {
  type CommandOutcome,
  endStream,
  outcomeStatus,
  outcomeText,
  type RemoteCommand,
  SizeQueue,
  type WantedStreams,
} from './remote-command.ts';

/** The accepted subprotocols, the preferred one first. '' stands for a client that offers none. */
export const WEBSOCKET_PROTOCOLS = [
  'v5.channel.k8s.io',
  'v4.channel.k8s.io',
  'v4.base64.channel.k8s.io',
  'channel.k8s.io',
  'base64.channel.k8s.io',
  '',
] as const;

/** The code of the character '0'. A base64 message begins with the number of its channel as one character. */
const ASCII_ZERO = 48;
const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4, close: 255 } as const;
/** The size of the waiting messages above which the agent reads no more from the client. */
const MAX_WAITING_BYTES = 1 << 16;

/**
 * The input of a command. Messages that wait are joined, because a client may send single bytes, and a message takes a few
 * hundred bytes of memory. The socket is paused while too many bytes wait.
 */
class CommandInput extends Readable {
  readonly #socket: WebSocket;
  readonly #onHeld: (bytes: number) => void;
  readonly #gathered = new GatheredBytes();
  #isClosed = false;

  constructor(socket: WebSocket, onHeld: (bytes: number) => void) {
    super({ highWaterMark: MAX_WAITING_BYTES });
    this.#socket = socket;
    this.#onHeld = onHeld;
  }

  /** Takes a message of the client. What comes after the end is dropped. */
  give(payload: Buffer): void {
    if (this.destroyed || this.#isClosed) return;
    this.#gathered.push(ownBytes(payload));
    this.#forward();
  }

  /** Ends the input. The command can still read what has come before. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#forward();
  }

  override read(size?: number): unknown {
    const chunk: unknown = super.read(size);
    this.#forward();
    return chunk;
  }

  override _read(): void {}

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#gathered.take();
    this.#onHeld(0);
    if (this.#socket.isPaused) this.#socket.resume();
    done(error);
  }

  #forward(): void {
    if (this.destroyed || this.readableEnded) return;
    if (this.readableLength === 0 && this.#gathered.size > 0) this.push(this.#gathered.take());
    if (this.#isClosed && this.#gathered.size === 0) this.push(null);
    const waitingBytes = this.readableLength + this.#gathered.size;
    this.#onHeld(waitingBytes);
    const isFull = waitingBytes > MAX_WAITING_BYTES;
    if (isFull && !this.#socket.isPaused) this.#socket.pause();
    else if (!isFull && this.#socket.isPaused) this.#socket.resume();
  }
}

/**
 * Returns the streams of an accepted WebSocket. Data that waits for a slow command is bounded; `onHeld` gets its size when it
 * changes.
 */
export function acceptWebSocketCommand(
  socket: WebSocket,
  wanted: WantedStreams,
  onHeld: (bytes: number) => void,
): RemoteCommand {
  const protocol = socket.protocol;
  const isBase64 = protocol.includes('base64');
  const clientGone = new AbortController();
  const sizes = new SizeQueue();
  const stdin = wanted.stdin ? new CommandInput(socket, onHeld) : undefined;
  // A command that exits closes the streams that it no longer reads.
  stdin?.on('error', () => undefined);
  const send = (channel: number, payload: Buffer, done: (error?: Error | null) => void): void => {
    if (socket.readyState !== socket.OPEN) {
      done(new Error('the client is gone'));
      return;
    }
    const message = isBase64
      ? `${channel}${payload.toString('base64')}`
      : Buffer.concat([Buffer.from([channel]), payload]);
    socket.send(message, (error) => done(error));
  };
  const output = (channel: number): Writable => {
    const stream = new Writable({ write: (chunk: Buffer, _encoding, done) => send(channel, chunk, done) });
    // The writer gets the failure from its callback.
    stream.on('error', () => undefined);
    return stream;
  };
  const stdout = wanted.stdout ? output(CHANNEL.stdout) : undefined;
  const stderr = wanted.stderr && !wanted.tty ? output(CHANNEL.stderr) : undefined;
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    const { channel, payload } = readMessage(data, isBase64 && !isBinary);
    if (channel === CHANNEL.stdin) stdin?.give(payload);
    else if (channel === CHANNEL.resize) sizes.push(payload.toString());
    else if (channel === CHANNEL.close && payload[0] === CHANNEL.stdin) stdin?.close();
  });
  socket.on('close', () => {
    clientGone.abort(new Error('the client is gone'));
    stdin?.close();
    sizes.end();
  });
  socket.on('error', () => socket.terminate());
  // The client waits for a message before it believes that the streams are there.
  const first = stdout !== undefined ? CHANNEL.stdout : stderr !== undefined ? CHANNEL.stderr : CHANNEL.error;
  send(first, Buffer.alloc(0), () => undefined);
  return {
    stdin,
    stdout,
    stderr,
    resize: sizes,
    signal: clientGone.signal,
    async finish(outcome) {
      await Promise.all([endStream(stdout), endStream(stderr)]);
      const isModern = protocol.startsWith('v4') || protocol.startsWith('v5');
      const text = isModern ? JSON.stringify(outcomeStatus(translated(outcome))) : outcomeText(outcome);
      if (text !== '') await new Promise<void>((resolve) => send(CHANNEL.error, Buffer.from(text), () => resolve()));
      socket.close(1000);
    },
  };
}

/**
 * Returns the outcome that the client of a WebSocket gets. The kubelet passes a WebSocket on to the server of its runtime, and
 * wraps the error of that server in an internal error of its own.
 */
const translated = (outcome: CommandOutcome): CommandOutcome =>
  outcome.state === 'exited' ? outcome : { ...outcome, message: `Internal error occurred: ${outcome.message}` };

function readMessage(data: Buffer, isBase64: boolean): { channel: number; payload: Buffer } {
  if (data.length === 0) return { channel: -1, payload: data };
  const [first = -1] = data;
  if (isBase64) return { channel: first - ASCII_ZERO, payload: Buffer.from(data.toString('latin1', 1), 'base64') };
  return { channel: first, payload: data.subarray(1) };
}
