/**
 * Owns the dockerode client of the Docker Engine. Every call that returns at once has a time limit, and engine errors
 * become a `RuntimeError` here and nowhere else.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
// This import must precede dockerode, because it keeps unused parts of dockerode from being loaded.
import './dockerode-parts.ts';
import Docker from 'dockerode';
import type { Clock } from '../../../api/machinery/clock.ts';
import { boundResponses } from './bounded-responses.ts';
import { RuntimeError, type RuntimeErrorCode } from '../runtime.ts';

/** The length to which messages are cut, because registries write parts of them, and logs, events and statuses show them. */
const LONGEST_MESSAGE = 8192;
/**
 * The time limit of a call whose caller gives none. A call beyond its limit fails with `timeout`, and its connection is closed.
 * The engine may still execute it.
 */
const CALL_TIMEOUT_MS = 120_000;

/** The engine. Streams go through `docker` itself, since they last longer than any time limit. */
export interface DockerClient {
  readonly clock: Clock;
  readonly docker: Docker;
  /** Runs an engine call with a time limit and throws its errors as `RuntimeError`. */
  call<T>(operation: string, run: () => Promise<T>, options?: { readonly timeoutMs?: number }): Promise<T>;
}

/** Returns a client of the engine at `unix:///path`, a path, or `tcp://host:port`. Does not connect yet. */
export function createDockerClient(endpoint: string, clock: Clock): DockerClient {
  const docker = new Docker(connectOptions(endpoint));
  const expiry = new AsyncLocalStorage<AbortSignal>();
  boundResponses(docker, { expiry: () => expiry.getStore() });
  return {
    clock,
    docker,
    async call(operation, run, options = {}) {
      const timeoutMs = options.timeoutMs ?? CALL_TIMEOUT_MS;
      let expire: (error: RuntimeError) => void = () => undefined;
      const expired = new Promise<never>((_resolve, reject) => (expire = reject));
      const over = new AbortController();
      const timer = clock.after(timeoutMs, () => {
        expire(
          new RuntimeError('timeout', `${operation}: the container runtime did not answer within ${timeoutMs / 1000}s`),
        );
        over.abort();
      });
      try {
        return await Promise.race([expiry.run(over.signal, run), expired]);
      } catch (error) {
        throw toRuntimeError(error);
      } finally {
        timer.cancel();
      }
    },
  };
}

function connectOptions(endpoint: string): Docker.DockerOptions {
  if (endpoint.startsWith('unix://')) return { socketPath: endpoint.slice('unix://'.length) };
  if (endpoint.startsWith('/')) return { socketPath: endpoint };
  const url = new URL(endpoint);
  return { host: url.hostname, port: Number(url.port === '' ? 2375 : url.port), protocol: 'http' };
}

interface EngineError {
  readonly statusCode?: number;
  readonly code?: string;
  readonly json?: { readonly message?: string };
  readonly reason?: string;
  readonly message: string;
}

/** Maps the status code and the message of an engine error to a code of the boundary. */
export function toRuntimeError(error: unknown): RuntimeError {
  if (error instanceof RuntimeError) return error;
  const engine = error as EngineError;
  const whole = engine.json?.message ?? engine.message;
  const text = whole.slice(0, LONGEST_MESSAGE);
  const message = text.replace(/^\(HTTP code \d+\) [^-]*- /, '').trim();
  // The cause is logged as well.
  const cause = whole === text ? error : Object.assign(new Error(text), { statusCode: engine.statusCode });
  return new RuntimeError(codeOf(engine, message), engineMessage(engine, message), { cause });
}

function isImageMissing(message: string): boolean {
  if (/no such image|manifest unknown|repository does not exist/.test(message)) return true;
  const manifest = message.indexOf('manifest for ');
  return manifest !== -1 && message.includes(' not found', manifest);
}

function codeOf(error: EngineError, message: string): RuntimeErrorCode {
  switch (error.statusCode) {
    case 400:
      return 'invalid';
    case 401:
    case 403:
      return 'unauthorized';
    case 404:
      return isImageMissing(message.toLowerCase()) ? 'image-not-found' : 'not-found';
    case 409:
      return /already in use|already exists/i.test(message) ? 'already-exists' : 'invalid';
    case 503:
      return 'unavailable';
    case undefined:
      return error.code !== undefined && /^(ECONN|ENOENT|EPIPE|EACCES|ETIMEDOUT|EHOST)/.test(error.code)
        ? 'unavailable'
        : 'unknown';
    default:
      if (/pull access denied|unauthorized|authentication required|no basic auth/i.test(message)) return 'unauthorized';
      if (/manifest unknown|not found/i.test(message)) return 'image-not-found';
      return /OCI runtime|failed to create shim/i.test(message) ? 'invalid' : 'unknown';
  }
}

function engineMessage(error: EngineError, message: string): string {
  if (error.statusCode === undefined && error.code !== undefined)
    return `cannot connect to the Docker daemon: ${error.message}`;
  return startMessage(message);
}

/**
 * Returns the message of a failed start with the prefix that containerd gives it. Versions of the engine have different ones,
 * and users search for the same text for the same error.
 */
export function startMessage(message: string): string {
  const bare = message.replace(/^failed to create task for container: /, '');
  return /^(failed to create shim|OCI runtime create failed)/.test(bare)
    ? `failed to create containerd task: ${bare}`
    : message;
}

/** Whether an error is a `RuntimeError` with one of the codes. */
export function isCode(error: unknown, ...codes: readonly RuntimeErrorCode[]): boolean {
  return error instanceof RuntimeError && codes.includes(error.code);
}

/** Ignores the errors that the object does not exist (404), or that the container to stop does not run (304). */
export async function unlessGone(run: Promise<unknown>): Promise<void> {
  try {
    await run;
  } catch (error) {
    const status =
      (error as { statusCode?: number; cause?: { statusCode?: number } }).statusCode ??
      (error as { cause?: { statusCode?: number } }).cause?.statusCode;
    if (status === 404 || status === 304) return;
    throw error;
  }
}
