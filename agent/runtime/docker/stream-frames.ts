/**
 * Decodes Docker's multiplexed streams: frames of `[stream, 0, 0, 0, length(4, big endian)]` and a payload, or raw bytes with a
 * terminal. Reading applies back-pressure and buffers at most one chunk.
 */
import { writeOut } from '../../../api/http/back-pressure.ts';
import type { StreamIo } from '../runtime.ts';

/** A piece of output. A frame of the engine that is larger than one chunk yields several pieces. */
export interface Frame {
  readonly stream: 'stdout' | 'stderr';
  readonly payload: Buffer;
  /** Whether this is the last piece of the frame. */
  readonly last: boolean;
}

const FRAME_HEADER_BYTES = 8;

/** Splits a stream into frames. Yields a payload that is longer than a chunk in several pieces. */
export async function* readFrames(source: AsyncIterable<Buffer>): AsyncGenerator<Frame> {
  let pending: Buffer = Buffer.alloc(0);
  let stream: Frame['stream'] = 'stdout';
  let left = 0;
  for await (const chunk of source) {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    while (pending.length > 0) {
      if (left === 0) {
        if (pending.length < FRAME_HEADER_BYTES) break;
        stream = pending[0] === 2 ? 'stderr' : 'stdout';
        left = pending.readUInt32BE(4);
        pending = pending.subarray(FRAME_HEADER_BYTES);
        if (left === 0) continue;
      }
      const payload = pending.subarray(0, left);
      if (payload.length === 0) break;
      pending = pending.subarray(payload.length);
      left -= payload.length;
      yield { stream, payload, last: left === 0 };
    }
  }
}

type Hijacked = NodeJS.ReadWriteStream & AsyncIterable<Buffer> & { destroy(error?: Error): void };

/**
 * Copies the streams of an exec or attach connection until the process's output ends or the caller aborts. Rejects if the
 * connection or a write fails.
 */
export async function carryStreams(connection: NodeJS.ReadWriteStream, io: StreamIo): Promise<void> {
  const hijacked = connection as Hijacked;
  const stop = (): void => hijacked.destroy();
  io.signal.addEventListener('abort', stop, { once: true });
  // The end of the connection, with or without an error, is awaited below.
  hijacked.on('error', () => undefined);
  if (io.signal.aborted) stop();
  const { stdin } = io;
  const output = async (target: NodeJS.WritableStream | undefined, payload: Buffer): Promise<void> => {
    if (target !== undefined) await writeOut(target, payload, io.signal);
  };
  if (stdin !== undefined) {
    stdin.on('error', () => hijacked.end());
    stdin.pipe(hijacked);
  }
  try {
    if (io.tty) {
      for await (const chunk of hijacked) await output(io.stdout, chunk);
    } else {
      for await (const frame of readFrames(hijacked))
        await output(frame.stream === 'stderr' ? io.stderr : io.stdout, frame.payload);
    }
  } catch (error) {
    if (!io.signal.aborted) throw error;
  } finally {
    io.signal.removeEventListener('abort', stop);
    stdin?.unpipe(hijacked);
    hijacked.destroy();
  }
}

/** Collects bytes up to a limit, and drops the rest. */
export class OutputBuffer {
  readonly #chunks: Buffer[] = [];
  #left: number;

  constructor(maxBytes: number) {
    this.#left = maxBytes;
  }

  /** Keeps a copy of the part of the chunk that is within the limit. */
  add(chunk: Buffer): void {
    if (this.#left <= 0) return;
    const part = chunk.subarray(0, this.#left);
    this.#left -= part.length;
    this.#chunks.push(Buffer.from(part));
  }

  bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }
}
