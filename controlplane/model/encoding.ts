/** Defines the interface between the server and the encodings of objects other than their plain JSON. */
import type { Entry } from './rest.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';

/** What a row of a Table has of its object (`?includeObject=`). */
export type IncludeObject = 'None' | 'Metadata' | 'Object';
/** The version of `meta.k8s.io`. */
export type MetaVersion = 'v1' | 'v1beta1';

/** The `metadata` of a list in the response. */
export interface ListMetadata {
  readonly resourceVersion: string;
  readonly continue: string;
  readonly remainingItemCount: number | undefined;
}

/** What the rows of one Table have in common. */
export interface TableRowOptions {
  readonly info: ResourceInfo;
  /** Which part of the object a row has, and the version of its metadata. */
  readonly include: IncludeObject;
  readonly version: MetaVersion;
  /** The time to which ages are relative, in milliseconds since 1970. */
  readonly nowMs: number;
}

/** Encodes entries in the forms that clients can ask for beside their plain JSON. */
export interface Encodings {
  /** Whether the kind has a protobuf form (custom resources have none). `kind` may be a kind without a resource (`Scale`). */
  hasProtobuf(group: string, version: string, kind: string): boolean;

  /** Whether the resource's Table has columns of its own, beside the default ones. */
  hasColumns(info: ResourceInfo): boolean;

  /** Returns the column definitions of the resource's Table as a JSON array. */
  tableColumns(info: ResourceInfo): Buffer;
  /** Returns one row as JSON, in parts: `{"cells":[…],"object":…}`. */
  tableRow(entry: Entry, options: TableRowOptions): readonly Buffer[];
  /** Returns the entries of a list in the order of their rows. */
  inRowOrder(info: ResourceInfo, entries: readonly Entry[]): readonly Entry[];

  /** Returns the object's PartialObjectMetadata as JSON. */
  metadata(entry: Entry, version: MetaVersion): Buffer;

  /** Returns the whole response with its envelope, in parts. */
  protobuf(entry: Entry): readonly Buffer[];
  protobufList(info: ResourceInfo, entries: readonly Entry[], metadata: ListMetadata): readonly Buffer[];
  /** Encodes the metadata of an object as `PartialObjectMetadata`, and of a list as `PartialObjectMetadataList`. */
  protobufMetadata(entry: Entry, version: MetaVersion): readonly Buffer[];
  protobufMetadataList(entries: readonly Entry[], metadata: ListMetadata, version: MetaVersion): readonly Buffer[];
  /** Encodes a JSON object with `apiVersion` and `kind` that the schema has (Status, DeleteOptions, …), with its envelope. */
  protobufOf(object: object): Buffer;
  /** Encodes a `WatchEvent` message around the parts of the enveloped object, without its length prefix. */
  protobufWatchEvent(type: string, envelopedObject: readonly Buffer[]): readonly Buffer[];
  /**
   * Opens the envelope of a body and decodes its content. The envelope may leave out version or kind. For an unknown kind,
   * returns these two alone. Throws a 400, which is a `MessageError` if the content cannot be decoded.
   */
  decodeProtobuf(bytes: Buffer, expected: { readonly apiVersion: string; readonly kind: string }): unknown;

  /** Returns the parts of the text. */
  yaml(value: unknown): Iterable<string>;
}
