/**
 * Provides the encodings of an entry other than its plain JSON: rows of a Table, metadata only, protobuf, YAML.
 *
 * The encodings of list items are kept as long as the entry, so that lists splice finished bytes.
 */
import { encodeJson, stringifyJson } from '../../api/codec/json.ts';
import { MAX_VALUES } from '../../api/codec/limits.ts';
import { messageOfItem, type ProtobufCodec, type TypeMeta } from '../../api/codec/protobuf.ts';
import { apiVersionOf, type KubeObject } from '../../api/meta/object.ts';
import type { ResourceInfo, Schema } from '../../api/schema/schema.ts';
import type { Encodings, ListMetadata, MetaVersion, TableRowOptions } from '../model/encoding.ts';
import { defaultColumns } from './columns/default-columns.ts';
import { customScaleColumns, scaleColumns } from './columns/scale-columns.ts';
import { humanDuration, humanDurationLasts } from './columns/human-duration.ts';
import type { Entry } from '../model/rest.ts';
import type { Cell, Elapsed, TableColumn, TableColumns } from './strategy.ts';

interface EncodingsOptions {
  readonly schema: Schema;
  readonly columnsOf: (info: ResourceInfo) => TableColumns | undefined;
  readonly protobuf: ProtobufCodec;
  readonly yaml: (value: unknown) => Iterable<string>;
}

interface Row {
  /** The part of the object in it, and the version of metadata. */
  readonly form: string;
  /** The times between which the ages of the row have the texts that `parts` contain. The second is exclusive. */
  readonly fromMs: number;
  readonly untilMs: number;
  readonly parts: readonly Buffer[];
}

/** The encodings of one entry. */
class Cached {
  readonly owner: Encodings;
  /** The resource of the cells. A new version of a definition may have other columns. */
  info?: ResourceInfo;
  cells?: readonly Cell[];
  /** The conditions of the row as JSON, or an empty text if there are none. */
  conditions?: string;
  /** The row in the form that was requested last, because clients of one resource hardly ever request different ones. */
  row?: Row | undefined;
  metadata?: Buffer;
  metadataBeta?: Buffer;
  /** Protobuf in the form of a list item. */
  item?: Buffer;
  metadataItem?: Buffer;

  constructor(owner: Encodings) {
    this.owner = owner;
  }
}

/** Creates the encodings. */
export function createEncodings(options: EncodingsOptions): Encodings {
  return new KeptEncodings(options);
}

class KeptEncodings implements Encodings {
  readonly yaml: Encodings['yaml'];
  readonly #options: EncodingsOptions;
  readonly #protobuf: ProtobufCodec;
  readonly #tables = new WeakMap<ResourceInfo, Buffer>();

  constructor(options: EncodingsOptions) {
    this.#options = options;
    this.#protobuf = options.protobuf;
    this.yaml = options.yaml;
  }

  #columnsOf(info: ResourceInfo): TableColumns {
    if (info.group === 'autoscaling' && info.kind === 'Scale')
      return info.custom === undefined ? scaleColumns : customScaleColumns;
    return this.#options.columnsOf(info) ?? defaultColumns;
  }

  #cachedOf(entry: Entry): Cached {
    const stored = entry.encodings;
    if (stored instanceof Cached && stored.owner === this) return stored;
    const cached = new Cached(this);
    entry.encodings = cached;
    return cached;
  }

  metadata(entry: Entry, version: MetaVersion): Buffer {
    const cached = this.#cachedOf(entry);
    if (version === 'v1') return (cached.metadata ??= encodeMetadata(entry, version));
    return (cached.metadataBeta ??= encodeMetadata(entry, version));
  }

  tableRow(entry: Entry, { info, include, version, nowMs }: TableRowOptions): readonly Buffer[] {
    const cached = this.#cachedOf(entry);
    if (cached.info !== info) {
      cached.info = info;
      const columns = this.#columnsOf(info);
      cached.cells = columns.cells(entry.object);
      const conditions = columns.conditions?.(entry.object) ?? [];
      cached.conditions = conditions.length === 0 ? '' : `,"conditions":${stringifyJson(conditions)}`;
      cached.row = undefined;
    }
    const form = include === 'Metadata' ? version : include;
    const { row } = cached;
    if (row !== undefined && row.form === form && nowMs >= row.fromMs && nowMs < row.untilMs) return row.parts;
    const cells = cached.cells ?? [];
    const object = include === 'None' ? undefined : include === 'Object' ? entry.bytes : this.metadata(entry, version);
    const parts = rowParts(cells, nowMs, cached.conditions ?? '', object);
    cached.row = { form, fromMs: nowMs, untilMs: unchangedUntilMs(cells, nowMs), parts };
    return parts;
  }

  inRowOrder(info: ResourceInfo, entries: readonly Entry[]): readonly Entry[] {
    const { rowOrder } = this.#columnsOf(info);
    return rowOrder === undefined ? entries : entries.toSorted((a, b) => rowOrder(a.object, b.object));
  }

  hasColumns(info: ResourceInfo): boolean {
    return this.#options.columnsOf(info) !== undefined;
  }

  tableColumns(info: ResourceInfo): Buffer {
    let bytes = this.#tables.get(info);
    if (bytes === undefined) {
      bytes = Buffer.from(
        stringifyJson(this.#columnsOf(info).columns.map((column) => definition(this.#options.schema, column))),
      );
      this.#tables.set(info, bytes);
    }
    return bytes;
  }

  hasProtobuf(group: string, version: string, kind: string): boolean {
    return this.#protobuf.has(group, version, kind);
  }

  protobuf(entry: Entry): readonly Buffer[] {
    const { apiVersion = '', kind = '' } = entry.object;
    return this.#protobuf.envelop(apiVersion, kind, messageOfItem(this.#item(entry)));
  }

  protobufList(info: ResourceInfo, entries: readonly Entry[], listMetadata: ListMetadata): Buffer[] {
    const apiVersion = apiVersionOf(info);
    const items = entries.map((entry) => this.#item(entry));
    return this.#protobuf.list(apiVersion, `${info.kind}List`, listMeta(listMetadata), items);
  }

  protobufMetadata(entry: Entry, version: MetaVersion): readonly Buffer[] {
    const message = messageOfItem(this.#metadataItem(entry, version));
    return this.#protobuf.envelop(`meta.k8s.io/${version}`, 'PartialObjectMetadata', message);
  }

  protobufMetadataList(entries: readonly Entry[], listMetadata: ListMetadata, version: MetaVersion): Buffer[] {
    const items = entries.map((entry) => this.#metadataItem(entry, version));
    return this.#protobuf.list(`meta.k8s.io/${version}`, 'PartialObjectMetadataList', listMeta(listMetadata), items);
  }

  protobufOf(object: object): Buffer {
    return this.#protobuf.encodeEnveloped(object);
  }

  protobufWatchEvent(type: string, enveloped: readonly Buffer[]): readonly Buffer[] {
    return this.#protobuf.watchEvent(type, enveloped);
  }

  decodeProtobuf(bytes: Buffer, expected: TypeMeta): unknown {
    return this.#protobuf.decodeBody(bytes, { expected, maxValues: MAX_VALUES });
  }

  #item(entry: Entry): Buffer {
    return (this.#cachedOf(entry).item ??= this.#protobuf.encodeItem(entry.object));
  }

  #metadataItem(entry: Entry, version: MetaVersion): Buffer {
    return (this.#cachedOf(entry).metadataItem ??= this.#protobuf.encodeItem(partialObject(entry, version)));
  }
}

function definition(schema: Schema, column: TableColumn): object {
  const { name, type, format, description, priority } = column;
  const text =
    typeof description === 'string' ? description : (schema.description(description.struct, description.field) ?? '');
  return { name, type, format, description: text, priority };
}

function partialObject({ object }: Entry, version: MetaVersion): KubeObject {
  return { kind: 'PartialObjectMetadata', apiVersion: `meta.k8s.io/${version}`, metadata: shownMetadata(object) };
}

/**
 * Annotations that objects show, but that their metadata alone do not, by version and kind. kube-apiserver takes metadata from
 * its internal version of an object, which has a field in place of the annotation.
 */
const HIDDEN_ANNOTATIONS: ReadonlyMap<string, readonly string[]> = new Map([
  ['apps/v1 DaemonSet', ['deprecated.daemonset.template.generation']],
  [
    'autoscaling/v1 HorizontalPodAutoscaler',
    ['behavior', 'conditions', 'current-metrics', 'metrics'].map((name) => `autoscaling.alpha.kubernetes.io/${name}`),
  ],
]);

function shownMetadata({ apiVersion = '', kind = '', metadata }: KubeObject): KubeObject['metadata'] {
  const hidden = HIDDEN_ANNOTATIONS.get(`${apiVersion} ${kind}`);
  if (hidden === undefined || metadata.annotations === undefined) return metadata;
  const { annotations, ...others } = metadata;
  const shown = Object.entries(annotations).filter(([name]) => !hidden.includes(name));
  return shown.length === 0 ? others : { ...metadata, annotations: Object.fromEntries(shown) };
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

/** Returns the time at which the text of the first age changes; infinity without ages. */
function unchangedUntilMs(cells: readonly Cell[], nowMs: number): number {
  let untilMs = Number.POSITIVE_INFINITY;
  for (const cell of cells) {
    if (isElapsed(cell)) untilMs = Math.min(untilMs, nowMs + humanDurationLasts(nowMs - cell.sinceMs));
  }
  return untilMs;
}

const ROW_END = Buffer.from('}');

/** Returns the JSON of a row in parts. The object is not copied, because it stays the same when the ages change. */
function rowParts(cells: readonly Cell[], nowMs: number, conditions: string, object: Buffer | undefined): Buffer[] {
  const values = cells.map((cell) => (isElapsed(cell) ? elapsedText(cell, nowMs) : cell));
  const head = `{"cells":${stringifyJson(values)}${conditions}`;
  if (object === undefined) return [Buffer.from(`${head},"object":null}`)];
  return [Buffer.from(`${head},"object":`), object, ROW_END];
}
