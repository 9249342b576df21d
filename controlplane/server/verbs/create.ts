/** Handles POST to a collection, or to a subresource that creates something on an object. */
import type { CreatedAs, Entry } from '../../model/rest.ts';
import { readBody } from '../body.ts';
import { writeOptionsOf } from '../options.ts';
import { sendEntry } from '../response.ts';
import { hasProtobuf, outputOf, pathName, pathNamespace, type VerbHandler } from './verb.ts';

/** Answers 201 with the object, unless the resource returns another status. */
export const create: VerbHandler = async (request, rest, context) => {
  const media = outputOf(request, rest, context);
  const protobuf = hasProtobuf(rest, context.encodings);
  const { encodings, decoders } = context;
  const options = writeOptionsOf(request.query, 'CreateOptions');
  const body = await readBody(request, rest, { encodings, decoders, protobuf, check: options });
  // A custom resource can be created at the path of an object, whose name then has no meaning.
  const name = rest.subresource === undefined ? '' : pathName(request);
  const created = await rest.create?.(request, pathNamespace(request, rest), name, body, options());
  if (created === undefined) return undefined;
  const { status, entry } = isCreatedAs(created) ? created : { status: 201, entry: created };
  return sendEntry({ request, encodings, media }, status, rest, entry);
};

function isCreatedAs(created: Entry | CreatedAs): created is CreatedAs {
  return 'status' in created;
}
