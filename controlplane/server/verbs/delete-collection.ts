/** Handles DELETE of a collection. The response lists the deleted objects. */
import { readDeleteOptions } from '../body.ts';
import { parseDeleteOptions, parseListOptions, validateListOptions } from '../options.ts';
import { sendList } from '../response.ts';
import { hasProtobuf, outputOf, pathNamespace, type VerbHandler } from './verb.ts';

/** Selectors and options have the forms of a list and of a delete. */
export const removeCollection: VerbHandler = async (request, rest, context) => {
  const media = outputOf(request, rest, context);
  const list = parseListOptions(request.query);
  validateListOptions(list);
  const protobuf = hasProtobuf(rest, context.encodings);
  const body = await readDeleteOptions(request, { ...context, protobuf });
  const options = parseDeleteOptions(request.query, body);
  const deleted = await rest.deleteCollection?.(request, pathNamespace(request, rest), list, options);
  if (deleted === undefined) return undefined;
  return sendList({ request, encodings: context.encodings, media }, rest, deleted.entries, deleted);
};
