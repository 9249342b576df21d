/** Serves `/containerLogs`. Validates the log options as the kubelet does, and streams the log while reading it. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { splitTarget } from '../../api/http/request-path.ts';
import { newBadRequest, newStatusError, type StatusError } from '../../api/meta/status-error.ts';
import { canonicalTime } from '../../api/schema/time.ts';
import type { LogOptions } from '../runtime/logs/log-reader.ts';
import type { PodHost } from './pod-host.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';

interface ContainerLogsOptions {
  readonly host: PodHost;
  /** The feature gate PodLogsQuerySplitStreams: a request may select stdout or stderr. */
  readonly splitLogStreams: boolean;
}

/** Adds the route. An error after the first byte ends the response, since its status has been sent. */
export function installContainerLogs(app: FastifyInstance, options: ContainerLogsOptions): void {
  app.get('/containerLogs/:namespace/:pod/:container', (request, reply) => serveLogs(options, request, reply));
}

const unreadable = (): StatusError => newStatusError(400, 'BadRequest', '{"message": "Unable to decode query."}');
const impossible = (): StatusError => newStatusError(422, 'Invalid', '{"message": "Invalid request."}');

function numberOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  const value = Number(text);
  if (!/^[+-]?\d+$/.test(text) || !Number.isSafeInteger(value)) throw unreadable();
  return value;
}

/**
 * Returns the options of the query. The first value of a name counts, and an option without a value is on. Throws a 400 for a
 * value that cannot be parsed, and a 422 for one that is invalid.
 */
export function parseLogOptions(query: URLSearchParams): LogOptions {
  const on = (name: string): boolean => !/^(0|false)$/i.test(query.get(name) ?? 'false');
  const tail = query.get('tail') ?? '';
  const tailLines = tail === '' ? numberOf(query, 'tailLines') : tail === 'all' ? undefined : numberOf(query, 'tail');
  const limitBytes = numberOf(query, 'limitBytes');
  const sinceSeconds = numberOf(query, 'sinceSeconds');
  const [sinceTime, stream] = [query.get('sinceTime') ?? '', query.get('stream') ?? ''];
  if (sinceTime !== '' && !isTime(sinceTime)) throw unreadable();
  if (tailLines !== undefined && tailLines < 0) throw impossible();
  if (limitBytes !== undefined && limitBytes < 1) throw impossible();
  if (sinceSeconds !== undefined && (sinceSeconds < 1 || query.has('sinceTime'))) throw impossible();
  const isStream = stream === 'Stdout' || stream === 'Stderr' || stream === 'All';
  if (stream !== '' && !isStream) throw impossible();
  if (tailLines !== undefined && (stream === 'Stdout' || stream === 'Stderr')) throw impossible();
  return {
    follow: on('follow'),
    previous: on('previous'),
    timestamps: on('timestamps'),
    ...(tailLines === undefined ? {} : { tailLines }),
    ...(limitBytes === undefined ? {} : { limitBytes }),
    ...(sinceSeconds === undefined ? {} : { sinceSeconds }),
    ...(sinceTime === '' ? {} : { sinceTime }),
    ...(isStream ? { stream } : {}),
  };
}

/** Whether the text is a time in RFC 3339. `Date.parse` would accept other forms too, such as those without a zone. */
function isTime(text: string): boolean {
  try {
    canonicalTime(text);
    return true;
  } catch {
    // The caller reports the invalid time.
    return false;
  }
}

/** Streams the log. The response header is sent with the first byte, so that an earlier failure has its own status code. */
async function serveLogs(
  { host, splitLogStreams }: ContainerLogsOptions,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const { namespace, pod, container } = request.params as Record<'namespace' | 'pod' | 'container', string>;
  const options = parseLogOptions(new URLSearchParams(splitTarget(request.url).query));
  if (!splitLogStreams && options.stream !== undefined && options.stream !== 'All')
    throw newBadRequest(
      `unable to return the given log stream: "${options.stream}". Please enable PodLogsQuerySplitStreams feature gate in kubelet`,
    );
  const clientGone = new AbortController();
  const { raw } = reply;
  raw.on('close', () => clientGone.abort(new Error('the client is gone')));
  raw.setHeader('Content-Type', TEXT_TYPE);
  raw.setHeader('Transfer-Encoding', 'chunked');
  try {
    await host.logs({ namespace, pod, container }, options, raw, clientGone.signal);
    reply.hijack();
    raw.end();
  } catch (error) {
    if (clientGone.signal.aborted || raw.headersSent) {
      reply.hijack();
      raw.destroy();
      return;
    }
    raw.removeHeader('Transfer-Encoding');
    throw error;
  }
}
