/**
 * Sends requests to webhooks and issuers and reads their responses, with bounds on time and size and without redirects.
 *
 * Connections are kept alive. The dialed address can differ from the name of the certificate (services of the cluster).
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { isIP } from 'node:net';
import type { Clock } from '../../../api/machinery/clock.ts';
import { createDialer, type Dialer, type Purpose } from '../../../api/http/dialer.ts';
import { GatheredBytes } from '../../../api/machinery/gathered-bytes.ts';
import { Agent as HttpAgent } from '../../../api/http/node-http.ts';
import type { RequestObserver } from '../../../api/client/request-observer.ts';

import { toError } from '../../../api/meta/error-message.ts';
import { connectionProblem } from './connection-error.ts';

const MAX_ANSWER_BYTES = 3 * 1024 * 1024;

/** Where a webhook is called and how both sides identify themselves. */
export interface WebhookEndpoint {
  readonly url: URL;
  /** PEM; the system's root CAs if it is absent. */
  readonly ca?: string;
  readonly clientCertificate?: { readonly certificate: string; readonly key: string };
  /** The value of the Authorization header. */
  readonly authorization?: string;
  /** The name that the certificate must have; the URL's host if it is absent. */
  readonly serverName?: string;
  /** The address to connect to, if it is not the URL's host. */
  readonly connectTo?: {
    readonly host: string;
    readonly port: number;
  };
  /** The purpose of the connection, by which the dialer decides which addresses are refused. */
  readonly purpose: Extract<Purpose, 'configured' | 'webhook-url' | 'webhook-service' | 'issuer-keys'>;
  readonly insecureSkipVerify?: boolean;
}

interface WebhookRequest {
  readonly method: 'GET' | 'POST';
  readonly body?: string;
  readonly signal: AbortSignal;
  readonly maxBytes?: number;
}

/** The response, whatever its status is. The body has been read in full. */
export interface WebhookAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
}

/** A call without a complete response. */
export class WebhookCallError extends Error {
  readonly code: 'timeout' | 'unreachable' | 'too-large';

  constructor(code: 'timeout' | 'unreachable' | 'too-large', message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'WebhookCallError';
    this.code = code;
  }
}

interface WebhookClientOptions {
  readonly dialer?: Dialer;
  /** Counts and times the calls. */
  readonly measured?: { readonly observer: RequestObserver; readonly clock: Clock } | undefined;
}

/** The number of agents whose connections are kept alive. */
const MAX_AGENTS = 64;

/** Closes the idle connections of an agent, and each other one after its call. */
function retire(agent: HttpAgent | HttpsAgent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}

/** Calls webhooks and issuers. */
export class WebhookClient {
  /** The agents in the order of their last use. */
  readonly #agents = new Map<string, HttpAgent | HttpsAgent>();
  readonly #userAgent: string;
  readonly #dialer: Dialer;
  readonly #measured: WebhookClientOptions['measured'];

  constructor(userAgent: string, { dialer = createDialer(), measured }: WebhookClientOptions = {}) {
    this.#userAgent = userAgent;
    this.#dialer = dialer;
    this.#measured = measured;
  }

  /** Rejects with `WebhookCallError`, or with the signal's reason. */
  async call(endpoint: WebhookEndpoint, request: WebhookRequest): Promise<WebhookAnswer> {
    if (this.#measured === undefined) return this.#send(endpoint, request);
    const { observer, clock } = this.#measured;
    const { method, body = '' } = request;
    const observed = { method, server: endpoint.url.host };
    const fromMs = clock.monotonic();
    let status: number | undefined;
    try {
      const answer = await this.#send(endpoint, request);
      status = answer.status;
      observer.received(observed, answer.body.length);
      return answer;
    } finally {
      const tookMs = clock.monotonic() - fromMs;
      observer.sent(observed, { status, tookMs, bytes: Buffer.byteLength(body), isRetry: false });
    }
  }

  #send(endpoint: WebhookEndpoint, request: WebhookRequest): Promise<WebhookAnswer> {
    const { url } = endpoint;
    const isTls = url.protocol === 'https:';
    const options = {
      purpose: endpoint.purpose,
      secure: isTls,
      method: request.method,
      host: endpoint.connectTo?.host ?? url.hostname.replace(/^\[|\]$/g, ''),
      port: endpoint.connectTo?.port ?? (url.port === '' ? (isTls ? 443 : 80) : Number(url.port)),
      path: `${url.pathname}${url.search}`,
      agent: this.#agentOf(endpoint, isTls),
      signal: request.signal,
      headers: {
        host: url.host,
        accept: 'application/json, */*',
        'user-agent': this.#userAgent,
        ...(request.body === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(request.body) }),
        ...(endpoint.authorization === undefined ? {} : { authorization: endpoint.authorization }),
      },
    };
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => {
        if (request.signal.aborted) reject(request.signal.reason as Error);
        else reject(new WebhookCallError('unreachable', connectionProblem(error), { cause: error }));
      };
      const onResponse = (response: IncomingMessage): void => {
        readBody(response, request.maxBytes ?? MAX_ANSWER_BYTES).then(
          (body) =>
            resolve({ status: response.statusCode ?? 0, contentType: response.headers['content-type'] ?? '', body }),
          (error: unknown) => (error instanceof WebhookCallError ? reject(error) : fail(error as Error)),
        );
      };
      let call: ClientRequest;
      try {
        call = this.#dialer.request(options, onResponse);
      } catch (error) {
        fail(toError(error));
        return;
      }
      call.on('error', fail);
      call.end(request.body);
    });
  }

  #agentOf(endpoint: WebhookEndpoint, isTls: boolean): HttpAgent | HttpsAgent {
    const servername = endpoint.serverName ?? endpoint.url.hostname.replace(/^\[|\]$/g, '');
    // A connection that was checked for one purpose is not reused for another.
    const key = stringifyJson([
      endpoint.purpose,
      isTls,
      endpoint.ca,
      endpoint.clientCertificate,
      servername,
      endpoint.insecureSkipVerify,
    ]);
    let agent = this.#agents.get(key);
    if (agent !== undefined) {
      this.#agents.delete(key);
      this.#agents.set(key, agent);
      return agent;
    }
    const keep = { keepAlive: true, maxSockets: 64, maxFreeSockets: 8, timeout: 60_000 };
    agent = isTls
      ? new HttpsAgent({
          ...keep,
          ...(endpoint.ca === undefined ? {} : { ca: endpoint.ca }),
          ...(endpoint.clientCertificate === undefined
            ? {}
            : { cert: endpoint.clientCertificate.certificate, key: endpoint.clientCertificate.key }),
          ...(isIP(servername) === 0 ? { servername } : {}),
          rejectUnauthorized: endpoint.insecureSkipVerify !== true,
        })
      : new HttpAgent(keep);
    this.#agents.set(key, agent);
    for (const [oldest, other] of this.#agents) {
      if (this.#agents.size <= MAX_AGENTS) break;
      this.#agents.delete(oldest);
      retire(other);
    }
    return agent;
  }

  close(): void {
    for (const agent of this.#agents.values()) agent.destroy();
    this.#agents.clear();
  }
}

async function readBody(response: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const gathered = new GatheredBytes();
  for await (const chunk of response as AsyncIterable<Buffer>) {
    if (gathered.size + chunk.length > maxBytes) {
      response.destroy();
      throw new WebhookCallError('too-large', `the answer is larger than ${maxBytes} bytes`);
    }
    gathered.push(chunk);
  }
  if (!response.complete) throw new WebhookCallError('unreachable', 'unexpected EOF');
  return gathered.take();
}

/** Returns a signal that aborts after `ms`, or with `outer`. */
export function withTimeout(ms: number, outer?: AbortSignal): AbortSignal {
  const timeout = AbortSignal.timeout(ms);
  return outer === undefined ? timeout : AbortSignal.any([timeout, outer]);
}
