/**
 * The four kinds of probe handlers. Each resolves to an outcome and what to tell about it; none throws. The texts are those
 * that users read in `Unhealthy` events.
 */
import type { IncomingMessage, RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { connect, isIP } from 'node:net';
import { request as httpRequest } from '../../api/machinery/node-http.ts';

export interface ProbeOutcome {
  readonly result: 'success' | 'failure' | 'unknown' | 'warning';
  readonly output: string;
}

/** As much of an answer as is told and looked at. */
const MAX_BODY_BYTES = 10 * 1024;
/** Those that are followed; any other 3xx is an answer. */
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
/** As much of an output as an event tells. */
const MAX_OUTPUT_CHARACTERS = 1024;

export interface HttpTarget {
  readonly scheme: 'http' | 'https';
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  readonly timeoutMs: number;
  readonly userAgent: string;
}

/** Success is 200 to 399; a redirect to another host counts as well, with a warning. Redirects on the same host are followed, ten at most. */
export async function probeHttp(target: HttpTarget, redirects = 0): Promise<ProbeOutcome> {
  const shown = `${target.scheme}://${hostPort(target.host, target.port)}${target.path}`;
  try {
    const answer = await fetchOnce(target);
    const status = answer.status;
    if (REDIRECTS.has(status) && answer.location !== undefined) {
      const next = new URL(answer.location, shown);
      if (next.hostname !== new URL(shown).hostname) {
        return { result: 'warning', output: `Probe terminated redirects, Response body: ${clip(answer.body)}` };
      }
      if (redirects >= 10) return { result: 'failure', output: `Get "${shown}": stopped after 10 redirects` };
      const scheme = next.protocol === 'https:' ? 'https' : 'http';
      const port = next.port === '' ? (scheme === 'https' ? 443 : 80) : Number(next.port);
      return await probeHttp({ ...target, scheme, port, path: `${next.pathname}${next.search}` }, redirects + 1);
    }
    if (status >= 300 && status < 400)
      return { result: 'warning', output: `Probe terminated redirects, Response body: ${clip(answer.body)}` };
    if (status >= 200 && status < 300) return { result: 'success', output: clip(answer.body) };
    return { result: 'failure', output: `HTTP probe failed with statuscode: ${status}` };
  } catch (error) {
    const message =
      error instanceof ProbeTimeout
        ? 'context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
        : dialMessage(error, target.host, target.port);
    return { result: 'failure', output: `Get "${shown}": ${message}` };
  }
}

class ProbeTimeout extends Error {}

function fetchOnce(target: HttpTarget): Promise<{ status: number; body: string; location: string | undefined }> {
  return new Promise((resolve, reject) => {
    const headers: Record<string, string[]> = {};
    for (const { name, value } of target.headers) (headers[name] ??= []).push(value);
    // Said to be empty: left out, instead of what is sent by default.
    const dropped = Object.keys(headers).filter(
      (name) => /^(accept|user-agent)$/i.test(name) && headers[name]?.every((value) => value === '') === true,
    );
    const has = (name: string): boolean => Object.keys(headers).some((key) => key.toLowerCase() === name);
    if (!has('user-agent')) headers['User-Agent'] = [target.userAgent];
    if (!has('accept')) headers['Accept'] = ['*/*'];
    for (const name of dropped) delete headers[name];
    const host = Object.entries(headers).find(([key]) => key.toLowerCase() === 'host')?.[1][0];
    const signal = AbortSignal.timeout(target.timeoutMs);
    const options: RequestOptions & { rejectUnauthorized?: boolean; servername?: string } = {
      host: target.host,
      port: target.port,
      path: target.path,
      method: 'GET',
      headers: headers as Record<string, string[] | string>,
      agent: false,
      signal,
      rejectUnauthorized: false,
      ...(host === undefined ? {} : { setHost: false, servername: serverName(host) }),
    };
    const onResponse = (response: IncomingMessage): void => {
      const chunks: Buffer[] = [];
      let size = 0;
      const done = (): void =>
        resolve({
          status: response.statusCode ?? 0,
          body: Buffer.concat(chunks).toString(),
          location: response.headers.location,
        });
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        size += chunk.length;
        if (size >= MAX_BODY_BYTES) {
          done();
          response.destroy();
        }
      });
      response.on('end', done);
      response.on('error', (error) => reject(signal.aborted ? new ProbeTimeout() : error));
    };
    const request = target.scheme === 'https' ? httpsRequest(options, onResponse) : httpRequest(options, onResponse);
    request.on('error', (error) => reject(signal.aborted ? new ProbeTimeout() : error));
    request.end();
  });
}

/** The name in a Host header, for SNI; none for an address. */
function serverName(host: string): string {
  const name = host.startsWith('[') ? '' : (host.split(':')[0] ?? '');
  return isIP(name) === 0 ? name : '';
}

export function probeTcp(host: string, port: number, timeoutMs: number): Promise<ProbeOutcome> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const finish = (outcome: ProbeOutcome): void => {
      socket.destroy();
      resolve(outcome);
    };
    socket.setTimeout(timeoutMs, () =>
      finish({ result: 'failure', output: `dial tcp ${hostPort(host, port)}: i/o timeout` }),
    );
    socket.once('connect', () => finish({ result: 'success', output: '' }));
    socket.once('error', (error) => finish({ result: 'failure', output: dialMessage(error, host, port) }));
  });
}

/** The standard health service; loaded on first use. */
export async function probeGrpc(host: string, port: number, service: string, timeoutMs: number): Promise<ProbeOutcome> {
  const grpc = await import('@grpc/grpc-js');
  const address = hostPort(host, port);
  const identity = (value: Buffer): Buffer => value;
  const Client = grpc.makeGenericClientConstructor(
    {
      check: {
        path: '/grpc.health.v1.Health/Check',
        requestStream: false,
        responseStream: false,
        requestSerialize: identity,
        requestDeserialize: identity,
        responseSerialize: identity,
        responseDeserialize: identity,
      },
    },
    'Health',
  );
  const client = new Client(address, grpc.credentials.createInsecure());
  const name = Buffer.from(service);
  const request = name.length === 0 ? Buffer.alloc(0) : Buffer.concat([Buffer.from([0x0a]), varint(name.length), name]);
  const check = client['check'] as (
    this: typeof client,
    request: Buffer,
    options: { deadline: number },
    done: (error: { code: number; details: string } | null, answer?: Buffer) => void,
  ) => unknown;
  const deadline = Math.ceil(performance.timeOrigin + performance.now() + timeoutMs);
  try {
    // A server that is not up yet is waited for, as long as the probe may take.
    const connected = await new Promise<boolean>((resolve) =>
      client.waitForReady(deadline, (error) => resolve(error === undefined)),
    );
    if (!connected) {
      const within = `${timeoutMs / 1000}s`;
      return {
        result: 'failure',
        output: `timeout: failed to connect service "${address}" within ${within}: context deadline exceeded`,
      };
    }
    return await new Promise<ProbeOutcome>((resolve) => {
      check.call(client, request, { deadline }, (error, answer) => {
        if (error === null) {
          const serving = answer?.[0] === 0x08 ? (answer[1] ?? 0) : 0;
          if (serving === 1) resolve({ result: 'success', output: 'service healthy' });
          else
            resolve({
              result: 'failure',
              output: `service unhealthy (responded with "${['UNKNOWN', 'SERVING', 'NOT_SERVING', 'SERVICE_UNKNOWN'][serving] ?? serving}")`,
            });
          return;
        }
        if (error.code === grpc.status.UNIMPLEMENTED) {
          resolve({
            result: 'failure',
            output: `error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ${error.details}`,
          });
        } else if (error.code === grpc.status.DEADLINE_EXCEEDED) {
          resolve({
            result: 'failure',
            output: `timeout: health rpc did not complete within ${timeoutMs / 1000}s`,
          });
        } else {
          resolve({
            result: 'failure',
            output: `error: health rpc probe failed: rpc error: code = ${grpcCode(grpc.status[error.code])} desc = ${error.details}`,
          });
        }
      });
    });
  } finally {
    client.close();
  }
}

/** `UNAVAILABLE` as `Unavailable`, `NOT_FOUND` as `NotFound`. */
function grpcCode(name: string | undefined): string {
  return (name ?? 'UNKNOWN')
    .toLowerCase()
    .replace(/(^|_)([a-z])/g, (_whole, _bar, letter: string) => letter.toUpperCase());
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest % 128) | 128);
  }
}

/** Exit code 0 is success; another is failure; what cannot be run is unknown. */
export async function probeExec(
  command: readonly string[],
  run: () => Promise<{ readonly exitCode: number; readonly output: string }>,
  timeoutMs: number,
  isTimeout: (error: unknown) => boolean,
): Promise<ProbeOutcome> {
  try {
    const { exitCode, output } = await run();
    return { result: exitCode === 0 ? 'success' : 'failure', output: clip(output) };
  } catch (error) {
    if (isTimeout(error)) {
      const output = `command timed out: ${JSON.stringify(command.join(' '))} timed out after ${timeoutMs / 1000}s`;
      return { result: 'failure', output };
    }
    return { result: 'unknown', output: error instanceof Error ? error.message : String(error) };
  }
}

function clip(text: string): string {
  return text.length > MAX_OUTPUT_CHARACTERS ? text.slice(0, MAX_OUTPUT_CHARACTERS) : text;
}

function hostPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connect: connection refused',
  EHOSTUNREACH: 'connect: no route to host',
  ENETUNREACH: 'connect: network is unreachable',
  ETIMEDOUT: 'i/o timeout',
  ECONNRESET: 'read: connection reset by peer',
};

function dialMessage(error: unknown, host: string, port: number): string {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  if (code === 'ECONNRESET' && error instanceof Error && error.message === 'socket hang up') return 'EOF';
  const reason = REASONS[code];
  if (reason !== undefined) return `dial tcp ${hostPort(host, port)}: ${reason}`;
  return error instanceof Error ? error.message : String(error);
}
