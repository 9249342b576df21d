/** Sends one plain request to a target, and passes the body of the response on with back-pressure. */
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { writeOut } from '../../../api/http/back-pressure.ts';
import { type Dialer, DialRefusedError, type Purpose, UnaskedUpgradeError } from '../../../api/http/dialer.ts';
import { GatheredBytes } from '../../../api/machinery/gathered-bytes.ts';
import { toError } from '../../../api/meta/error-message.ts';
import { newBadRequest, newErrorWithoutReason, newServiceUnavailable } from '../../../api/meta/status-error.ts';
import type { ConnectTarget, Origin } from '../../model/rest.ts';
import type { Exchange } from '../exchange.ts';

/** The highest status of a response. HTTP/2 streams have no other. */
const MAX_STATUS = 599;

/** The size in which arrived chunks are written together. */
const WRITTEN_BYTES = 16 * 1024;

/** TLS settings of one connection to a target. */
export interface TargetTls {
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly ca?: string | Buffer;
  readonly rejectUnauthorized: boolean;
  /** The name that the target's certificate must have. */
  readonly servername?: string;
  /** Whether the certificate must have the host of the target, if there is no `servername`. */
  readonly verifiesHost?: boolean;
  /** The hashes of the public keys that the certificate may have. */
  readonly servingKeys?: readonly string[];
}

/** A target and how to connect to it. */
export interface OpenTarget extends ConnectTarget {
  readonly tls: TargetTls;
  readonly dialer: Dialer;
}

/** How a target is dialed. */
export interface TargetDialing {
  readonly dialer: Dialer;
  readonly purpose: Purpose;
  /** The `name` of the `DialTarget`. */
  readonly name?: string;
}

interface TargetRequest extends TargetDialing {
  readonly origin: Origin;
  /** The percent-encoded path and query, which are sent unchanged. */
  readonly target: string;
  readonly method: string;
  readonly headers: readonly [string, string][];
  readonly tls: TargetTls;
  readonly body: AsyncIterable<Buffer> | undefined;
  readonly signal: AbortSignal;
}

/** Returns the options of a dialed connection. Pods are identified by their address: their certificate may have any name. */
export function dialedTls({ verifiesHost = false, ...tls }: TargetTls) {
  return { ...tls, ...(tls.servername === undefined && !verifiesHost ? { checkServerIdentity: () => undefined } : {}) };
}

/** Returns the address of the target without the members by which it is verified: the TLS settings contain those. */
export const addressOf = ({ secure, host, port }: Origin): Origin => ({ secure, host, port });

/**
 * Sends a request and resolves to the response of the target. Rejects with a 503 if the target is unreachable or its status is
 * not from 200 to 599, with a 500 if it answers with an upgrade, and with a 400 if its address is refused.
 */
export function requestTarget(options: TargetRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const { origin, dialer, purpose, name } = options;
    const headers: Record<string, string | string[]> = {};
    for (const [name, value] of options.headers) {
      const earlier = headers[name];
      headers[name] = earlier === undefined ? value : [...(Array.isArray(earlier) ? earlier : [earlier]), value];
    }
    // The target would wait for the body of a read, which is not passed on.
    if (options.body === undefined) delete headers['content-length'];
    const requestOptions = {
      ...addressOf(origin),
      purpose,
      ...(name === undefined ? {} : { name }),
      path: options.target,
      method: options.method,
      headers,
      agent: false as const,
      signal: options.signal,
    };
    const fail = (error: Error): void => reject(reachError(error));
    let request: ClientRequest;
    try {
      request = dialer.request({ ...requestOptions, ...dialedTls(options.tls) }, (message) => {
        const { statusCode = 0 } = message;
        if (statusCode >= 200 && statusCode <= MAX_STATUS) return resolve(message);
        message.destroy();
        fail(new Error(`the response has the status ${statusCode}`));
      });
    } catch (error) {
      fail(toError(error));
      return;
    }
    request.on('error', fail);
    void sendBody(request, options.body).catch((error: unknown) => {
      request.destroy(toError(error));
    });
  });
}

function reachError(error: Error): Error {
  if (error instanceof DialRefusedError) return newBadRequest(error.message);
  if (error instanceof UnaskedUpgradeError) return newErrorWithoutReason(error.message);
  return newServiceUnavailable(`error trying to reach service: ${error.message}`);
}

/** Sends the body of the request, and stops reading it once the target is gone. */
async function sendBody(request: ClientRequest, body: AsyncIterable<Buffer> | undefined): Promise<void> {
  if (body !== undefined) {
    for await (const chunk of body) {
      if (request.destroyed) return;
      await writeOut(request, chunk);
    }
  }
  request.end();
}

/** Passes a body on to the client. Resolves when the body has ended or broken off, or the client is disconnected. */
export function passBody(message: Readable, exchange: Exchange): Promise<void> {
  return new Promise((resolve) => {
    let waits = false;
    const pass = (): void => {
      while (!waits) {
        // Without a size Node.js returns one chunk, and a size above that of its buffer makes the buffer larger.
        const arrived = message.read(Math.min(message.readableLength, WRITTEN_BYTES)) as Buffer | null;
        if (arrived === null) return;
        waits = !exchange.write(arrived);
      }
    };
    message.on('readable', pass);
    exchange.onDrain(() => {
      waits = false;
      pass();
    });
    exchange.onClose(() => {
      message.destroy();
      resolve();
    });
    message.on('end', () => {
      exchange.end();
      resolve();
    });
    message.on('error', () => {
      exchange.abort();
      resolve();
    });
  });
}

/** Resolves to the beginning of a body, and closes the connection. */
export async function beginningOf(message: Readable, mostBytes: number): Promise<string> {
  const gathered = new GatheredBytes();
  for await (const part of message as AsyncIterable<Buffer>) {
    gathered.push(part);
    if (gathered.size >= mostBytes) break;
  }
  return gathered.take().subarray(0, mostBytes).toString('utf8');
}
