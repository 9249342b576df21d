/**
 * Runs a container's postStart and preStop hooks: a command, an HTTP request, a TCP connection, a pause. Throws if a hook
 * fails. The kubelet accepts a TCP hook and lets it fail; this agent opens the connection.
 */
import { createDialer } from '../../../api/http/dialer.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { Container } from '../../base/model/pod.ts';
import { hostPort, type HttpGet, httpGet, PlainHttpError } from './http-get.ts';
import type { Runtime } from '../runtime.ts';
import type { ContainerId } from '../runtime-identity.ts';

/** A postStart or preStop handler. */
export type Hook = NonNullable<NonNullable<Container['lifecycle']>['preStop']>;

/** What happened to a hook, for metrics: an HTTPS hook got an HTTP response; a pause ended early. */
export type HookObserver = (event: 'http-fallback' | 'sleep-cut-short') => void;

interface HookDeps {
  readonly runtime: Pick<Runtime, 'execSync'>;
  readonly clock: Clock;
  /** Reports a warning about a hook that did not fail. */
  readonly warn: (reason: string, message: string) => void;
  readonly observe?: HookObserver | undefined;
}

interface HookTarget {
  readonly id: ContainerId;
  readonly container: Container;
  /** The pod as messages name it. */
  readonly pod: string;
  readonly podIp: string;
}

const dialer = createDialer();
const MAX_OUTPUT_BYTES = 10 * 1024;

/** Runs a hook. Throws with the message of the kubelet. */
export async function runHook(hook: Hook, target: HookTarget, deps: HookDeps, signal: AbortSignal): Promise<void> {
  const output: string[] = [];
  try {
    await run(hook, target, deps, { signal, output });
  } catch (error) {
    if (signal.aborted) throw error;
    const where = `for Container "${target.container.name}" in Pod "${target.pod}" failed - error: ${(error as Error).message}`;
    throw new Error(`${titleOf(hook)} ${where}${hook.exec === undefined ? '' : `, message: ${goQuoted(output)}`}`, {
      cause: error,
    });
  }
}

function titleOf({ exec, httpGet: http, sleep }: Hook): string {
  if (exec !== undefined) return `Exec lifecycle hook ([${(exec.command ?? []).join(' ')}])`;
  if (http !== undefined) return `HTTP lifecycle hook (${http.path ?? ''})`;
  return sleep === undefined ? 'TCP lifecycle hook' : `Sleep lifecycle hook (${sleep.seconds ?? 0})`;
}

const goQuoted = (parts: readonly string[]): string => quoteText(parts.join(''));

async function run(
  hook: Hook,
  target: HookTarget,
  deps: HookDeps,
  { signal, output }: { readonly signal: AbortSignal; readonly output: string[] },
): Promise<void> {
  if (hook.exec !== undefined) {
    const { command = [] } = hook.exec;
    const result = await deps.runtime.execSync(target.id, command, {
      timeoutMs: 0,
      signal,
      maxOutputBytes: MAX_OUTPUT_BYTES,
    });
    const stderr = result.stderr.toString('utf8');
    output.push(result.stdout.toString('utf8'), stderr);
    if (result.exitCode !== 0)
      throw new Error(`command '${command.join(' ')}' exited with ${result.exitCode}: ${stderr}`);
  } else if (hook.httpGet !== undefined) {
    const { scheme, host, port, path = '', httpHeaders = [] } = hook.httpGet;
    await httpHook(
      {
        scheme: scheme === 'HTTPS' ? 'https' : 'http',
        host: host !== undefined && host !== '' ? host : target.podIp,
        port: resolvePort(port ?? 0, target.container),
        path: path.startsWith('/') ? path : `/${path}`,
        headers: httpHeaders.map(({ name, value }) => ({ name, value })),
        purpose: 'lifecycle',
        pod: target.pod,
      },
      deps,
      signal,
    );
  } else if (hook.tcpSocket !== undefined) {
    await tcpHook(
      hook.tcpSocket.host !== undefined && hook.tcpSocket.host !== '' ? hook.tcpSocket.host : target.podIp,
      resolvePort(hook.tcpSocket.port ?? 0, target.container),
      signal,
    );
  } else if (hook.sleep !== undefined) {
    try {
      await deps.clock.sleep((hook.sleep.seconds ?? 0) * 1000, signal);
    } catch (error) {
      deps.observe?.('sleep-cut-short');
      throw error;
    }
  }
}

function resolvePort(port: unknown, container: Container): number {
  if (typeof port === 'number') return port;
  const named = (container.ports ?? []).find((entry) => entry.name === port);
  const resolved = named?.containerPort ?? Number(port);
  if (!Number.isInteger(resolved) || resolved <= 0) throw new Error(`couldn't find port: ${String(port)}`);
  return resolved;
}

/** Sends the request of a hook. It succeeds with any response, whatever its status. */
async function httpHook(target: HttpGet, deps: HookDeps, signal: AbortSignal): Promise<void> {
  try {
    await httpGet(target, signal);
  } catch (error) {
    if (!(error instanceof PlainHttpError)) throw error;
    // Falls back to HTTP, because hooks with HTTPS by mistake have always worked. Credentials are not sent in the clear.
    const headers = target.headers.filter(({ name }) => name.toLowerCase() !== 'authorization');
    await httpGet({ ...target, scheme: 'http', headers }, signal);
    deps.observe?.('http-fallback');
    deps.warn(
      'LifecycleHTTPFallback',
      `request to HTTPS lifecycle hook ${hostPort(target.host, target.port)} got HTTP response, retry with HTTP succeeded`,
    );
  }
}

function tcpHook(host: string, port: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = dialer.connect({ purpose: 'probe', host, port, signal });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
  });
}
