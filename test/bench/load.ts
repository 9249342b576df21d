/** Creates load on a server: h2load for the measurements, and a small HTTP/2 client that creates the objects beforehand. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { TOKEN } from './server.ts';

export interface LoadOptions {
  readonly requests: number;
  /** The number of connections. */
  readonly clients: number;
  /** The number of concurrent requests on each connection. */
  readonly streams?: number;
  readonly accept?: string;
  readonly body?: object;
}

export interface Load {
  readonly perSecond: number;
  readonly bytes: number;
}

/** Sends the requests with h2load, and resolves to their rate and the bytes of a response. Throws unless all succeed. */
export async function h2load(
  url: string,
  { requests, clients, streams = 1, accept, body }: LoadOptions,
): Promise<Load> {
  const args = [
    '-n',
    String(requests),
    '-c',
    String(clients),
    '-m',
    String(streams),
    '-H',
    `authorization: Bearer ${TOKEN}`,
  ];
  if (accept !== undefined) args.push('-H', `accept: ${accept}`);
  const directory = await mkdtemp(join(tmpdir(), 'orchlet-bench-body-'));
  if (body !== undefined) {
    const file = join(directory, 'body.json');
    await writeFile(file, JSON.stringify(body));
    args.push('-d', file, '-H', 'content-type: application/json');
  }
  const stdout = await runH2load([...args, url]);
  await rm(directory, { recursive: true });
  const done = /status codes: (\d+) 2xx/.exec(stdout)?.[1];
  if (Number(done) !== requests) throw new Error(`not all of ${requests} requests to ${url} succeeded:\n${stdout}`);
  return {
    perSecond: Number(/([\d.]+) req\/s/.exec(stdout)?.[1]),
    bytes: Number(/traffic: .*?\((\d+)\) total/.exec(stdout)?.[1] ?? 0) / requests,
  };
}

async function runH2load(args: readonly string[]): Promise<string> {
  try {
    return (await promisify(execFile)('h2load', args, { maxBuffer: 1 << 24 })).stdout;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    throw new Error('h2load is not installed; `apt-get install nghttp2-client` installs it', { cause: error });
  }
}

export interface Http {
  request(method: string, path: string, body?: object): Promise<string>;
  /** Sends `count` requests, 50 at a time. */
  many(count: number, one: (at: number) => Promise<unknown>): Promise<void>;
  close(): void;
}

/** Opens a connection to the server at `origin`, whose certificate is not verified. */
export function openHttp(origin: string): Http {
  const session = connect(origin, { rejectUnauthorized: false });
  const request = (method: string, path: string, body?: object): Promise<string> =>
    new Promise((resolve, reject) => {
      const headers = { ':method': method, ':path': path, authorization: `Bearer ${TOKEN}` };
      const stream = session.request(
        body === undefined
          ? headers
          : {
              ...headers,
              'content-type': method === 'PATCH' ? 'application/strategic-merge-patch+json' : 'application/json',
            },
      );
      let status = 0;
      let text = '';
      stream.setEncoding('utf8');
      stream.on('response', (answer) => (status = Number(answer[':status'])));
      stream.on('data', (chunk: string) => (text += chunk));
      stream.on('error', reject);
      stream.on('end', () =>
        status < 300 ? resolve(text) : reject(new Error(`${method} ${path}: ${status} ${text.slice(0, 500)}`)),
      );
      stream.end(body === undefined ? undefined : JSON.stringify(body));
    });
  return {
    request,
    many: async (count, one) => {
      let next = 0;
      const lane = async (): Promise<void> => {
        while (next < count) await one(next++);
      };
      await Promise.all(Array.from({ length: 50 }, lane));
    },
    close: () => session.close(),
  };
}
