/** `log`: what the agent sends, as text; its refusals become a Status. */
import { text } from 'node:stream/consumers';
import { newInternalError, newStatusError } from '../../../api/meta/status-error.ts';
import type { ConnectTarget, Rest } from '../../registry/rest.ts';
import type { ApiRequest } from '../request.ts';
import type { TargetTls } from './connector.ts';
import { passBody, requestTarget } from './passed-response.ts';

const MAX_REASON_CHARS = 2048;

export async function streamLog(request: ApiRequest, rest: Rest, target: ConnectTarget, tls: TargetTls): Promise<void> {
  const message = await requestTarget({
    url: target.url,
    method: 'GET',
    headers: [['accept', '*/*']],
    tls,
    body: undefined,
    signal: request.signal,
  });
  const status = message.statusCode ?? 500;
  if (status < 200 || status > 206) {
    const reason = (await text(message)).slice(0, MAX_REASON_CHARS).trim();
    throw refusal(status, reason, rest, request.info.parts[1] ?? '');
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
