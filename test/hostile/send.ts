/** Sends the requests of `requests.ts` over HTTP/1.1. The response may arrive before the request is complete. */
import { type Agent, request } from 'node:https';
import type { HostileRequest } from './requests.ts';

export interface Connection {
  readonly origin: string;
  readonly agent: Agent;
  readonly token: string;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

const PIECE_BYTES = 64 * 1024;

/** Sends the request and resolves to its response, which may come before the body is sent. */
export function send(
  { origin, agent, token }: Connection,
  { method, path, type, accept, body, chunked }: Omit<HostileRequest, 'name' | 'status'>,
): Promise<Answer> {
  const bytes = body === undefined ? undefined : Buffer.from(body());
  return new Promise((resolve, reject) => {
    const sent = request(`${origin}${path}`, {
      method,
      agent,
      headers: {
        authorization: `Bearer ${token}`,
        ...(type === undefined ? {} : { 'content-type': type }),
        ...(accept === undefined ? {} : { accept }),
        ...(bytes === undefined || chunked === true ? {} : { 'content-length': bytes.length }),
      },
    });
    let answered = false;
    sent.on('response', (response) => {
      answered = true;
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text: Buffer.concat(chunks).toString(),
        }),
      );
    });
    sent.on('error', (error) => {
      // The server may close the connection before it has read the whole body of a refused request.
      if (!answered) reject(error);
    });
    if (chunked === true && bytes !== undefined) {
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) sent.write(bytes.subarray(at, at + PIECE_BYTES));
      sent.end();
    } else sent.end(bytes);
  });
}
