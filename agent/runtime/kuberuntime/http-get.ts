/**
 * Sends one HTTP GET to a container, for probes and lifecycle hooks. Accepts any certificate, and follows up to ten
 * redirects on the same host.
 */
import type { IncomingMessage } from 'node:http';
import { isIP, type Socket } from 'node:net';
import { createDialer, redirectTarget } from '../../../api/http/dialer.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/** The Kubernetes release in the user agent that servers see. */
const RELEASE = '1.36';
/** The maximum number of bytes of a response that are returned. */
const MAX_BODY_BYTES = 10 * 1024;
/** The status codes of redirects that are followed. Any other 3xx is a response. */
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
const MAX_REDIRECTS = 10;
const dialer = createDialer();

/** The request of an `httpGet` handler with its port resolved. */
export interface HttpGet {
  readonly scheme: 'http' | 'https';
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  readonly purpose: 'probe' | 'lifecycle';
  /** The pod that has the handler. */
  readonly pod: string;
}

interface HttpAnswer {
  readonly status: number;
  readonly body: string;
  /** Whether the response redirects to another host, which is not followed. */
  readonly leadsAway: boolean;
}

/** The response began and did not come to its end. */
export class BrokenBodyError extends Error {}

/** The server responds with plain HTTP to a TLS handshake. */
export class PlainHttpError extends Error {}

/**
 * Requests the target and follows redirects that stay on its host; `leadsAway` reports a redirect to another host. Rejects with
 * the kubelet's message `Get "URL": reason`: with a `PlainHttpError` if an HTTPS request gets an HTTP response, and with a
 * `BrokenBodyError`, whose message has no URL, if the body breaks off.
 */
export async function httpGet(target: HttpGet, signal: AbortSignal, redirects = 0): Promise<HttpAnswer> {
  const url = `${target.scheme}://${hostPort(target.host, target.port)}${target.path}`;
  let answer: { status: number; body: string; location: string | undefined };
  try {
    answer = await fetchOnce(target, signal);
  } catch (error) {
    if (isPlainHttp(error))
      throw new PlainHttpError(`Get "${url}": http: server gave HTTP response to HTTPS client`, { cause: error });
    if (error instanceof BrokenBodyError) throw error;
    const why = signal.aborted
      ? 'context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
      : dialMessage(error, target.host, target.port);
    throw new Error(`Get "${url}": ${why}`, { cause: error });
  }
  const { status, body } = answer;
  if (!REDIRECTS.has(status) || answer.location === undefined) return { status, body, leadsAway: false };
  const next = redirectTarget('probe', new URL(url), answer.location);
  if (next === undefined) return { status, body, leadsAway: true };
  if (redirects >= MAX_REDIRECTS) throw new Error(`Get "${url}": stopped after ${MAX_REDIRECTS} redirects`);
  const scheme = next.protocol === 'https:' ? 'https' : 'http';
  const port = next.port === '' ? (scheme === 'https' ? 443 : 80) : Number(next.port);
  return httpGet({ ...target, scheme, port, path: `${next.pathname}${next.search}` }, signal, redirects + 1);
}

function fetchOnce(
  target: HttpGet,
  signal: AbortSignal,
): Promise<{ status: number; body: string; location: string | undefined }> {
  return new Promise((resolve, reject) => {
    // Like Go's HTTP client: the Host header comes first, and has the port even if it is the default of the scheme.
    const hostHeader = target.headers.find(({ name }) => name.toLowerCase() === 'host')?.value;
    // A header may have the name of a member that every object has, such as `constructor`.
    const headers = Object.create(null) as Record<string, string[]>;
    for (const { name, value } of target.headers) if (name.toLowerCase() !== 'host') (headers[name] ??= []).push(value);
    // An empty header in the probe removes the default header.
    const dropped = Object.keys(headers).filter(
      (name) => /^(accept|user-agent)$/i.test(name) && headers[name]?.every((value) => value === '') === true,
    );
    const hasHeader = (name: string): boolean => Object.keys(headers).some((key) => key.toLowerCase() === name);
    if (!hasHeader('user-agent')) headers['User-Agent'] = [`kube-${target.purpose}/${RELEASE}`];
    if (!hasHeader('accept')) headers['Accept'] = ['*/*'];
    for (const name of dropped) delete headers[name];
    const options = {
      purpose: 'probe' as const,
      owner: target.pod,
      secure: target.scheme === 'https',
      host: target.host,
      port: target.port,
      path: target.path,
      method: 'GET',
      headers: { Host: hostHeader ?? hostPort(target.host, target.port), ...headers },
      agent: false as const,
      signal,
      rejectUnauthorized: false,
      setHost: false,
      ...(hostHeader === undefined ? {} : { servername: serverName(hostHeader) }),
    };
    let ends = '';
    let isBody = false;
    const fail = (error: Error): void => {
      const cause = isReset(error) && ends !== '' ? new Error(resetMessage(ends), { cause: error }) : error;
      reject(isBody ? new BrokenBodyError(bodyMessage(cause, signal), { cause }) : cause);
    };
    const request = dialer.request(options, (response) => {
      isBody = true;
      response.on('error', fail);
      readBody(response, (body) =>
        resolve({ status: response.statusCode ?? 0, body, location: response.headers.location }),
      );
    });
    request.on('socket', (socket) => socket.once('connect', () => (ends = endsOf(socket))));
    request.on('error', fail);
    request.end();
  });
}

/** Reads the body up to `MAX_BODY_BYTES` and passes it to `onBody`. */
function readBody(response: IncomingMessage, onBody: (body: string) => void): void {
  const chunks: Buffer[] = [];
  let size = 0;
  const done = (): void => onBody(Buffer.concat(chunks).subarray(0, MAX_BODY_BYTES).toString());
  response.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= MAX_BODY_BYTES) {
      done();
      response.destroy();
    }
  });
  response.on('end', done);
}

/** Returns the message of Go's HTTP client for a body that breaks off. */
function bodyMessage(error: Error, signal: AbortSignal): string {
  if (signal.aborted) return 'context deadline exceeded (Client.Timeout or context cancellation while reading body)';
  return (error as NodeJS.ErrnoException).code === 'ECONNRESET' ? 'unexpected EOF' : error.message;
}

/** Returns the name in a Host header, for SNI; none for an address. */
function serverName(host: string): string {
  const name = host.startsWith('[') ? '' : (host.split(':')[0] ?? '');
  return isIP(name) === 0 ? name : '';
}

/** Whether the peer broke the connection off, and did not only close it. */
function isReset(error: Error): boolean {
  return (error as NodeJS.ErrnoException).code === 'ECONNRESET' && (error as NodeJS.ErrnoException).syscall === 'read';
}

/** Returns the two ends of a connection, as Go's net package shows them. */
function endsOf({ localAddress = '', localPort = 0, remoteAddress = '', remotePort = 0 }: Socket): string {
  return `${hostPort(localAddress, localPort)}->${hostPort(remoteAddress, remotePort)}`;
}

function resetMessage(ends: string): string {
  return `read tcp ${ends}: read: connection reset by peer`;
}

/** Whether the error is that of TLS for the first bytes of an HTTP response. */
function isPlainHttp(error: unknown): boolean {
  const { code = '', message = '' } = error as NodeJS.ErrnoException;
  return (
    /^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST)$/.test(code) ||
    (code === 'EPROTO' && /wrong version number|packet length too long|http request/.test(message))
  );
}

/** Formats an address with its port; IPv6 addresses stand in brackets. */
export function hostPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

const REASONS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    ECONNREFUSED: 'connect: connection refused',
    EHOSTUNREACH: 'connect: no route to host',
    ENETUNREACH: 'connect: network is unreachable',
    ETIMEDOUT: 'i/o timeout',
    ECONNRESET: 'read: connection reset by peer',
  }),
);

/** The maximum number of characters of a malformed response that a message shows. */
const MAX_SHOWN = 256;

/**
 * Returns the message of Go's net package for a failed connection or a response that is not HTTP, which events of the kubelet
 * have. Other errors keep their messages.
 */
export function dialMessage(error: unknown, host: string, port: number): string {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  if (code === 'ECONNRESET' && error instanceof Error && error.message === 'socket hang up') return 'EOF';
  if (code.startsWith('HPE_')) {
    const [line = ''] = String((error as { rawPacket?: Buffer }).rawPacket ?? '').split(/\r?\n/, 1);
    const quotedLine = quoteText(line.slice(0, MAX_SHOWN));
    return `net/http: HTTP/1.x transport connection broken: malformed HTTP response ${quotedLine}`;
  }
  const reason = REASONS.get(code);
  if (reason !== undefined) return `dial tcp ${hostPort(host, port)}: ${reason}`;
  return errorMessage(error);
}
