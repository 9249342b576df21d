/** PATCH in its four types, told apart by the body's media type. */
import { newBadRequest } from '../../../api/meta/status-error.ts';
import type { Patch } from '../../registry/rest.ts';
import { MAX_BODY_BYTES, type TextDecoders } from '../body.ts';
import { routeError } from '../media-type.ts';
import { parseWriteOptions } from '../options.ts';
import { sendEntry } from '../response.ts';
import { hasProtobuf, outputOf, pathName, pathNamespace, type VerbHandler } from './verb.ts';

const TYPES: ReadonlyMap<string, Patch['type']> = new Map([
  ['application/json-patch+json', 'json'],
  ['application/merge-patch+json', 'merge'],
  ['application/strategic-merge-patch+json', 'strategic'],
  ['application/apply-patch+yaml', 'apply'],
]);

export const patch: VerbHandler = async (request, rest, context) => {
  const media = outputOf(request, rest, context);
  const type = TYPES.get((request.header('content-type') ?? '').split(';')[0]?.trim() ?? '');
  const builtIn = hasProtobuf(rest, context.encodings);
  if (type === undefined || (type === 'strategic' && !builtIn)) throw unsupported(builtIn);
  const bytes = await request.exchange.readBody(MAX_BODY_BYTES);
  const options = parseWriteOptions(request.query, 'PatchOptions', type === 'apply');
  const decoded = decodePatch(type, bytes.toString('utf8'), options.force ?? false, context.decoders);
  const written = await rest.patch?.(request, pathNamespace(request, rest), pathName(request), decoded, options);
  if (written === undefined) return;
  sendEntry(request, context.encodings, written.created ? 201 : 200, rest, written.entry, media);
};

function unsupported(builtIn: boolean): Error {
  if (builtIn) return routeError(415, 'UnsupportedMediaType', '415: Unsupported Media Type');
  const accepted = [...TYPES.keys()].filter((type) => TYPES.get(type) !== 'strategic').join(', ');
  return routeError(
    415,
    'UnsupportedMediaType',
    `the body of the request was in an unknown format - accepted media types include: ${accepted}`,
  );
}

function decodePatch(type: Patch['type'], text: string, force: boolean, decoders: TextDecoders): Patch {
  if (type === 'apply') {
    const { value, duplicates } = decoders.yaml(text);
    return { type, body: value, duplicates, force };
  }
  const { value, duplicates } = decoders.json(text);
  if (type === 'json') {
    if (!Array.isArray(value))
      throw newBadRequest('json: cannot unmarshal object into Go value of type jsonpatch.Patch');
    return { type, body: value };
  }
  return { type, body: value, duplicates };
}
