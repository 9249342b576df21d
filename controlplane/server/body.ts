/** Reads and decodes the body of a write. What it must be an object of is the registry's question. */
import { newBadRequest } from '../../api/meta/status-error.ts';
import type { Body } from '../registry/rest.ts';
import type { Encodings } from './encoding.ts';
import { inputFormat, type Format } from './media-type.ts';
import type { ApiRequest } from './request.ts';

export const MAX_BODY_BYTES = 3 * 1024 * 1024;

/** How text becomes a value; `duplicates` are the fields that it had twice. */
export interface TextDecoders {
  json(text: string): Body;
  yaml(text: string): Body;
}

export interface BodyOptions {
  readonly encodings: Encodings;
  readonly decoders: TextDecoders;
  readonly protobuf: boolean;
}

/** Throws 413, 415, 400. */
export async function readBody(request: ApiRequest, options: BodyOptions): Promise<Body> {
  const format = inputFormat(request.header('content-type'), options);
  const bytes = await request.exchange.readBody(MAX_BODY_BYTES);
  return decodeBody(bytes, format, options);
}

export function decodeBody(bytes: Buffer, format: Format, options: BodyOptions): Body {
  if (format === 'protobuf') return { value: options.encodings.decodeProtobuf(bytes), duplicates: [] };
  const text = bytes.toString('utf8');
  return format === 'yaml' ? options.decoders.yaml(text) : options.decoders.json(text);
}

/** DeleteOptions in a body; `undefined` where there is no body. */
export async function readDeleteOptions(
  request: ApiRequest,
  options: BodyOptions,
): Promise<Record<string, unknown> | undefined> {
  const bytes = await request.exchange.readBody(MAX_BODY_BYTES);
  if (bytes.length === 0) return undefined;
  const format = inputFormat(request.header('content-type'), options);
  const { value } = decodeBody(bytes, format, options);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw newBadRequest("couldn't get version/kind; json parse error: the body is not an object");
  }
  const body = value as Record<string, unknown>;
  const kind = body['kind'];
  if (kind !== undefined && kind !== 'DeleteOptions') {
    throw newBadRequest(
      `no kind ${JSON.stringify(kind)} is registered for version ${JSON.stringify(body['apiVersion'] ?? '')}`,
    );
  }
  return body;
}
