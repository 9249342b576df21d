/** Reads the bodies of responses: whole, or in pieces as watches send them (lines of JSON, frames of bytes). */
import type { Readable } from 'node:stream';
import { isStatusError } from '../meta/status-error.ts';
import { GatheredBytes } from '../machinery/gathered-bytes.ts';

/** The maximum length of a line. A longer one is not a response of the API. */
const MAX_LINE_BYTES = 512 << 20;
const LINE_END = 10;
const FRAME_HEADER_BYTES = 4;

/** Reads a body to its end. Rejects, and closes the body, as soon as it has more than `largestBytes`. */
export async function readAll(body: Readable, largestBytes = MAX_LINE_BYTES): Promise<Buffer> {
  const gathered = new GatheredBytes();
  for await (const chunk of body) {
    gathered.push(chunk as Buffer);
    if (gathered.size > largestBytes) throw new Error(`the response has more than ${largestBytes} bytes`);
  }
  return gathered.take();
}

interface LinesOptions {
  readonly largestBytes?: number;
  /** Whether the text after the last line end is a line. In a watch, it is an event that was cut off. */
  readonly takesRest?: boolean;
}

/**
 * Yields the lines without their ends, and no empty ones. Throws, and closes the body, for a line of more than `largestBytes`.
 */
export async function* linesOf(
  body: Readable,
  { largestBytes = MAX_LINE_BYTES, takesRest = false }: LinesOptions = {},
): AsyncIterable<string> {
  const line = new GatheredBytes();
  for await (const part of body) {
    const chunk = part as Buffer;
    let from = 0;
    for (let end = chunk.indexOf(LINE_END); end >= 0; end = chunk.indexOf(LINE_END, from)) {
      line.push(chunk.subarray(from, end));
      from = end + 1;
      const bytes = line.take();
      if (bytes.length > 0) yield bytes.toString('utf8');
    }
    line.push(chunk.subarray(from));
    if (line.size > largestBytes) throw new Error(`a line of the response has more than ${largestBytes} bytes`);
  }
  if (takesRest && line.size > 0) yield line.take().toString('utf8');
}

/**
 * Yields the frames of a body. Each has its length before it, as four bytes, the high byte first. Throws for a frame that is
 * too large. Drops an incomplete frame at the end, which is an event that was cut off.
 */
export async function* framesOf(body: Readable): AsyncIterable<Buffer> {
  const gathered = new GatheredBytes();
  let wanted = FRAME_HEADER_BYTES;
  for await (const chunk of body) {
    gathered.push(chunk as Buffer);
    if (gathered.size < wanted) continue;
    let bytes = gathered.take();
    for (wanted = FRAME_HEADER_BYTES; bytes.length >= wanted; wanted = FRAME_HEADER_BYTES) {
      const size = bytes.readUInt32BE(0);
      if (size > MAX_LINE_BYTES) throw new Error('a watch event is too large');
      wanted += size;
      if (bytes.length < wanted) break;
      yield bytes.subarray(FRAME_HEADER_BYTES, wanted);
      bytes = bytes.subarray(wanted);
    }
    gathered.push(bytes);
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
