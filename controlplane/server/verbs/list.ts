/** Handles GET of a collection. */
import type { ListResult } from '../../model/rest.ts';
import { parseListOptions, validateListOptions } from '../options.ts';
import type { MaybePromise } from '../request.ts';
import { sendList } from '../response.ts';
import { outputOf, pathNamespace, type VerbHandler } from './verb.ts';

/** Answers 410 if the continue token is older than the history. */
export const list: VerbHandler = (request, rest, context) => {
  const { encodings } = context;
  const media = outputOf(request, rest, context, 'collection');
  const options = parseListOptions(request.query);
  validateListOptions(options);
  const send = (result: ListResult): MaybePromise<void> =>
    sendList({ request, encodings, media }, rest, result.entries, result);
  const result = rest.list?.(request, pathNamespace(request, rest), options);
  if (result === undefined) return undefined;
  return result instanceof Promise ? result.then(send) : send(result);
};
