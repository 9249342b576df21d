/** Parses and validates the query of a log request as PodLogOptions, and returns the part that the agent needs. */
import { quoteText } from '../../../../api/meta/quote.ts';
import { type FieldError, forbidden, invalid } from '../../../../api/meta/field-error.ts';
import { newBadRequest, newInvalid } from '../../../../api/meta/status-error.ts';
import { canonicalTime, TimeError } from '../../../../api/schema/time.ts';

const SENT = ['follow', 'previous', 'timestamps', 'sinceSeconds', 'sinceTime', 'tailLines', 'limitBytes'];

/** Returns the query parameters for the agent. Throws a 400 for a text that is no number or time, and a 422 for a bad value. */
export function podLogQuery(name: string, query: URLSearchParams): URLSearchParams {
  const errors: FieldError[] = [];
  const sinceSeconds = numberOf(query, 'sinceSeconds');
  checkTime(query.get('sinceTime') ?? '');
  const tailLines = numberOf(query, 'tailLines');
  const limitBytes = numberOf(query, 'limitBytes');
  const stream = query.get('stream') ?? '';
  if (tailLines !== undefined && tailLines < 0)
    errors.push(invalid('tailLines', tailLines, 'must be greater than or equal to 0'));
  if (limitBytes !== undefined && limitBytes < 1)
    errors.push(invalid('limitBytes', limitBytes, 'must be greater than 0'));
  if (sinceSeconds !== undefined) {
    if ((query.get('sinceTime') ?? '') !== '')
      errors.push(forbidden('[]', 'at most one of `sinceTime` or `sinceSeconds` may be specified'));
    else if (sinceSeconds < 1) errors.push(invalid('sinceSeconds', sinceSeconds, 'must be greater than 0'));
  }
  // The feature gate for a single stream is off in this release.
  if (stream !== '') errors.push(forbidden('stream', 'may not be specified'));
  if (errors.length > 0) throw newInvalid({ group: '', resource: 'PodLogOptions' }, name, errors);
  const sent = new URLSearchParams();
  for (const option of SENT) {
    const value = query.get(option);
    if (value !== null && value !== '') sent.set(option, value);
  }
  return sent;
}

function checkTime(text: string): void {
  if (text === '' || text === 'null') return;
  try {
    canonicalTime(text);
  } catch (error) {
    throw error instanceof TimeError ? newBadRequest(error.message) : error;
  }
}

function numberOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null || text === '') return undefined;
  if (!/^[+-]?\d+$/.test(text)) throw newBadRequest(`strconv.ParseInt: parsing ${quoteText(text)}: invalid syntax`);
  return Number(text);
}
