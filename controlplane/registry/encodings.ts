/**
 * What an entry looks like to clients that do not want its plain JSON: rows of a Table, metadata only, protobuf, YAML.
 *
 * Everything is computed once an entry and kept as long as the entry itself is, so that lists splice finished bytes. A
 * Table row is kept with the texts of its ages and made anew only when one of them has changed. The server calls this.
 */
import { encodeJson, stringifyJson } from '../../api/codec/json.ts';
import { MAX_VALUES } from '../../api/codec/limits.ts';
import { messageOfItem } from '../../api/codec/protobuf.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { ResourceInfo, Schema } from '../../api/schema/schema.ts';
import type { Encodings, IncludeObject, ListMetadata, MetaVersion } from '../model/encoding.ts';
import { defaultColumns } from './columns/default-columns.ts';
import { scaleColumns } from './columns/scale-columns.ts';
import { humanDuration } from './columns/human-duration.ts';
import type { Entry } from '../model/rest.ts';
import type { Cell, Elapsed, TableColumn, TableColumns } from './strategy.ts';

/** The protobuf form of the built-in types. Messages have no `k8s\0` envelope except where a comment says so. */
export interface ProtobufCodec {
  /** Whether the kind has a message. */
  has(group: string, version: string, kind: string): boolean;
  /** With its envelope. */
  envelop(apiVersion: string, kind: string, message: Buffer): Buffer;
  /** The message of an object as a list has it, its length before it. */
  encodeItem(object: KubeObject): Buffer;
  /** A list in its envelope, in pieces, around items of `encodeItem`. */
  list(apiVersion: string, kind: string, metadata: object, items: readonly Buffer[]): Buffer[];
  /** Any object of a type that the schema knows, with its envelope. */
  encodeEnveloped(object: object): Buffer;
  watchEvent(type: string, envelopedObject: Buffer): Buffer;
  /** Throws 400. */
  decode(bytes: Buffer, maxValues: number): unknown;
}

export interface EncodingsOptions {
  readonly schema: Schema;
  readonly columnsOf: (info: ResourceInfo) => TableColumns | undefined;
  readonly protobuf: ProtobufCodec;
  readonly yaml: (value: unknown) => string;
}

interface Row {
  readonly ages: readonly string[];
  readonly bytes: Buffer;
}

interface Cached {
  /** Whose columns the cells are of: a definition may get others. */
  info?: ResourceInfo;
  cells?: readonly Cell[];
  /** JSON of the row's conditions, `''` without any. */
  conditions?: string;
  rows?: Map<string, Row>;
  metadata?: Buffer;
  metadataBeta?: Buffer;
  /** Protobuf, as an item of a list. */
  item?: Buffer;
  metadataItem?: Buffer;
}

export function createEncodings(options: EncodingsOptions): Encodings {
  const cache = new WeakMap<Entry, Cached>();
  const tables = new WeakMap<ResourceInfo, Buffer>();
  const { protobuf } = options;
  const columnsOf = (info: ResourceInfo): TableColumns =>
    info.group === 'autoscaling' && info.kind === 'Scale' ? scaleColumns : (options.columnsOf(info) ?? defaultColumns);

  function cachedOf(entry: Entry): Cached {
    let cached = cache.get(entry);
    if (cached === undefined) {
      cached = {};
      cache.set(entry, cached);
    }
    return cached;
  }

  function metadata(entry: Entry, version: MetaVersion): Buffer {
    const cached = cachedOf(entry);
    if (version === 'v1') return (cached.metadata ??= encodeMetadata(entry, version));
    return (cached.metadataBeta ??= encodeMetadata(entry, version));
  }

  function tableRow(
    info: ResourceInfo,
    entry: Entry,
    include: IncludeObject,
    version: MetaVersion,
    nowMs: number,
  ): Buffer {
    const cached = cachedOf(entry);
    if (cached.info !== info) {
      cached.info = info;
      const columns = columnsOf(info);
      cached.cells = columns.cells(entry.object);
      const conditions = columns.conditions?.(entry.object) ?? [];
      cached.conditions = conditions.length === 0 ? '' : `,"conditions":${stringifyJson(conditions)}`;
      delete cached.rows;
    }
    const cells = cached.cells ?? [];
    const ages: string[] = [];
    for (const cell of cells) if (isElapsed(cell)) ages.push(elapsedText(cell, nowMs));
    const form = include === 'Metadata' ? version : include;
    cached.rows ??= new Map();
    const kept = cached.rows.get(form);
    if (kept !== undefined && sameTexts(kept.ages, ages)) return kept.bytes;
    const object = include === 'None' ? undefined : include === 'Object' ? entry.bytes : metadata(entry, version);
    const bytes = encodeRow(cells, ages, cached.conditions ?? '', object);
    cached.rows.set(form, { ages, bytes });
    return bytes;
  }

  function tableColumns(info: ResourceInfo): Buffer {
    let bytes = tables.get(info);
    if (bytes === undefined) {
      bytes = Buffer.from(stringifyJson(columnsOf(info).columns.map((column) => definition(options.schema, column))));
      tables.set(info, bytes);
    }
    return bytes;
  }

  const item = (entry: Entry): Buffer => (cachedOf(entry).item ??= protobuf.encodeItem(entry.object));
  const metadataItem = (entry: Entry, version: MetaVersion): Buffer =>
    (cachedOf(entry).metadataItem ??= protobuf.encodeItem(partialObject(entry, version)));

  return {
    hasProtobuf: (group, version, kind) => protobuf.has(group, version, kind),
    tableColumns,
    tableRow,
    metadata,
    protobuf: (entry) =>
      protobuf.envelop(entry.object.apiVersion ?? '', entry.object.kind ?? '', messageOfItem(item(entry))),
    protobufList(info, entries, listMetadata) {
      const apiVersion = info.group === '' ? info.version : `${info.group}/${info.version}`;
      return protobuf.list(apiVersion, `${info.kind}List`, listMeta(listMetadata), entries.map(item));
    },
    protobufMetadata: (entry, version) =>
      protobuf.envelop(`meta.k8s.io/${version}`, 'PartialObjectMetadata', messageOfItem(metadataItem(entry, version))),
    protobufMetadataList(entries, listMetadata, version) {
      const items = entries.map((entry) => metadataItem(entry, version));
      return protobuf.list(`meta.k8s.io/${version}`, 'PartialObjectMetadataList', listMeta(listMetadata), items);
    },
    protobufOf: (object) => protobuf.encodeEnveloped(object),
    protobufWatchEvent: (type, enveloped) => protobuf.watchEvent(type, enveloped),
    decodeProtobuf: (bytes) => protobuf.decode(bytes, MAX_VALUES),
    yaml: options.yaml,
  };
}

function definition(schema: Schema, column: TableColumn): object {
  const { name, type, format, description, priority } = column;
  const text =
    typeof description === 'string' ? description : (schema.description(description.struct, description.field) ?? '');
  return { name, type, format, description: text, priority };
}

function partialObject(entry: Entry, version: MetaVersion): KubeObject {
  return { kind: 'PartialObjectMetadata', apiVersion: `meta.k8s.io/${version}`, metadata: entry.object.metadata };
}

function encodeMetadata(entry: Entry, version: MetaVersion): Buffer {
  return encodeJson(partialObject(entry, version));
}

function listMeta(metadata: ListMetadata): object {
  return {
    resourceVersion: metadata.resourceVersion,
    ...(metadata.continue === '' ? {} : { continue: metadata.continue }),
    ...(metadata.remainingItemCount === undefined ? {} : { remainingItemCount: metadata.remainingItemCount }),
  };
}

function isElapsed(cell: Cell): cell is Elapsed {
  return typeof cell === 'object' && cell !== null;
}

function elapsedText(cell: Elapsed, nowMs: number): string {
  return `${cell.before ?? ''}${humanDuration(nowMs - cell.sinceMs)}${cell.after ?? ''}`;
}

function sameTexts(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((text, index) => text === b[index]);
}

function encodeRow(
  cells: readonly Cell[],
  ages: readonly string[],
  conditions: string,
  object: Buffer | undefined,
): Buffer {
  let next = 0;
  const values = cells.map((cell) => (isElapsed(cell) ? ages[next++] : cell));
  const head = `{"cells":${stringifyJson(values)}${conditions}`;
  if (object === undefined) return Buffer.from(`${head},"object":null}`);
  return Buffer.concat([Buffer.from(`${head},"object":`), object, Buffer.from('}')]);
}
