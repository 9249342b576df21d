/**
 * Negotiates encodings by `Accept` and `Content-Type`.
 *
 * As in kube-apiserver, there are two stages with different errors. The route checks which media types it can send at all. Then
 * the encoder selects the first clause that it can satisfy with its parameters (`as=Table;g=meta.k8s.io;v=v1`).
 */
import {
  newNotAcceptable,
  newStatusError,
  newUnsupportedMediaType,
  type StatusError,
} from '../../api/meta/status-error.ts';
import type { MetaVersion } from '../model/encoding.ts';
import { type AcceptClause, acceptClauses } from '../../api/http/accept.ts';
import { JSON_TYPE, YAML_TYPE, PROTOBUF_TYPE } from '../../api/http/media-types.ts';

/** The encoding of a response. */
export type Format = 'json' | 'yaml' | 'protobuf';

/** The result of a negotiation. */
export interface OutputMediaType {
  readonly format: Format;
  readonly as: 'Table' | 'PartialObjectMetadata' | 'PartialObjectMetadataList' | '';
  readonly version: MetaVersion;
  readonly pretty: boolean;
}

const CONTENT_TYPES: Readonly<Record<Format, string>> = { json: JSON_TYPE, yaml: YAML_TYPE, protobuf: PROTOBUF_TYPE };
const FORMATS: ReadonlyMap<string, Format> = new Map([
  [JSON_TYPE, 'json'],
  [YAML_TYPE, 'yaml'],
  [PROTOBUF_TYPE, 'protobuf'],
]);
const PRODUCED = [JSON_TYPE, YAML_TYPE, PROTOBUF_TYPE];
const STREAMED = [`${JSON_TYPE};stream=watch`, `${PROTOBUF_TYPE};stream=watch`];
const DEFAULT: OutputMediaType = { format: 'json', as: '', version: 'v1', pretty: false };
const PLAIN: Readonly<Record<Format, OutputMediaType>> = {
  json: DEFAULT,
  yaml: { ...DEFAULT, format: 'yaml' },
  protobuf: { ...DEFAULT, format: 'protobuf' },
};

/** Returns the header of a response in that format. */
export const contentTypeOf = (format: Format): string => CONTENT_TYPES[format];

/** What a path can send. */
export interface NegotiationScope {
  /** Whether objects have a protobuf form. Custom resources have none; their metadata has one. */
  readonly protobuf: boolean;
  /** Whether a client may request a Table. */
  readonly table: boolean;
  /** Whether the resource can be watched, and `now` if the request is a watch. */
  readonly watch: 'never' | 'possible' | 'now';
  /** Whether the route checks first, with a message of its own. Custom resources have no such routes. */
  readonly routeCheck: boolean;
}

/** Chooses the media type of the response. Throws a 406. */
export function negotiateOutput(accept: string | undefined, scope: NegotiationScope): OutputMediaType {
  if (accept === undefined || accept === '' || accept === JSON_TYPE || accept === '*/*') return DEFAULT;
  if (accept === PROTOBUF_TYPE && scope.protobuf) return PLAIN.protobuf;
  if (scope.routeCheck) checkRoute(accept, scope);
  for (const clause of acceptClauses(accept)) {
    const match = satisfy(clause, scope);
    if (match === undefined) continue;
    // YAML cannot be streamed. As in kube-apiserver, later clauses for other formats are not tried.
    if (scope.watch === 'now' && match.format === 'yaml') throw notAcceptable(STREAMED);
    return match;
  }
  throw notAcceptable(PRODUCED);
}

const notAcceptable = (types: readonly string[]): StatusError =>
  newNotAcceptable(`only the following media types are accepted: ${types.join(', ')}`);

/** Whether the clause asks for another form of the object, such as a Table, even if its parameters name none that exists. */
export const asksForForm = ({ params }: AcceptClause): boolean =>
  params.has('as') || params.has('g') || params.has('v');

/** The encoding of an error. */
export type ErrorMediaType = Pick<OutputMediaType, 'format' | 'pretty'>;

/**
 * Returns the encoding of an error. Clauses that ask for another form (`as`) do not apply to errors. If none applies, the error
 * is indented JSON.
 */
export function negotiateError(accept: string | undefined): ErrorMediaType {
  if (accept === undefined || accept === '' || accept === JSON_TYPE) return DEFAULT;
  for (const clause of acceptClauses(accept)) {
    const format = asksForForm(clause) ? undefined : formatOf(clause, { serverVersion: '' });
    if (format !== undefined) return { format, pretty: isPretty(clause) };
  }
  return { format: 'json', pretty: true };
}

/** Whether the clause asks for indented JSON. */
export const isPretty = ({ params }: AcceptClause): boolean => params.get('pretty') === '1';

/**
 * Returns the format that the clause allows, or `undefined` if it allows none. Wildcards allow JSON. Of the parameters, only
 * `stream` counts, and `sv`, which must be `serverVersion` if it is set.
 */
export function formatOf(
  { type, params }: AcceptClause,
  { serverVersion }: { readonly serverVersion: string },
): Format | undefined {
  const format = type === '*/*' || type === 'application/*' ? 'json' : FORMATS.get(type);
  const stream = params.get('stream') ?? '';
  const version = params.get('sv') ?? '';
  if (stream !== '' && (stream !== 'watch' || format === 'yaml')) return undefined;
  return version === '' || version === serverVersion ? format : undefined;
}

function satisfy(clause: AcceptClause, scope: NegotiationScope): OutputMediaType | undefined {
  const format = formatOf(clause, { serverVersion: 'v1' });
  if (format === undefined) return undefined;
  const pretty = isPretty(clause);
  if (!asksForForm(clause)) {
    if (format === 'protobuf' && !scope.protobuf) return undefined;
    return pretty ? { ...PLAIN[format], pretty } : PLAIN[format];
  }
  const as = clause.params.get('as');
  const group = clause.params.get('g');
  const version = clause.params.get('v');
  if (group !== 'meta.k8s.io' || (version !== 'v1' && version !== 'v1beta1')) return undefined;
  if (
    as === 'Table'
      ? !scope.table || format === 'protobuf'
      : as !== 'PartialObjectMetadata' && as !== 'PartialObjectMetadataList'
  ) {
    return undefined;
  }
  return { format, as: as as OutputMediaType['as'], version, pretty };
}

/**
 * Throws a 406 for a log whose client accepts no encoding of objects. A log is always text, but kube-apiserver refuses such
 * requests.
 */
export function checkLogAccept(accept: string | undefined): void {
  checkProduced(accept, ['text/plain', ...PRODUCED]);
  negotiateOutput(accept, { protobuf: true, table: false, watch: 'never', routeCheck: false });
}

function checkRoute(accept: string, scope: NegotiationScope): void {
  checkProduced(accept, scope.watch === 'never' ? PRODUCED : [...PRODUCED, ...STREAMED]);
}

/** Throws a 406 if the header accepts none of the types that a route sends. Parameters of the header are ignored. */
export function checkProduced(accept: string | undefined, produced: readonly string[]): void {
  if (accept === undefined || accept === '') return;
  for (const part of accept.split(',')) {
    const bare = (part.split(';')[0] ?? '').trim();
    if (bare === '*/*' || produced.includes(bare)) return;
  }
  throw routeError(406, 'NotAcceptable', `406: Not Acceptable\n\nAvailable representations: ${produced.join(', ')}`);
}

/**
 * Creates the error of a path, method or media type that the server does not serve. These errors have details, although they
 * are empty.
 */
export function routeError(code: number, reason: string, message: string): StatusError {
  return newStatusError(code, reason, message, { details: {} });
}

/** Returns the encoding of the body of a create, an update or a delete. Throws a 415. */
export function inputFormat(contentType: string | undefined, scope: { readonly protobuf: boolean }): Format {
  if (contentType === undefined || contentType === '' || contentType === JSON_TYPE) return 'json';
  const [type = '', ...parameters] = contentType.split(';').map((part) => part.trim());
  const format = FORMATS.get(type.toLowerCase());
  const isWellFormed = parameters.every((parameter) => parameter === '' || parameter.includes('='));
  if (format !== undefined && isWellFormed && (format !== 'protobuf' || scope.protobuf)) return format;
  throw newUnsupportedMediaType(
    `the body of the request was in an unknown format - accepted media types include: ${PRODUCED.join(', ')}`,
  );
}

/** Whether the client accepts a compressed response. */
export function acceptsGzip(acceptEncoding: string | undefined): boolean {
  if (acceptEncoding === undefined) return false;
  return acceptEncoding.split(',').some((part) => part.trim().split(';')[0] === 'gzip');
}
