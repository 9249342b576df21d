/** Handles PUT of an object. The response is a 201 if it created the object. */
import { readBody } from '../body.ts';
import { writeOptionsOf } from '../options.ts';
import { sendEntry } from '../response.ts';
import { hasProtobuf, outputOf, pathName, pathNamespace, type VerbHandler } from './verb.ts';

/** Answers 409 if the object has another resource version than the body. */
export const update: VerbHandler = async (request, rest, context) => {
  const media = outputOf(request, rest, context);
  const protobuf = hasProtobuf(rest, context.encodings);
  const { encodings, decoders } = context;
  const options = writeOptionsOf(request.query, 'UpdateOptions');
  const body = await readBody(request, rest, { encodings, decoders, protobuf, check: options });
  const written = await rest.update?.(request, pathNamespace(request, rest), pathName(request), body, options());
  if (written === undefined) return undefined;
  const reply = { request, encodings, media };
  return sendEntry(reply, written.created ? 201 : 200, rest, written.entry);
};
