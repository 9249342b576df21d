/**
 * The interface between the server and the encodings other than JSON. `registry/encodings.ts` implements it and caches
 * encodings with the entry, so that nothing is encoded twice.
 */
import type { Entry } from './rest.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';

export type IncludeObject = 'None' | 'Metadata' | 'Object';
/** Of `meta.k8s.io`. */
export type MetaVersion = 'v1' | 'v1beta1';

/** `metadata` of a list, as it goes out. */
export interface ListMetadata {
  readonly resourceVersion: string;
  readonly continue: string;
  readonly remainingItemCount: number | undefined;
}

export interface Encodings {
  /** Whether the kind has a protobuf form (custom resources have none). `kind` may be one that is no resource (`Scale`). */
  hasProtobuf(group: string, version: string, kind: string): boolean;

  /** JSON array of the column definitions of the resource's Table. */
  tableColumns(info: ResourceInfo): Buffer;
  /** JSON of one row: `{"cells":[…],"object":…}`. Ages are as of `nowMs`. */
  tableRow(info: ResourceInfo, entry: Entry, include: IncludeObject, version: MetaVersion, nowMs: number): Buffer;

  /** JSON of the object's PartialObjectMetadata. */
  metadata(entry: Entry, version: MetaVersion): Buffer;

  /** The whole response with its envelope. */
  protobuf(entry: Entry): Buffer;
  protobufList(info: ResourceInfo, entries: readonly Entry[], metadata: ListMetadata): readonly Buffer[];
  /** `PartialObjectMetadata` of one, `PartialObjectMetadataList` of a list. */
  protobufMetadata(entry: Entry, version: MetaVersion): Buffer;
  protobufMetadataList(entries: readonly Entry[], metadata: ListMetadata, version: MetaVersion): readonly Buffer[];
  /** Any JSON object with `apiVersion` and `kind` that the schema knows (Status, DeleteOptions, …), with its envelope. */
  protobufOf(object: object): Buffer;
  /** One `WatchEvent` message around the enveloped object, without the length before it. */
  protobufWatchEvent(type: string, envelopedObject: Buffer): Buffer;
  /** Opens the envelope and decodes its content. Throws a 400. */
  decodeProtobuf(bytes: Buffer): unknown;

  yaml(value: unknown): string;
}
