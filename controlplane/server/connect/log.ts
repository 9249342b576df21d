/** Serves `log`: passes the agent's response on as text or as WebSocket messages. An error of the agent becomes a Status. */
import { newInternalError, newStatusError } from '../../../api/meta/status-error.ts';
import type { Rest } from '../../model/rest.ts';
import type { ApiRequest } from '../request.ts';
import { beginningOf, type OpenTarget, passBody, requestTarget } from './passed-response.ts';

/** The number of characters that are passed on of an agent's error. */
const MAX_REASON_CHARS = 2048;
/** The maximum size of a reason in bytes. A character has four bytes at most. */
const MAX_REASON_BYTES = 4 * MAX_REASON_CHARS;

/** Streams a log of the agent to the client, by HTTP or by WebSocket. Throws the error of the agent as a Status. */
export async function streamLog(request: ApiRequest, rest: Rest, target: OpenTarget): Promise<void> {
  const isWebSocket = (request.header('upgrade') ?? '').toLowerCase() === 'websocket';
  // Loaded before the request, because an error of the response must have a listener at once.
  const webSocket = isWebSocket ? await import('./log-websocket.ts') : undefined;
  const message = await requestTarget({
    ...target,
    method: 'GET',
    headers: [['accept', '*/*']],
    body: undefined,
    signal: request.signal,
  });
  const status = message.statusCode ?? 500;
  if (status < 200 || status > 206) {
    const reason = (await beginningOf(message, MAX_REASON_BYTES)).slice(0, MAX_REASON_CHARS).trim();
    throw refusal(status, reason, rest, request.info.parts[1] ?? '');
  }
  const upgrade = webSocket === undefined ? undefined : request.exchange.takeUpgrade();
  if (webSocket !== undefined && upgrade !== undefined) {
    request.status = 101;
    await webSocket.passMessages(message, upgrade);
    return;
  }
  request.status = 200;
  request.exchange.start(200, request.responseHeaders('text/plain'));
  await passBody(message, request.exchange);
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
};

function refusal(status: number, reason: string, rest: Rest, name: string): Error {
  if (status === 500) return newInternalError(reason);
  const { group, resource } = rest.info;
  return newStatusError(status, REASONS[status] ?? 'Unknown', reason, {
    details: { name, ...(group === '' ? {} : { group }), kind: resource },
  });
}
