/** Reads and decodes the body of a write. */
import { JsonNumberError, JsonSyntaxError } from '../../api/codec/json.ts';
import { YamlSyntaxError } from '../../api/codec/yaml.ts';
import { notAnObject } from '../../api/meta/go-text.ts';
import { apiVersionOf, parseApiVersion } from '../../api/meta/object.ts';
import { MessageError, type TypeMeta } from '../../api/codec/protobuf.ts';
import { newBadRequest, isStatusError } from '../../api/meta/status-error.ts';
import { LARGE_BYTES, nextTurn } from '../registry/large-object.ts';
import type { Body, Rest } from '../model/rest.ts';
import type { Encodings } from '../model/encoding.ts';
import { inputFormat, type Format } from './media-type.ts';
import type { ApiRequest, MaybePromise } from './request.ts';
import { jsonKind } from '../../api/schema/go-types.ts';
import { checkDeleteOptionsKind } from './delete-options-kind.ts';

const MAX_BODY_BYTES = 3 * 1024 * 1024;

/** Parsers of text to a value. `duplicates` are the duplicate fields. They throw `JsonSyntaxError` and `YamlSyntaxError`. */
export interface TextDecoders {
  json(bytes: Buffer): Body;
  /** Decodes YAML. Large bodies do not block the event loop. Rejects with a 429 if too many of them wait. */
  yaml(bytes: Buffer, signal: AbortSignal): MaybePromise<Body>;
}

interface BodyOptions {
  readonly encodings: Encodings;
  readonly decoders: TextDecoders;
  readonly protobuf: boolean;
  /** Called before the body is decoded. */
  readonly check?: () => void;
}

/**
 * Reads and decodes the body of a request. Rejects as `receiveBody` does, with an error of `check`, and with kube-apiserver's
 * errors.
 */
export async function readBody(request: ApiRequest, rest: Rest, options: BodyOptions): Promise<Body> {
  const format = inputFormat(request.header('content-type'), options);
  const bytes = await receiveBody(request);
  options.check?.();
  const expected = rest.subresource ?? rest.info;
  const { kind } = expected;
  try {
    const body = await decode(
      request,
      { bytes, format, expected: { apiVersion: apiVersionOf(expected), kind } },
      options,
    );
    if (request.isLarge) await nextTurn();
    const type = jsonType(body.value);
    request.audited?.bodyIs(body.value);
    if (type !== 'object' && type !== 'null') throw new JsonSyntaxError(notAnObject(type));
    const found = typeMetaOf(body.value);
    // The kind of a custom resource has no default, unlike that of a type which kube-apiserver compiles in.
    if (found.kind === '' && rest.info.custom !== undefined && kind === rest.info.kind)
      throw newBadRequest(`Object 'Kind' is missing in '${bytes.toString('utf8')}'`);
    return body;
  } catch (error) {
    if (error instanceof MessageError) {
      const found = error.typeMeta;
      const version = parseApiVersion(found.apiVersion)?.version ?? '';
      throw newBadRequest(`${found.kind} in version "${version}" cannot be handled as a ${kind}: ${error.message}`);
    }
    if (error instanceof JsonNumberError && kind === rest.info.kind) {
      const { version } = rest.info;
      throw newBadRequest(`${kind} in version "${version}" cannot be handled as a ${kind}: ${error.message}`);
    }
    throw newBadRequest(
      `the object provided is unrecognized (must be of type ${kind}): ${decodeProblem(error)} (${summary(bytes)})`,
    );
  }
}

/**
 * Returns the bytes of a body once they are received and the request may continue, and records their number. Rejects with a 413
 * if the body is too large, and with a 429 if too many bodies wait.
 */
export async function receiveBody(request: ApiRequest): Promise<Buffer> {
  const { exchange, place } = request;
  const bytes =
    place === undefined
      ? await exchange.readBody(MAX_BODY_BYTES)
      : await place.receive((count) => exchange.readBody(MAX_BODY_BYTES, count));
  request.requestBytes = bytes.length;
  request.isLarge = bytes.length > LARGE_BYTES;
  return bytes;
}

/** A received body. `expected` is the type that the path names. */
interface EncodedBody {
  readonly bytes: Buffer;
  readonly format: Format;
  readonly expected: TypeMeta;
}

/** Decodes the bytes in their format. A body of protobuf that names no version or kind has the expected one. */
function decode(
  request: ApiRequest,
  { bytes, format, expected }: EncodedBody,
  options: BodyOptions,
): MaybePromise<Body> {
  if (format === 'protobuf') return { value: options.encodings.decodeProtobuf(bytes, expected), duplicates: [] };
  return format === 'yaml' ? options.decoders.yaml(bytes, request.signal) : options.decoders.json(bytes);
}

/** Returns why the content of a body cannot be decoded. Rethrows other errors. */
function decodeProblem(error: unknown): string {
  if (error instanceof JsonSyntaxError) return `couldn't get version/kind; json parse error: ${error.message}`;
  if (error instanceof YamlSyntaxError) return error.message;
  if (isStatusError(error) && error.code === 400) return error.status.message ?? '';
  throw error;
}

/**
 * Reads the members that select the type of a body. Throws kube-apiserver's errors: a `JsonSyntaxError` for a member that is
 * not a text, and a 400 for an `apiVersion` with too many slashes.
 */
function typeMetaOf(value: unknown): { readonly apiVersion: string; readonly kind: string } {
  const members = (value ?? {}) as Readonly<Record<string, unknown>>;
  const text = (name: 'apiVersion' | 'kind'): string => {
    const member = members[name] ?? '';
    if (typeof member === 'string') return member;
    throw new JsonSyntaxError(
      `json: cannot unmarshal ${jsonType(member)} into Go struct field .${name} of type string`,
    );
  };
  const apiVersion = text('apiVersion');
  if (parseApiVersion(apiVersion) === undefined && apiVersion !== '')
    throw newBadRequest(`unexpected GroupVersion string: ${apiVersion}`);
  return { apiVersion, kind: text('kind') };
}

const SHOWN_BYTES = 30;

/** Formats the beginning of a body for messages: as text if it looks like JSON, otherwise in hexadecimal. */
function summary(bytes: Buffer): string {
  if (bytes.length === 0) return '<empty>';
  const shown = bytes.subarray(0, SHOWN_BYTES);
  const text = bytes[0] === 0x7b ? shown.toString('utf8') : shown.toString('hex');
  return bytes.length > SHOWN_BYTES ? `${text} ...` : text;
}

/** Returns the kind of a JSON value of a request, as Go's decoder names it; `null` for null. */
export const jsonType = (value: unknown): string => (value === null ? 'null' : jsonKind(value));

const DELETE_OPTIONS: TypeMeta = { apiVersion: 'meta.k8s.io/v1', kind: 'DeleteOptions' };

/** The type of options in the audit log of kube-apiserver, which records them as it has decoded them. */
const RECORDED_OPTIONS: TypeMeta = { kind: 'DeleteOptions', apiVersion: 'meta.k8s.io/__internal' };

/**
 * Reads and decodes DeleteOptions. Resolves to `undefined` without a body. Rejects as `receiveBody` does, with a 415 for an
 * unknown media type, or with a 400 for a body that cannot be decoded or has another kind.
 */
export async function readDeleteOptions(
  request: ApiRequest,
  options: BodyOptions,
): Promise<Record<string, unknown> | undefined> {
  const bytes = await receiveBody(request);
  if (bytes.length === 0) return undefined;
  const format = inputFormat(request.header('content-type'), options);
  const body = await deleteOptionsOf(request, bytes, format, options);
  request.audited?.bodyIs(body);
  const { kind, apiVersion } = deleteOptionsType(body);
  checkDeleteOptionsKind(kind, apiVersion);
  request.audited?.bodyIs({ ...body, ...RECORDED_OPTIONS });
  return body;
}

function deleteOptionsType(body: unknown): ReturnType<typeof typeMetaOf> {
  try {
    return typeMetaOf(body);
  } catch (error) {
    throw newBadRequest(decodeProblem(error));
  }
}

async function deleteOptionsOf(
  request: ApiRequest,
  bytes: Buffer,
  format: Format,
  options: BodyOptions,
): Promise<Record<string, unknown>> {
  let value: unknown;
  try {
    ({ value } = await decode(request, { bytes, format, expected: DELETE_OPTIONS }, options));
  } catch (error) {
    throw newBadRequest(decodeProblem(error));
  }
  const type = jsonType(value);
  if (type === 'object') return value as Record<string, unknown>;
  if (type === 'null') return {};
  throw newBadRequest(`couldn't get version/kind; json parse error: ${notAnObject(type)}`);
}
