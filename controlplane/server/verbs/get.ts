/** GET of one object: the hottest path of the server. It stays synchronous as long as the registry answers from memory. */
import { sendEntry } from '../response.ts';
import { outputOf, pathName, pathNamespace, type VerbHandler } from './verb.ts';

const NEWEST = { resourceVersion: '' };

export const get: VerbHandler = (request, rest, context) => {
  const media = outputOf(request, rest, context);
  const options = request.rawQuery === '' ? NEWEST : { resourceVersion: request.query.get('resourceVersion') ?? '' };
  const found = rest.get?.(request, pathNamespace(request, rest), pathName(request), options);
  if (found === undefined) return undefined;
  if (found instanceof Promise)
    return found.then((entry) => sendEntry(request, context.encodings, 200, rest, entry, media));
  return sendEntry(request, context.encodings, 200, rest, found, media);
};
