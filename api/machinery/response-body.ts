/** Reads the bodies of responses: whole, or in pieces as watches send them (lines of JSON, frames of bytes). */
import type { Readable } from 'node:stream';
import { isStatusError } from '../meta/status-error.ts';
import { GatheredBytes } from './gathered-bytes.ts';

/** A longer line is not a response of the API. */
const LARGEST_LINE_BYTES = 512 << 20;

/** Throws, and closes the body, as soon as it has more than `largestBytes`. */
export async function readAll(body: Readable, largestBytes = LARGEST_LINE_BYTES): Promise<Buffer> {
  const gathered = new GatheredBytes();
  for await (const chunk of body) {
    gathered.push(chunk as Buffer);
    if (gathered.size > largestBytes) throw new Error(`the response has more than ${largestBytes} bytes`);
  }
  return gathered.take();
}

/** Reading pauses while the consumer is busy, so that the back-pressure reaches the server. */
export async function* linesOf(body: Readable): AsyncIterable<string> {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  for await (const part of body) {
    let chunk = part as Buffer;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10)) {
      const head = chunk.subarray(0, end);
      const line = pending.length === 0 ? head : Buffer.concat([...pending, head]);
      pending = [];
      pendingBytes = 0;
      chunk = chunk.subarray(end + 1);
      if (line.length > 0) yield line.toString('utf8');
    }
    if (chunk.length === 0) continue;
    pending.push(chunk);
    pendingBytes += chunk.length;
    if (pendingBytes > LARGEST_LINE_BYTES) throw new Error('a watch event is too large');
  }
}

/** Each frame has its length before it, in four bytes. */
export async function* framesOf(body: Readable): AsyncIterable<Buffer> {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  for await (const chunk of body) {
    pending.push(chunk as Buffer);
    pendingBytes += (chunk as Buffer).length;
    while (pendingBytes >= 4) {
      const bytes = Buffer.concat(pending);
      const size = bytes.readUInt32BE(0);
      if (size > LARGEST_LINE_BYTES) throw new Error('a watch event is too large');
      pending = [bytes];
      if (pendingBytes < 4 + size) break;
      yield bytes.subarray(4, 4 + size);
      pending = [bytes.subarray(4 + size)];
      pendingBytes -= 4 + size;
    }
  }
}

/** Changes the values of an iteration, one at a time. */
export async function* mapped<From, To>(from: AsyncIterable<From>, change: (value: From) => To): AsyncIterable<To> {
  for await (const value of from) yield change(value);
}

/** Whether the error is the end of the stream. A connection that closes during a watch is its normal end. */
export function isEndOfStream(error: unknown): boolean {
  if (isStatusError(error) || !(error instanceof Error)) return false;
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return (
    code === 'ERR_STREAM_PREMATURE_CLOSE' ||
    code === 'ECONNRESET' ||
    code.startsWith('ERR_HTTP2_') ||
    error.message === 'aborted'
  );
}
