/** Parses the path into the request's info, and refuses an invalid `timeout`. */
import { quoteText } from '../../../api/meta/quote.ts';
import { parseDuration } from '../../../api/component/duration.ts';
import { newBadRequest } from '../../../api/meta/status-error.ts';
import { isLongRunning } from '../long-running.ts';
import { parseRequestInfo } from '../request-info.ts';
import type { Filter } from '../request.ts';

/** Must run before every filter that reads `request.info`. */
export function requestInfoFilter(): Filter {
  return (request, next) => {
    request.info = parseRequestInfo(request.exchange.method, request.path, () => request.query);
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
