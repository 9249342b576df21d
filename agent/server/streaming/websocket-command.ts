/**
 * Serves exec and attach over WebSocket. Each message begins with the number of its channel. Version 5 can close a channel,
 * such as stdin. The `base64.` protocols send text messages for browsers.
 */
import { PassThrough, Writable } from 'node:stream';
import type { WebSocket } from 'ws';
import {
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

const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4, close: 255 } as const;
/**
 * The maximum number of bytes that wait for a slow container. A client may send single bytes, which take a hundred times that.
 */
const MAX_BUFFERED_BYTES = 1 << 16;

/** Returns the streams of an accepted WebSocket. Data that waits for a slow command is bounded. */
export function acceptWebSocketCommand(socket: WebSocket, wanted: WantedStreams): RemoteCommand {
  const protocol = socket.protocol;
  const isBase64 = protocol.includes('base64');
  const gone = new AbortController();
  const sizes = new SizeQueue();
  const stdin = wanted.stdin ? new PassThrough({ highWaterMark: MAX_BUFFERED_BYTES }) : undefined;
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
    if (channel === CHANNEL.stdin && stdin?.writable === true) {
      // Messages that had arrived before the pause are still delivered. They must not add a listener each.
      if (!stdin.write(payload) && !socket.isPaused) {
        socket.pause();
        const resume = (): void => {
          stdin.off('drain', resume).off('close', resume);
          socket.resume();
        };
        stdin.once('drain', resume).once('close', resume);
      }
    } else if (channel === CHANNEL.resize) sizes.push(payload.toString());
    else if (channel === CHANNEL.close && payload[0] === CHANNEL.stdin) stdin?.end();
  });
  socket.on('close', () => {
    gone.abort(new Error('the client is gone'));
    stdin?.end();
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
    signal: gone.signal,
    async finish(outcome) {
      await Promise.all([endStream(stdout), endStream(stderr)]);
      const isModern = protocol.startsWith('v4') || protocol.startsWith('v5');
      const text = isModern ? JSON.stringify(outcomeStatus(outcome)) : outcomeText(outcome);
      if (text !== '') await new Promise<void>((resolve) => send(CHANNEL.error, Buffer.from(text), () => resolve()));
      socket.close(1000);
    },
  };
}

function readMessage(data: Buffer, isBase64: boolean): { channel: number; payload: Buffer } {
  if (data.length === 0) return { channel: -1, payload: data };
  if (isBase64) return { channel: (data[0] ?? 48) - 48, payload: Buffer.from(data.toString('latin1', 1), 'base64') };
  return { channel: data[0] ?? -1, payload: data.subarray(1) };
}
