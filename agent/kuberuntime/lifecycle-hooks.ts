/** Runs a container's postStart and preStop hooks: a command, an HTTP request, a TCP connection, a pause. Throws with what went wrong. */
import { connect } from 'node:net';
import { request as httpsRequest } from 'node:https';
import { request as httpRequest } from '../../api/machinery/node-http.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Container } from '../core-types.ts';
import type { ContainerId, Runtime } from '../runtime/runtime.ts';

export type Hook = NonNullable<NonNullable<Container['lifecycle']>['preStop']>;

export interface HookDeps {
  readonly runtime: Pick<Runtime, 'execSync'>;
  readonly clock: Clock;
}

export interface HookTarget {
  readonly id: ContainerId;
  readonly container: Container;
  readonly podIp: string;
}

const HTTP_TIMEOUT_MS = 30_000;
const MAX_OUTPUT_BYTES = 10 * 1024;

export async function runHook(hook: Hook, target: HookTarget, deps: HookDeps, signal: AbortSignal): Promise<void> {
  if (hook.exec !== undefined) {
    const result = await deps.runtime.execSync(target.id, hook.exec.command ?? [], {
      timeoutMs: 0,
      signal,
      maxOutputBytes: MAX_OUTPUT_BYTES,
    });
    if (result.exitCode !== 0) {
      throw new Error(
        `Exec lifecycle hook (${JSON.stringify(hook.exec.command ?? [])}) failed: command exited with ${result.exitCode}: ${Buffer.concat([result.stdout, result.stderr]).toString('utf8')}`,
      );
    }
  } else if (hook.httpGet !== undefined) {
    const { httpGet } = hook;
    await httpHook({
      secure: httpGet.scheme === 'HTTPS',
      host: httpGet.host !== undefined && httpGet.host !== '' ? httpGet.host : target.podIp,
      port: resolvePort(httpGet.port ?? 0, target.container),
      path: httpGet.path ?? '/',
      headers: httpGet.httpHeaders ?? [],
      signal,
    });
  } else if (hook.tcpSocket !== undefined) {
    await tcpHook(
      hook.tcpSocket.host !== undefined && hook.tcpSocket.host !== '' ? hook.tcpSocket.host : target.podIp,
      resolvePort(hook.tcpSocket.port ?? 0, target.container),
      signal,
    );
  } else if (hook.sleep !== undefined) {
    await deps.clock.sleep((hook.sleep.seconds ?? 0) * 1000, signal);
  }
}

function resolvePort(port: unknown, container: Container): number {
  if (typeof port === 'number') return port;
  const named = (container.ports ?? []).find((entry) => entry.name === port);
  const resolved = named?.containerPort ?? Number(port);
  if (!Number.isInteger(resolved) || resolved <= 0) throw new Error(`couldn't find port: ${String(port)}`);
  return resolved;
}

interface HttpHook {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly headers: readonly { readonly name?: string | undefined; readonly value?: string | undefined }[];
  readonly signal: AbortSignal;
}

function httpHook(hook: HttpHook): Promise<void> {
  const headers: Record<string, string> = {};
  for (const { name = '', value = '' } of hook.headers) headers[name] = value;
  const options = {
    host: hook.host,
    port: hook.port,
    path: hook.path.startsWith('/') ? hook.path : `/${hook.path}`,
    headers,
    signal: hook.signal,
    timeout: HTTP_TIMEOUT_MS,
    rejectUnauthorized: false,
  };
  return new Promise((resolve, reject) => {
    const request = (hook.secure ? httpsRequest : httpRequest)(options, (response) => {
      response.resume();
      const { statusCode = 0 } = response;
      if (statusCode >= 400)
        reject(new Error(`HTTP lifecycle hook (${hook.path}) failed: unexpected status ${statusCode}`));
      else resolve();
    });
    request.on('timeout', () => request.destroy(new Error('the request timed out')));
    request.on('error', reject);
    request.end();
  });
}

function tcpHook(host: string, port: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, signal });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
  });
}
