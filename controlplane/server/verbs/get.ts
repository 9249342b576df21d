/** Handles GET of one object. It is synchronous as long as the registry reads from memory. */
import { newBadRequest } from '../../../api/meta/status-error.ts';
import { queryBoolean } from '../request-info.ts';
import { sendEntry } from '../response.ts';
import { outputOf, pathName, pathNamespace, type VerbHandler } from './verb.ts';

const NEWEST = { resourceVersion: '' };

function optionsOf(query: URLSearchParams): { readonly resourceVersion: string } {
  const exported = query.get('export');
  if (exported !== null && queryBoolean(exported))
    throw newBadRequest('the export parameter, deprecated since v1.14, is no longer supported');
  return { resourceVersion: query.get('resourceVersion') ?? '' };
}

/** Answers 404 if the object does not exist. */
export const get: VerbHandler = (request, rest, context) => {
  const media = outputOf(request, rest, context);
  const options = request.rawQuery === '' ? NEWEST : optionsOf(request.query);
  const found = rest.get?.(request, pathNamespace(request, rest), pathName(request), options);
  if (found === undefined) return undefined;
  const reply = { request, encodings: context.encodings, media };
  if (found instanceof Promise) return found.then((entry) => sendEntry(reply, 200, rest, entry));
  return sendEntry(reply, 200, rest, found);
};
