/** Parses the path into the request's info, and refuses an invalid `timeout`. */
import { quoteText } from '../../../api/meta/quote.ts';
import { parseDuration } from '../../../api/component/duration.ts';
import { newBadRequest } from '../../../api/meta/status-error.ts';
import { isLongRunning } from '../long-running.ts';
import { sendText } from '../path-handlers.ts';
import { parseRequestInfo, RequestInfoError } from '../request-info.ts';
import type { Filter } from '../request.ts';

/**
 * Creates the filter. It must run before every filter that reads `request.info`. It answers 500 if the path ends after
 * `/watch`, and throws a 400 for an invalid path or an invalid `timeout`.
 */
export function requestInfoFilter(): Filter {
  return (request, next) => {
    const { method, target } = request.exchange;
    try {
      request.info = parseRequestInfo(method, request.path, () => request.query);
    } catch (error) {
      if (!(error instanceof RequestInfoError)) throw error;
      const why = `failed to create RequestInfo: ${error.message}, ${target}`;
      return sendText(request, 500, escaped(`Internal Server Error: ${quoteText(target)}: ${why}\n`));
    }
    if (request.rawQuery !== '' && !isLongRunning(request.info)) {
      const timeout = request.query.get('timeout');
      if (timeout !== null && timeout !== '' && parseDuration(timeout) === undefined) {
        throw newBadRequest(
          `invalid timeout specified in the request URL - time: invalid duration ${quoteText(timeout)}`,
        );
      }
    }
    return next(request);
  };
}

const ESCAPES: ReadonlyMap<string, string> = new Map(Object.entries({ '&': '&amp;', '<': '&lt;', '>': '&gt;' }));

/** Escapes a text, so that a client does not show it as HTML. */
const escaped = (text: string): string => text.replaceAll(/[&<>]/g, (char) => ESCAPES.get(char) ?? char);
