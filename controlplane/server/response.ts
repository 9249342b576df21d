/**
 * Sends responses in the negotiated encoding: one object, a list or a Status. JSON responses are spliced from the entries' own
 * bytes. `Encodings` provides every other encoding.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { encodeJson, parseExactJson } from '../../api/codec/json.ts';
import { responseJson } from '../../api/http/pretty.ts';
import { apiVersionOf, parseApiVersion, type KubeObject } from '../../api/meta/object.ts';
import { newBadRequest, newErrorWithoutReason, newNotAcceptable, type Status } from '../../api/meta/status-error.ts';
import { internalPackage } from '../../api/schema/go-types.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { Entry, Rest } from '../model/rest.ts';
import type { Encodings, IncludeObject, ListMetadata, TableRowOptions } from '../model/encoding.ts';
import { GZIP_FROM_BYTES, GENERATED_CHUNK_BYTES, sendBody, sendGenerated } from './body-stream.ts';
import { formattedChunks, inChunks, type FormattedList } from './formatted-list.ts';
import { contentTypeOf, negotiateError, type ErrorMediaType, type OutputMediaType } from './media-type.ts';
import { Pieces } from './pieces.ts';
import type { ApiRequest, MaybePromise } from './request.ts';

const COMMA = Buffer.from(',');
/** The end of JSON on one line. */
const NEWLINE_BYTE = 0x0a;
const NEWLINE = Buffer.from([NEWLINE_BYTE]);

/** Where one object is sent, and in which encoding. */
interface ObjectReply {
  readonly request: ApiRequest;
  readonly encodings: Encodings;
  readonly media: ErrorMediaType;
}

/** Where objects of the registry are sent, and as what: themselves, rows of a table or their metadata. */
interface Reply extends ObjectReply {
  readonly media: OutputMediaType;
}

/** Sends one object. Throws a 406, or an error without a reason for custom resources, if the client requests a list. */
export function sendEntry(reply: Reply, status: number, rest: Rest, entry: Entry): MaybePromise<void> {
  const { request, encodings, media } = reply;
  recordEntry(reply, rest, entry);
  if (
    media.format === 'json' &&
    media.as === '' &&
    !media.pretty &&
    entry.bytes.length < GZIP_FROM_BYTES &&
    !request.wantsPretty
  ) {
    request.send(status, 'application/json', withNewline(entry.bytes));
    return undefined;
  }
  const contentType = contentTypeOf(media.format);
  if (media.as === 'PartialObjectMetadataList') {
    // kube-apiserver takes the object of a custom resource for a list before it reads its members.
    if (rest.info.custom !== undefined) throw newErrorWithoutReason('content is not a list');
    throw newNotAcceptable(
      `you requested PartialObjectMetadataList, but the requested object is not a list (*${internalType(entry.object)})`,
    );
  }
  if (media.format === 'protobuf') {
    const parts = media.as === '' ? encodings.protobuf(entry) : encodings.protobufMetadata(entry, media.version);
    return sendBody(request, status, contentType, Pieces.of(parts));
  }
  let pieces = Pieces.of([
    media.as === 'PartialObjectMetadata' ? encodings.metadata(entry, media.version) : entry.bytes,
    NEWLINE,
  ]);
  if (media.as === 'Table') pieces = tableOfEntry(reply, rest, entry);
  return sendJson(reply, status, pieces);
}

/** Returns a copy that ends with a newline. `Buffer.concat` takes longer than a small object's copy. */
function withNewline(bytes: Buffer): Buffer {
  const line = Buffer.allocUnsafe(bytes.length + 1);
  bytes.copy(line);
  line[bytes.length] = NEWLINE_BYTE;
  return line;
}

/** Passes the answer to the audit log in the form that the client gets, but in JSON. */
function recordEntry(reply: Reply, rest: Rest, entry: Entry): void {
  const { encodings, media } = reply;
  const { audited } = reply.request;
  if (rest.subresource?.kind !== undefined && entry.object.kind === 'Status') audited?.statusIs(entry.object);
  else if (media.as === 'PartialObjectMetadata') audited?.answerIs(encodings.metadata(entry, media.version));
  else if (media.as === 'Table') audited?.answerIs(() => parsed(tableOfEntry(reply, rest, entry)));
  else audited?.answerIs(entry.bytes);
}

const parsed = (pieces: Pieces): object => parseExactJson(pieces.whole().toString()) as object;

function tableOfEntry(reply: Reply, rest: Rest, entry: Entry): Pieces {
  const resourceVersion = entry.object.metadata.resourceVersion ?? '';
  const metadata = { resourceVersion, continue: '', remainingItemCount: undefined };
  return table(reply, rest.tableInfo ?? rest.info, [entry], metadata);
}

const internalType = ({ apiVersion = '', kind = '' }: KubeObject): string =>
  `${internalPackage(parseApiVersion(apiVersion)?.group ?? '')}.${kind}`;

/** Sends a list of the resource. Throws a 406 if the client requests the metadata of one object. */
export function sendList(
  reply: Reply,
  rest: Rest,
  entries: readonly Entry[],
  metadata: ListMetadata,
): MaybePromise<void> {
  const { request, encodings, media } = reply;
  const { info } = rest;
  request.audited?.answerIs(() => recordedList(reply, info, entries, metadata));
  if (media.as === 'PartialObjectMetadata') {
    throw newNotAcceptable(
      `you requested PartialObjectMetadata, but the requested object is a list (*${info.custom === undefined ? `${internalPackage(info.group)}.${info.kind}List` : 'unstructured.UnstructuredList'})`,
    );
  }
  if (media.format === 'protobuf') {
    const pieces =
      media.as === ''
        ? encodings.protobufList(info, entries, metadata)
        : encodings.protobufMetadataList(entries, metadata, media.version);
    return sendBody(request, 200, contentTypeOf('protobuf'), Pieces.of(pieces));
  }
  if (media.as === 'Table') {
    if (isFormatted(request, media) && !hasNoRows(encodings, info, entries)) {
      const frame = Pieces.of([...tableFrame(encodings, info, metadata, media), OPEN_LIST, CLOSE_LIST]);
      const options = rowOptions(request, info, media);
      const ordered = encodings.inRowOrder(info, entries).values();
      const items = ordered.map((entry) => Buffer.concat(encodings.tableRow(entry, options)));
      return sendFormatted(reply, { frame, member: 'rows', items, omitted: [] });
    }
    return sendJson(reply, 200, table(reply, info, entries, metadata));
  }
  const asMetadata = media.as === 'PartialObjectMetadataList';
  const kind = asMetadata ? 'PartialObjectMetadataList' : (info.custom?.listKind ?? `${info.kind}List`);
  const apiVersion = asMetadata ? `meta.k8s.io/${media.version}` : apiVersionOf(info);
  const frame = Pieces.of([
    Buffer.from(
      `{"kind":"${kind}","apiVersion":"${apiVersion}","metadata":${listMetadata(metadata, info.custom !== undefined && !asMetadata)},"items":`,
    ),
    asMetadata && entries.length === 0 ? NO_ITEMS : OPEN_LIST,
  ]);
  if (asMetadata && entries.length === 0) return sendJson(reply, 200, frame);
  const head = asMetadata ? undefined : itemHead(encodings, info);
  if (isFormatted(request, media)) {
    frame.add(CLOSE_LIST);
    const items = entries
      .values()
      .map((entry) => (asMetadata ? encodings.metadata(entry, media.version) : entry.bytes));
    const omitted = head === undefined ? [] : ['kind', 'apiVersion'];
    return sendFormatted(reply, { frame, member: 'items', items, omitted });
  }
  const pieces = inList(frame, entries, (to, entry) => {
    if (asMetadata) to.add(encodings.metadata(entry, media.version));
    else addItem(to, entry, head);
  });
  return sendJson(reply, 200, pieces);
}

/**
 * Returns the body of a list: the frame up to its items, the parts that `addParts` adds for each entry, and the end. The parts
 * of an entry are added when the body is sent up to it.
 */
function inList(frame: Pieces, entries: readonly Entry[], addParts: (to: Pieces, entry: Entry) => void): Pieces {
  let next = 0;
  const pieces = new Pieces((to) => {
    if (next > entries.length) return false;
    const entry = entries[next];
    if (entry === undefined) to.add(CLOSE_LIST);
    else {
      if (next > 0) to.add(COMMA);
      addParts(to, entry);
    }
    next += 1;
    return true;
  });
  pieces.add(frame.whole());
  return pieces;
}

/** Returns a list for the audit log, in the form that the client gets. */
function recordedList(reply: Reply, info: ResourceInfo, entries: readonly Entry[], metadata: ListMetadata): object {
  const { encodings, media } = reply;
  if (media.as === 'Table') return parsed(table(reply, info, entries, metadata));
  if (media.as === 'PartialObjectMetadataList')
    return {
      kind: 'PartialObjectMetadataList',
      apiVersion: `meta.k8s.io/${media.version}`,
      metadata: parseExactJson(listMetadata(metadata)),
      items: entries.map((entry) => parseExactJson(encodings.metadata(entry, media.version).toString())),
    };
  return {
    kind: info.custom?.listKind ?? `${info.kind}List`,
    apiVersion: apiVersionOf(info),
    metadata: parseExactJson(listMetadata(metadata, info.custom !== undefined)),
    items: itemHead(encodings, info) === undefined ? entries.map(({ object }) => object) : entries.map(withoutType),
  };
}

/**
 * The items of an empty list of metadata, and of an empty table of default columns, which kube-apiserver writes as a nil slice.
 */
const NO_ITEMS = Buffer.from('null}\n');
const OPEN_LIST = Buffer.from('[');
const CLOSE_LIST = Buffer.from(']}\n');
const OPEN_OBJECT = Buffer.from('{');

interface ItemHead {
  readonly kindFirst: Buffer;
  readonly versionFirst: Buffer;
}

const heads = new WeakMap<ResourceInfo, { readonly head: ItemHead | undefined }>();

/**
 * Returns the beginning of each item's bytes that is cut off: items of built-in lists have no kind and version. Returns
 * `undefined` for custom resources, whose items keep both.
 */
function itemHead(encodings: Encodings, info: ResourceInfo): ItemHead | undefined {
  let cached = heads.get(info);
  if (cached === undefined) {
    const builtIn = encodings.hasProtobuf(info.group, info.version, info.kind);
    const kind = `"kind":"${info.kind}"`;
    const version = `"apiVersion":"${apiVersionOf(info)}"`;
    const head = { kindFirst: Buffer.from(`{${kind},${version},`), versionFirst: Buffer.from(`{${version},${kind},`) };
    cached = { head: builtIn ? head : undefined };
    heads.set(info, cached);
  }
  return cached.head;
}

function addItem(pieces: Pieces, entry: Entry, head: ItemHead | undefined): void {
  if (head === undefined) {
    pieces.add(entry.bytes);
    return;
  }
  const { length } = head.kindFirst;
  if (startsWith(entry.bytes, head.kindFirst) || startsWith(entry.bytes, head.versionFirst)) {
    pieces.add(OPEN_OBJECT);
    pieces.add(entry.bytes, length);
    return;
  }
  pieces.add(encodeJson(withoutType(entry)));
}

function withoutType({ object }: Entry): object {
  const { kind: _kind, apiVersion: _apiVersion, ...untyped } = object;
  return untyped;
}

function startsWith(bytes: Buffer, prefix: Buffer): boolean {
  if (bytes.length < prefix.length) return false;
  for (let at = prefix.length - 1; at >= 0; at -= 1) if (bytes[at] !== prefix[at]) return false;
  return true;
}

/** Encodes the metadata of a list. `emptyContinue` includes an empty `continue`, as in lists of custom resources. */
function listMetadata(metadata: ListMetadata, emptyContinue = false): string {
  const members: string[] = [];
  if (metadata.resourceVersion !== '') members.push(`"resourceVersion":${quoteText(metadata.resourceVersion)}`);
  if (emptyContinue || metadata.continue !== '') members.push(`"continue":${quoteText(metadata.continue)}`);
  if (metadata.remainingItemCount !== undefined && metadata.remainingItemCount > 0)
    members.push(`"remainingItemCount":${metadata.remainingItemCount}`);
  return `{${members.join(',')}}`;
}

/** Parses `includeObject`. Throws a 400. */
export function includeObject(request: ApiRequest): IncludeObject {
  const given = request.query.get('includeObject') ?? '';
  if (given === '' || given === 'Metadata') return 'Metadata';
  if (given === 'None' || given === 'Object') return given;
  throw newBadRequest(
    `Unable to convert to Table as requested: includeObject: Invalid value: ${quoteText(given)}: must be 'Metadata', 'Object', 'None', or empty`,
  );
}

function table(reply: Reply, info: ResourceInfo, entries: readonly Entry[], metadata: ListMetadata): Pieces {
  const { request, encodings, media } = reply;
  const frame = Pieces.of(tableFrame(encodings, info, metadata, media));
  if (hasNoRows(encodings, info, entries)) {
    frame.add(NO_ITEMS);
    return frame;
  }
  frame.add(OPEN_LIST);
  const options = rowOptions(request, info, media);
  return inList(frame, encodings.inRowOrder(info, entries), (to, entry) => {
    for (const part of encodings.tableRow(entry, options)) to.add(part);
  });
}

/** Returns the beginning of a table, up to its rows. */
function tableFrame(
  encodings: Encodings,
  info: ResourceInfo,
  metadata: ListMetadata,
  { version }: OutputMediaType,
): Buffer[] {
  return [
    Buffer.from(
      `{"kind":"Table","apiVersion":"meta.k8s.io/${version}","metadata":${listMetadata(metadata)},"columnDefinitions":`,
    ),
    encodings.tableColumns(info),
    Buffer.from(',"rows":'),
  ];
}

/**
 * Whether the rows of a Table are `null`: kube-apiserver writes that for an empty table of a kind without columns of its own.
 */
const hasNoRows = (encodings: Encodings, info: ResourceInfo, entries: readonly Entry[]): boolean =>
  entries.length === 0 && !encodings.hasColumns(info);

const rowOptions = (request: ApiRequest, info: ResourceInfo, { version }: OutputMediaType): TableRowOptions => ({
  info,
  include: includeObject(request),
  version,
  nowMs: request.nowMs,
});

/** Sends any object with kind and version in the negotiated encoding. */
export function sendObject(reply: ObjectReply, status: number, object: object): void {
  const { request, media } = reply;
  if ('kind' in object && object.kind === 'Status') request.audited?.statusIs(object);
  else request.audited?.answerIs(object);
  request.send(status, contentTypeOf(media.format), encoded(reply, object));
}

function encoded({ request, encodings, media: { format, pretty } }: ObjectReply, object: object): Buffer | string {
  switch (format) {
    case 'protobuf':
      return encodings.protobufOf(object);
    case 'yaml':
      return [...encodings.yaml(object)].join('');
    case 'json':
      return responseJson(object, { pretty: pretty || request.wantsPretty });
  }
}

/** Sends a Status as the response, in the encoding that the client accepts for errors. */
export function sendStatus(request: ApiRequest, encodings: Encodings, status: Status): void {
  request.audited?.statusIs(status);
  const retryAfter = status.details?.retryAfterSeconds;
  const media = negotiateError(request.header('accept'));
  const headers = request.responseHeaders(contentTypeOf(media.format));
  if (retryAfter !== undefined && retryAfter > 0) headers['retry-after'] = String(retryAfter);
  request.sendWith(status.code, headers, encoded({ request, encodings, media }, status));
}

const isFormatted = (request: ApiRequest, { format, pretty }: OutputMediaType): boolean =>
  format === 'yaml' || pretty || request.wantsPretty;

/** Sends a list as YAML or indented JSON. Its items are formatted as the client takes the text. */
function sendFormatted(
  { request, encodings, media: { format } }: Reply,
  { frame, ...list }: Omit<FormattedList, 'frame'> & { readonly frame: Pieces },
): MaybePromise<void> {
  const text = frame.whole().toString();
  const chunks = formattedChunks(
    { frame: text, ...list },
    GENERATED_CHUNK_BYTES,
    format === 'yaml' ? encodings.yaml : undefined,
  );
  return sendGenerated(request, 200, contentTypeOf(format), chunks);
}

function sendJson({ request, encodings, media }: Reply, status: number, pieces: Pieces): MaybePromise<void> {
  const { format } = media;
  if (!isFormatted(request, media)) return sendBody(request, status, contentTypeOf('json'), pieces);
  const value = parseExactJson(pieces.whole().toString());
  const type = contentTypeOf(format);
  if (format === 'yaml')
    return sendGenerated(request, status, type, inChunks(encodings.yaml(value), GENERATED_CHUNK_BYTES));
  return sendBody(request, status, type, Pieces.of([Buffer.from(responseJson(value, { pretty: true }))]));
}
