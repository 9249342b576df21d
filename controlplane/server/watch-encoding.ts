/**
 * Encodes watch events. A batch for many watches is encoded once for each encoding except Tables. It refers to the bytes of
 * large objects that the cache has, and does not copy them.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { encodeJson } from '../../api/codec/json.ts';
import { isStatusError, newInternalError } from '../../api/meta/status-error.ts';
import { apiVersionOf, type KubeObject } from '../../api/meta/object.ts';
import type { Entry, Rest, WatchEvent } from '../model/rest.ts';
import type { Encodings, IncludeObject } from '../model/encoding.ts';
import type { OutputMediaType } from './media-type.ts';

/** The encoder of one watch. Only that of a Table has state, because only the first event has columns. */
export interface WatchEncoder {
  /** Returns the bytes of the events in order. */
  encode(events: readonly WatchEvent[]): readonly Buffer[];
  /** Returns the frames separately, for carriers that keep them apart (WebSocket). */
  frames(events: readonly WatchEvent[]): Buffer[];
}

interface WatchEncoding {
  readonly rest: Rest;
  readonly media: OutputMediaType;
  readonly include: IncludeObject;
  readonly encodings: Encodings;
  readonly nowMs: () => number;
  /** Called with the size of each sent event. */
  readonly sent: (bytes: number) => void;
}

interface Batch {
  readonly chunks: readonly Buffer[];
  readonly sizes: readonly number[];
}

/** Encodes one event as parts, which are not copied. */
type Frame = (event: WatchEvent) => readonly Buffer[];

/** The size from which on parts are chunks of their own. Smaller ones are joined. */
const LARGE_BYTES = 16 * 1024;

/** The size of the encoded batches that are kept after their turn, for watches that are a little behind. */
const KEPT_BYTES = 4 * 1024 * 1024;

/** Encoded batches by their events and then by their encoding, in the order in which they were encoded. */
const encodedBatches = new Map<readonly WatchEvent[], Map<string, Batch>>();
let encodedBytes = 0;
let isTrimScheduled = false;

/** Returns the encoded batch, which all watches of the turn and later ones share until it must make room for newer ones. */
function sharedBatch(encoding: string, events: readonly WatchEvent[], frame: Frame): Batch {
  let encodings = encodedBatches.get(events);
  if (encodings === undefined) encodedBatches.set(events, (encodings = new Map<string, Batch>()));
  let batch = encodings.get(encoding);
  if (batch !== undefined) return batch;
  encodings.set(encoding, (batch = batchOf(events.map(frame))));
  encodedBytes += bytesOf(batch.chunks);
  if (encodedBytes > KEPT_BYTES && !isTrimScheduled) {
    isTrimScheduled = true;
    queueMicrotask(trimBatches);
  }
  return batch;
}

function trimBatches(): void {
  isTrimScheduled = false;
  for (const [events, encodings] of encodedBatches) {
    if (encodedBytes <= KEPT_BYTES) return;
    encodedBatches.delete(events);
    for (const { chunks } of encodings.values()) encodedBytes -= bytesOf(chunks);
  }
}

function batchOf(frames: readonly (readonly Buffer[])[]): Batch {
  const chunks: Buffer[] = [];
  let small: Buffer[] = [];
  const join = (): void => {
    if (small.length > 0) chunks.push(small.length === 1 && small[0] !== undefined ? small[0] : Buffer.concat(small));
    small = [];
  };
  for (const part of frames.flat()) {
    if (part.length < LARGE_BYTES) small.push(part);
    else {
      join();
      chunks.push(part);
    }
  }
  join();
  return { chunks, sizes: frames.map(bytesOf) };
}

const bytesOf = (parts: readonly Buffer[]): number => parts.reduce((sum, { length }) => sum + length, 0);

/** Watches with the same encoding share the bytes of a batch; Tables are encoded for each watch. */
export function createWatchEncoder({ sent, ...options }: WatchEncoding): WatchEncoder {
  const { media } = options;
  const frame = media.as === 'Table' ? tableFrame(options) : frameOf(options);
  const encoding = `${media.format} ${media.as} ${media.version}`;
  return {
    encode(events) {
      const batch = media.as === 'Table' ? batchOf(events.map(frame)) : sharedBatch(encoding, events, frame);
      for (const size of batch.sizes) sent(size);
      return batch.chunks;
    },
    frames: (events) =>
      events.map((event) => {
        const whole = Buffer.concat(frame(event));
        sent(whole.length);
        return whole;
      }),
  };
}

function frameOf(options: Omit<WatchEncoding, 'sent'>): Frame {
  const { encodings, media, rest } = options;
  if (media.format === 'protobuf') {
    return (event) => {
      const object =
        event.type === 'ERROR'
          ? [encodings.protobufOf(errorStatus(event.error))]
          : media.as === 'PartialObjectMetadata'
            ? encodings.protobufMetadata(entryOf(event, rest), media.version)
            : encodings.protobuf(entryOf(event, rest));
      return lengthPrefixed(encodings.protobufWatchEvent(event.type, object));
    };
  }
  return (event) => {
    if (event.type === 'ERROR') return jsonFrame(event.type, [errorBytes(event.error)]);
    const entry = entryOf(event, rest);
    const bytes = media.as === 'PartialObjectMetadata' ? encodings.metadata(entry, media.version) : entry.bytes;
    return jsonFrame(event.type, [bytes]);
  };
}

const CLOSE = Buffer.from('}\n');
const OPEN: Readonly<Record<WatchEvent['type'], Buffer>> = {
  ADDED: Buffer.from('{"type":"ADDED","object":'),
  MODIFIED: Buffer.from('{"type":"MODIFIED","object":'),
  DELETED: Buffer.from('{"type":"DELETED","object":'),
  BOOKMARK: Buffer.from('{"type":"BOOKMARK","object":'),
  ERROR: Buffer.from('{"type":"ERROR","object":'),
};

const jsonFrame = (type: WatchEvent['type'], object: readonly Buffer[]): Buffer[] => [OPEN[type], ...object, CLOSE];

/** Prefixes the message with its length in four bytes, most significant first. */
function lengthPrefixed(message: readonly Buffer[]): Buffer[] {
  const length = Buffer.allocUnsafe(4);
  length.writeUInt32BE(bytesOf(message), 0);
  return [length, ...message];
}

function tableFrame({ encodings, media, rest, include, nowMs }: Omit<WatchEncoding, 'sent'>): Frame {
  let first = true;
  return (event) => {
    if (event.type === 'ERROR') return jsonFrame(event.type, [errorBytes(event.error)]);
    const entry = entryOf(event, rest);
    const columns = first ? encodings.tableColumns(rest.info) : NO_COLUMNS;
    first = false;
    const version = quoteText(entry.object.metadata.resourceVersion ?? '');
    return jsonFrame(event.type, [
      Buffer.from(
        `{"kind":"Table","apiVersion":"meta.k8s.io/${media.version}","metadata":{"resourceVersion":${version}},"columnDefinitions":`,
      ),
      columns,
      OPEN_ROWS,
      ...encodings.tableRow(entry, { info: rest.info, include, version: media.version, nowMs: nowMs() }),
      CLOSE_ROWS,
    ]);
  };
}

const NO_COLUMNS = Buffer.from('null');
const OPEN_ROWS = Buffer.from(',"rows":[');
const CLOSE_ROWS = Buffer.from(']}');

function errorStatus(error: Error): object {
  return isStatusError(error) ? error.status : newInternalError(error.message).status;
}

const errorBytes = (error: Error): Buffer => encodeJson(errorStatus(error));

type ObjectEvent = Exclude<WatchEvent, { type: 'ERROR' }>;

/**
 * Returns the object that an event sends. A bookmark sends an object of the watched kind that has a resource version alone, and
 * an annotation at the end of the initial events.
 */
function entryOf(event: ObjectEvent, rest: Rest): Entry {
  if (event.type !== 'BOOKMARK') return event.entry;
  const object: KubeObject = {
    kind: rest.info.kind,
    apiVersion: apiVersionOf(rest.info),
    metadata: {
      resourceVersion: event.resourceVersion,
      ...(event.initialEventsEnd ? { annotations: { 'k8s.io/initial-events-end': 'true' } } : {}),
    },
  };
  return { object, bytes: encodeJson(object) };
}
