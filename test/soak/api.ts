/** Sends the requests of the soak test. None is retried, because a retry would hide the result of the first attempt. */
import { Agent, request } from 'node:https';
import type { ClientRequest, IncomingMessage } from 'node:http';

export interface Answer {
  /** 0 means that there was no response, so the outcome is unknown. */
  readonly status: number;
  readonly body: ApiObject;
  /** The number of the server that answered, if the test has several and distinguishes them. */
  readonly server?: number;
}

export interface ApiObject {
  readonly message?: string;
  readonly metadata?: {
    readonly name?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly continue?: string;
  };
  readonly data?: { readonly v?: string };
  /** The fields of a service. */
  readonly spec?: { readonly clusterIP?: string; readonly ports?: readonly { readonly nodePort?: number }[] };
  /** The fields of a node. */
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
  readonly items?: readonly ApiObject[];
  readonly code?: number;
}

export interface WatchFrame {
  readonly type: string;
  readonly object: ApiObject;
}

export interface OpenWatch {
  close(): void;
  pause(): void;
  resume(): void;
}

/** The connection to one API server. */
export class Api {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 64 });
  readonly #port: number;
  readonly #token: string;
  readonly #host: string;

  constructor(port: number, token: string, host = '127.0.0.1') {
    this.#port = port;
    this.#token = token;
    this.#host = host;
  }

  #open(method: string, path: string, more: Readonly<Record<string, string | number>> = {}): ClientRequest {
    return request({
      host: this.#host,
      port: this.#port,
      method,
      path,
      agent: this.#agent,
      rejectUnauthorized: false,
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': 'application/json', ...more },
    });
  }

  /** Sends a request. The status is 0 if no complete response came within the time. */
  call(method: string, path: string, body?: unknown, timeoutMs = 30_000): Promise<Answer> {
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const sent = body === undefined ? undefined : JSON.stringify(body);
    // Without the length, Node.js would send the body of a deletion as if it were another request.
    const length = sent === undefined ? {} : { 'content-length': Buffer.byteLength(sent) };
    const asked = this.#open(method, path, length);
    const lost = (): void => resolve({ status: 0, body: {} });
    asked.setTimeout(timeoutMs, () => asked.destroy());
    asked.on('error', lost);
    asked.on('close', lost);
    asked.on('response', (response: IncomingMessage) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => (text += part));
      response.on('error', lost);
      response.on('end', () => {
        if (!response.complete) return lost();
        resolve({ status: response.statusCode ?? 0, body: parsed(text) });
      });
    });
    asked.end(sent);
    return promise;
  }

  /** Resolves with the status of the response when the watch ends (0 without a response). */
  watch(
    path: string,
    onFrame: (frame: WatchFrame) => void,
  ): { readonly over: Promise<number>; readonly watch: OpenWatch } {
    const { promise, resolve } = Promise.withResolvers<number>();
    const asked = this.#open('GET', path);
    let answer: IncomingMessage | undefined;
    asked.on('error', () => resolve(answer?.statusCode ?? 0));
    asked.on('close', () => resolve(answer?.statusCode ?? 0));
    asked.on('response', (response: IncomingMessage) => {
      answer = response;
      let rest = '';
      response.setEncoding('utf8');
      response.on('error', () => undefined);
      response.on('data', (part: string) => {
        const lines = (rest + part).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) if (response.statusCode === 200) onFrame(JSON.parse(line) as WatchFrame);
      });
    });
    asked.end();
    const watch = {
      close: () => void asked.destroy(),
      pause: () => void answer?.pause(),
      resume: () => void answer?.resume(),
    };
    return { over: promise, watch };
  }

  close(): void {
    this.#agent.destroy();
  }
}

function parsed(text: string): ApiObject {
  try {
    return JSON.parse(text) as ApiObject;
  } catch (error) {
    return { message: `${String(error)}: ${text.slice(0, 200)}` };
  }
}
