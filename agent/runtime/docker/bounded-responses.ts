/**
 * Bounds the responses of the Docker Engine in size and time. docker-modem, the HTTP client of dockerode, collects a response
 * without a limit, and one that is longer than JavaScript's longest string would crash the process. It also keeps requests for
 * which nobody waits any more. So this file reads the responses itself and passes them to docker-modem. Responses that the
 * caller reads as streams pass unchanged.
 */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type Docker from 'dockerode';
import { GatheredBytes } from '../../../api/machinery/gathered-bytes.ts';
import { linesOf } from '../../../api/client/response-body.ts';
import { RuntimeError } from '../runtime.ts';

/** The maximum size of a response. */
const MAX_RESPONSE_BYTES = 64 << 20;

/** A line of progress may have the message of a registry, of some megabytes. */
const MAX_LINE_BYTES = 16 << 20;

/** The part of docker-modem's description of a request that is read here. */
interface RequestContext {
  readonly isStream?: boolean;
  readonly hijack?: boolean;
  readonly openStdin?: boolean;
  /** What each status code means: `true` for success, else the text of the error. */
  readonly statusCodes: Readonly<Record<number, true | string>>;
}

/** The response has more bytes than the agent reads. */
export class ResponseTooLong extends RuntimeError {}

/** The options of a request that are set here. docker-modem adds those of `http.request`. */
interface RequestOptions {
  readonly signal?: AbortSignal;
}

type Callback = (error: unknown, result: unknown) => void;

/** The methods of docker-modem that are replaced and used. */
interface Modem {
  buildRequest(options: RequestOptions, context: RequestContext, data: unknown, callback: Callback): void;
  buildPayload(
    error: null,
    isStream: false,
    codes: RequestContext['statusCodes'],
    openStdin: false,
    request: null,
    response: IncomingMessage,
    body: unknown,
    callback: Callback,
  ): void;
}

/** All status codes. With these, docker-modem takes every response for a success, and returns it unread. */
const EVERY_CODE = Object.fromEntries(Array.from({ length: 500 }, (_, at) => [at + 100, true as const]));

interface Bounds {
  readonly longestBytes?: number;
  /** Returns the signal that aborts the request that begins now. */
  readonly expiry?: () => AbortSignal | undefined;
}

/**
 * Changes the client in place: a call that does not read its response as a stream fails with `ResponseTooLong` if the response
 * is longer than `longestBytes`. Its connection is closed, and so is that of a call that has expired.
 */
export function boundResponses(docker: Docker, bounds: Bounds = {}): void {
  const { longestBytes = MAX_RESPONSE_BYTES, expiry = () => undefined } = bounds;
  const modem = docker.modem as unknown as Modem;
  const buildRequest = modem.buildRequest.bind(modem);
  modem.buildRequest = (request, context, data, callback) => {
    const options = endedBy(request, expiry());
    if (context.hijack === true || context.openStdin === true) {
      buildRequest(options, context, data, callback);
      return;
    }
    buildRequest(options, { ...context, isStream: true, statusCodes: EVERY_CODE }, data, (error, result) => {
      const response = result as IncomingMessage | null;
      if (response === null || (context.isStream === true && context.statusCodes[response.statusCode ?? 0] === true)) {
        callback(error, result);
        return;
      }
      bodyOf(response, longestBytes).then(
        (body) => modem.buildPayload(null, false, context.statusCodes, false, null, response, body, callback),
        (reason: unknown) => callback(reason, null),
      );
    });
  };
}

function endedBy(request: RequestOptions, expiry: AbortSignal | undefined): RequestOptions {
  if (expiry === undefined) return request;
  const signals = [request.signal, expiry].filter((signal) => signal !== undefined);
  return { ...request, signal: AbortSignal.any(signals) };
}

/** Resolves to the value of the JSON, or to the bytes of anything else, as docker-modem passes them. */
async function bodyOf(response: IncomingMessage, longestBytes: number): Promise<unknown> {
  const gathered = new GatheredBytes();
  // Leaving the loop closes the connection.
  for await (const chunk of response as AsyncIterable<Buffer>) {
    if (gathered.size + chunk.length > longestBytes)
      throw new ResponseTooLong('unknown', `the container runtime answered with more than ${longestBytes} bytes`);
    gathered.push(chunk);
  }
  const bytes = gathered.take();
  try {
    return JSON.parse(bytes.toString('utf8')) as unknown;
  } catch {
    // The response is not JSON, such as the answer to a ping.
    return bytes;
  }
}

/** Yields the values of a response that is a stream, such as progress and events: each is a line of JSON. */
export async function* valuesOf(response: NodeJS.ReadableStream): AsyncIterable<unknown> {
  const bounds = { largestBytes: MAX_LINE_BYTES, takesRest: true };
  for await (const line of linesOf(response as Readable, bounds)) if (line.trim() !== '') yield JSON.parse(line);
}
