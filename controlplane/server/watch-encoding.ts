/**
 * Encodes watch events. A batch for many watches is encoded once for each encoding, and the result is kept as long as the
 * batch.
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
  encode(events: readonly WatchEvent[]): Buffer;
  /** Returns the frames separately, for carriers that keep them apart (WebSocket). */
  frames(events: readonly WatchEvent[]): Buffer[];
}

/** What one watch asked for. */
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
  readonly bytes: Buffer;
  readonly sizes: readonly number[];
}

type Batches = WeakMap<readonly WatchEvent[], Batch>;
const shared = new Map<string, Batches>();

/** Watches with the same encoding share the bytes of a batch; Tables are encoded for each watch. */
export function createWatchEncoder(options: WatchEncoding): WatchEncoder {
  if (options.media.as === 'Table') return counted(tableEncoder(options), options.sent);
  const frame = frameOf(options);
  const key = `${options.media.format} ${options.media.as} ${options.media.version}`;
  const batches = shared.get(key) ?? new WeakMap<readonly WatchEvent[], Batch>();
  shared.set(key, batches);
  return counted((events) => {
    let batch = batches.get(events);
    if (batch === undefined) {
      batch = batchOf(events.map(frame));
      batches.set(events, batch);
    }
    return batch;
  }, options.sent);
}

function batchOf(frames: readonly Buffer[]): Batch {
  return { bytes: Buffer.concat(frames), sizes: frames.map(({ length }) => length) };
}

function counted(batch: (events: readonly WatchEvent[]) => Batch, sent: (bytes: number) => void): WatchEncoder {
  const sentBatch = (events: readonly WatchEvent[]): Batch => {
    const found = batch(events);
    for (const size of found.sizes) sent(size);
    return found;
  };
  return {
    encode: (events) => sentBatch(events).bytes,
    frames(events) {
      const { bytes, sizes } = sentBatch(events);
      let from = 0;
      return sizes.map((size) => bytes.subarray(from, (from += size)));
    },
  };
}

type Frame = (event: WatchEvent) => Buffer;

function frameOf(options: WatchEncoding): Frame {
  const { encodings, media, rest } = options;
  if (media.format === 'protobuf') {
    return (event) => {
      const object =
        event.type === 'ERROR'
          ? encodings.protobufOf(errorStatus(event.error))
          : media.as === 'PartialObjectMetadata'
            ? encodings.protobufMetadata(entryOf(event, rest), media.version)
            : encodings.protobuf(entryOf(event, rest));
      return lengthPrefixed(encodings.protobufWatchEvent(event.type, object));
    };
  }
  return (event) => {
    if (event.type === 'ERROR') return jsonFrame(event.type, errorBytes(event.error));
    const entry = entryOf(event, rest);
    return jsonFrame(
      event.type,
      media.as === 'PartialObjectMetadata' ? encodings.metadata(entry, media.version) : entry.bytes,
    );
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

function jsonFrame(type: WatchEvent['type'], object: Buffer): Buffer {
  return Buffer.concat([OPEN[type], object, CLOSE]);
}

/** Prefixes the message with its length in four bytes, most significant first. */
function lengthPrefixed(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(message.length + 4);
  framed.writeUInt32BE(message.length, 0);
  message.copy(framed, 4);
  return framed;
}

function tableEncoder(options: WatchEncoding): (events: readonly WatchEvent[]) => Batch {
  const { encodings, media, rest, include } = options;
  let first = true;
  const frame: Frame = (event) => {
    if (event.type === 'ERROR') return jsonFrame(event.type, errorBytes(event.error));
    const entry = entryOf(event, rest);
    const columns = first ? encodings.tableColumns(rest.info) : NO_COLUMNS;
    first = false;
    const version = quoteText(entry.object.metadata.resourceVersion ?? '');
    const table = Buffer.concat([
      Buffer.from(
        `{"kind":"Table","apiVersion":"meta.k8s.io/${media.version}","metadata":{"resourceVersion":${version}},"columnDefinitions":`,
      ),
      columns,
      Buffer.from(',"rows":['),
      encodings.tableRow(rest.info, entry, include, media.version, options.nowMs()),
      Buffer.from(']}'),
    ]);
    return jsonFrame(event.type, table);
  };
  return (events) => batchOf(events.map(frame));
}

const NO_COLUMNS = Buffer.from('null');

function errorStatus(error: Error): object {
  return isStatusError(error) ? error.status : newInternalError(error.message).status;
}

const errorBytes = (error: Error): Buffer => encodeJson(errorStatus(error));

type ObjectEvent = Exclude<WatchEvent, { type: 'ERROR' }>;

/** A bookmark is an object of the watched kind that has only a resource version. */
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
