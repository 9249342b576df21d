/**
 * Defines the format of the stream by which a standby follows a control plane. Each frame has a header in JSON and a body of
 * bytes. Before it are eight bytes: the lengths of header and body, as unsigned integers, the high byte first.
 */
import type { RecordColumns } from '../storage/stored-log.ts';
import { encodeJson, parseJson } from '../../api/codec/json.ts';
import type { LogMarks } from '../storage/log-backend.ts';
import { isCount } from '../../api/meta/integers.ts';

/** The first frames are `snapshot` and its `part`s if the standby cannot continue its copy. `preparing` may come before. */
export type Frame =
  /** A sign of life, while the file of the database is made. */
  | { readonly type: 'preparing' }
  /** A file of the database follows, of this size. */
  | { readonly type: 'snapshot'; readonly sizeBytes: number }
  | { readonly type: 'part'; readonly bytes: Buffer }
  /** `newestRevision` is the newest revision of the storage when the frame was sent. */
  | { readonly type: 'records'; readonly records: RecordColumns; readonly newestRevision: number }
  /**
   * The standby has received everything up to `lastRevision`. It is repeated as a sign of life. `sentAtMs` is monotonic time of
   * the sender, by which the standby notices a frame that was on the way for longer than others.
   */
  | { readonly type: 'complete'; readonly marks: LogMarks; readonly sentAtMs: number }
  /** Records that the standby lacks were compacted: it needs another snapshot. */
  | { readonly type: 'compacted' };

const PREFIX_BYTES = 8;
const MAX_HEADER_BYTES = 4 * 1024 * 1024;
/** The maximum size of the body of a frame. */
const MAX_BODY_BYTES = 32 * 1024 * 1024;
const NOTHING = Buffer.alloc(0);

/** A frame that the format does not permit. */
export class FrameError extends Error {
  override readonly name = 'FrameError';
}

/** Returns the bytes of a frame, in parts that are written one after another. */
export function encodeFrame(frame: Frame): readonly Buffer[] {
  const [header, body] = partsOf(frame);
  const encoded = encodeJson(header);
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(encoded.length, 0);
  prefix.writeUInt32BE(body.length, 4);
  return body.length === 0 ? [Buffer.concat([prefix, encoded])] : [Buffer.concat([prefix, encoded]), body];
}

function partsOf(frame: Frame): [header: object, body: Buffer] {
  switch (frame.type) {
    case 'part':
      return [{ type: frame.type }, frame.bytes];
    case 'records': {
      const { values, ...columns } = frame.records;
      return [{ type: frame.type, newestRevision: frame.newestRevision, ...columns }, Buffer.from(values)];
    }
    default:
      return [frame, NOTHING];
  }
}

/** Yields the frames of a stream. Throws `FrameError` for anything else, and if the stream ends within a frame. */
export async function* framesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<Frame, void, undefined> {
  let waiting: Buffer[] = [];
  let bytes = 0;
  let needed = PREFIX_BYTES;
  for await (const chunk of chunks) {
    waiting.push(chunk);
    bytes += chunk.length;
    if (bytes < needed) continue;
    let data = waiting.length === 1 ? chunk : Buffer.concat(waiting);
    for (;;) {
      needed = lengthOf(data);
      if (data.length < needed || data.length < PREFIX_BYTES) break;
      yield decodeFrame(data.subarray(0, needed));
      data = data.subarray(needed);
    }
    waiting = [data];
    bytes = data.length;
  }
  if (bytes > 0) throw new FrameError('the stream ended within a frame');
}

/** Returns the length of the frame that the data begins with, or the number of bytes that determine it. */
function lengthOf(data: Buffer): number {
  if (data.length < PREFIX_BYTES) return PREFIX_BYTES;
  const [header, body] = [data.readUInt32BE(0), data.readUInt32BE(4)];
  if (header > MAX_HEADER_BYTES || body > MAX_BODY_BYTES) throw new FrameError('a frame is too large');
  return PREFIX_BYTES + header + body;
}

function decodeFrame(data: Buffer): Frame {
  const end = PREFIX_BYTES + data.readUInt32BE(0);
  const body = data.subarray(end);
  let header: Record<string, unknown>;
  try {
    header = parseJson(data.subarray(PREFIX_BYTES, end)).value as Record<string, unknown>;
  } catch (cause) {
    throw new FrameError('the header of a frame is no JSON', { cause });
  }
  const frame = typeof header === 'object' && header !== null ? frameOf(header, body) : undefined;
  if (frame === undefined) throw new FrameError('a frame has another form than it must have');
  return frame;
}

function frameOf(header: Record<string, unknown>, body: Buffer): Frame | undefined {
  switch (header['type']) {
    case 'snapshot': {
      const { sizeBytes } = header;
      return isCount(sizeBytes) ? { type: 'snapshot', sizeBytes } : undefined;
    }
    case 'part':
      return { type: 'part', bytes: body };
    case 'records': {
      const records = columnsOf(header, body);
      const { newestRevision } = header;
      return records !== undefined && isCount(newestRevision)
        ? { type: 'records', records, newestRevision }
        : undefined;
    }
    case 'complete': {
      const marks = marksOf(header['marks']);
      const { sentAtMs } = header;
      return marks === undefined || typeof sentAtMs !== 'number' ? undefined : { type: 'complete', marks, sentAtMs };
    }
    case 'preparing':
    case 'compacted':
      return { type: header['type'] };
    default:
      return undefined;
  }
}

const isCounts = (value: unknown): value is number[] => Array.isArray(value) && value.every(isCount);

/**
 * Returns the columns of a frame, or `undefined` if they are invalid. Revisions must increase, all columns must have the same
 * length, and the values must fill the body.
 */
function columnsOf(header: Record<string, unknown>, body: Buffer): RecordColumns | undefined {
  const { revisions, keys, createRevisions, expiries, lengths } = header;
  if (!isCounts(revisions) || !isCounts(createRevisions) || !isCounts(expiries)) return undefined;
  if (!Array.isArray(keys) || !keys.every((key) => typeof key === 'string' && key.startsWith('/'))) return undefined;
  if (!Array.isArray(lengths) || !lengths.every((length) => length === -1 || isCount(length))) return undefined;
  const count = revisions.length;
  if ([keys, createRevisions, expiries, lengths].some((column) => column.length !== count)) return undefined;
  if (revisions.some((revision, at) => at > 0 && revision <= (revisions[at - 1] ?? 0))) return undefined;
  const sizes = lengths as readonly number[];
  if (sizes.reduce((sum, length) => sum + Math.max(0, length), 0) !== body.length) return undefined;
  return {
    revisions,
    keys: keys as string[],
    createRevisions,
    expiries,
    lengths: sizes,
    values: new Uint8Array(body).buffer,
  };
}

function marksOf(value: unknown): LogMarks | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { compactedRevision, lastRevision, lastCompaction } = value as Record<string, unknown>;
  if (!isCount(compactedRevision) || !isCount(lastRevision)) return undefined;
  if (lastCompaction === undefined) return { compactedRevision, lastRevision, lastCompaction: undefined };
  const { revision, atMs } = (lastCompaction ?? {}) as Record<string, unknown>;
  return isCount(revision) && isCount(atMs)
    ? { compactedRevision, lastRevision, lastCompaction: { revision, atMs } }
    : undefined;
}
