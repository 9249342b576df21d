/** Reads the failure from a response: its Status, or one that is built from its code and text, and the time of a retry. */
import { stringifyJson } from '../codec/json.ts';
import { newStatusError, StatusError, type Status } from '../meta/status-error.ts';
import type { TransportResponse } from './http-connections.ts';
import type { ObjectFormat } from './object-format.ts';
import { readAll } from './response-body.ts';

/** Returns the Status of the body. For another body, builds one from the code and at most 2048 characters of the text. */
export async function statusOf(
  response: TransportResponse,
  format: ObjectFormat,
  largestBytes?: number,
): Promise<StatusError> {
  const bytes = await readAll(response.body, largestBytes);
  const decoder = format.decoderFor(response.headers['content-type'] ?? '');
  const text = decoder === undefined ? bytes.toString('utf8') : stringifyJson(decoder.decode(bytes));
  const status = parseStatus(text);
  if (status !== undefined) return new StatusError(status);
  const message = text.trim() === '' ? `the server answered ${response.status}` : text.trim().slice(0, 2048);
  return newStatusError(response.status, REASONS[response.status] ?? '', message);
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
  406: 'NotAcceptable',
  409: 'Conflict',
  410: 'Gone',
  413: 'RequestEntityTooLarge',
  415: 'UnsupportedMediaType',
  422: 'Invalid',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

function parseStatus(text: string): Status | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    const value = JSON.parse(text) as Partial<Status>;
    return value.kind === 'Status' && typeof value.code === 'number' ? (value as Status) : undefined;
  } catch {
    return undefined;
  }
}

/** A proxy, or a webhook through an API server, may ask for days. */
const MAX_WAIT_MS = 60_000;

/**
 * Converts the seconds that a server asks a client to wait to milliseconds, at most `MAX_WAIT_MS`. Returns 0 for a
 * value that is no positive number.
 */
export function boundedWaitMs(seconds: unknown): number {
  return typeof seconds === 'number' && seconds > 0 ? Math.min(seconds * 1000, MAX_WAIT_MS) : 0;
}

/** Returns the milliseconds to wait before a retry, or `undefined` if the response does not ask for one. */
export function retryAfterMs(response: TransportResponse): number | undefined {
  if (response.status !== 429 && response.status < 500) return undefined;
  const header = response.headers['retry-after'];
  const seconds = header === undefined ? Number.NaN : Number(header);
  return Number.isFinite(seconds) ? boundedWaitMs(seconds) : undefined;
}
