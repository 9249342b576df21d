/** Handles PATCH with its four types, which the media type of the body selects. */
import { isStatusError, newBadRequest, newUnsupportedMediaType } from '../../../api/meta/status-error.ts';
import { JsonSyntaxError } from '../../../api/codec/json.ts';
import { YamlSyntaxError } from '../../../api/codec/yaml.ts';
import { nextTurn } from '../../registry/large-object.ts';
import type { Body, Patch } from '../../model/rest.ts';
import { jsonType, receiveBody, type TextDecoders } from '../body.ts';
import type { ApiRequest } from '../request.ts';
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

/** Answers 415 for another media type, and for a strategic merge patch of a custom resource. */
export const patch: VerbHandler = async (request, rest, context) => {
  const media = outputOf(request, rest, context);
  const type = TYPES.get((request.header('content-type') ?? '').split(';')[0]?.trim() ?? '');
  const builtIn = hasProtobuf(rest, context.encodings);
  if (type === undefined || (type === 'strategic' && !builtIn)) throw unsupported(builtIn);
  if (pathName(request) === '') throw newBadRequest('name must be provided');
  const bytes = await receiveBody(request);
  const options = parseWriteOptions(request.query, 'PatchOptions', type === 'apply');
  const decoded = await decodePatch(request, type, bytes, {
    force: options.force ?? false,
    decoders: context.decoders,
  });
  if (request.isLarge) await nextTurn();
  request.audited?.bodyIs(decoded.body);
  const written = await rest.patch?.(request, pathNamespace(request, rest), pathName(request), decoded, options);
  if (written === undefined) return undefined;
  const reply = { request, encodings: context.encodings, media };
  return sendEntry(reply, written.created ? 201 : 200, rest, written.entry);
};

function unsupported(builtIn: boolean): Error {
  if (builtIn) return routeError(415, 'UnsupportedMediaType', '415: Unsupported Media Type');
  const accepted = [...TYPES.keys()].filter((type) => TYPES.get(type) !== 'strategic').join(', ');
  return newUnsupportedMediaType(
    `the body of the request was in an unknown format - accepted media types include: ${accepted}`,
  );
}

async function decodePatch(
  request: ApiRequest,
  type: Patch['type'],
  bytes: Buffer,
  { force, decoders }: { readonly force: boolean; readonly decoders: TextDecoders },
): Promise<Patch> {
  if (type === 'apply') {
    const { value, duplicates } = await decodedYaml(request, bytes, decoders);
    return { type, body: value, duplicates, force };
  }
  try {
    return decodeJsonPatch(type, bytes, decoders);
  } catch (error) {
    if (isStatusError(error)) return { type, body: {}, duplicates: [], fault: error };
    throw error;
  }
}

function decodeJsonPatch(type: Exclude<Patch['type'], 'apply'>, bytes: Buffer, decoders: TextDecoders): Patch {
  const prefix = type === 'strategic' ? '' : 'error decoding patch: ';
  const { value, duplicates, decimals } = decodedJson(bytes, decoders, prefix);
  const wanted = type === 'json' ? 'array' : 'object';
  const found = jsonType(value);
  if (found !== wanted && found !== 'null') {
    const goType = type === 'json' ? '[]handlers.jsonPatchOp' : 'map[string]interface {}';
    throw newBadRequest(`${prefix}json: cannot unmarshal ${found} into Go value of type ${goType}`);
  }
  if (type !== 'json') return { type, body: value, duplicates, decimals };
  const operations = ((value ?? []) as readonly unknown[]).map((operation) => operation ?? {});
  return { type, body: operations, duplicates, decimals };
}

function decodedJson(bytes: Buffer, decoders: TextDecoders, prefix: string): Body {
  try {
    return decoders.json(bytes);
  } catch (error) {
    if (error instanceof JsonSyntaxError) throw newBadRequest(`${prefix}${error.message}`);
    throw error;
  }
}

async function decodedYaml(request: ApiRequest, bytes: Buffer, decoders: TextDecoders): Promise<Body> {
  let body: Body;
  try {
    body = await decoders.yaml(bytes, request.signal);
  } catch (error) {
    if (error instanceof YamlSyntaxError)
      throw newBadRequest(`error decoding YAML: error converting YAML to JSON: ${error.message}`);
    throw error;
  }
  const found = jsonType(body.value);
  if (found === 'object' || found === 'null') return { ...body, value: body.value ?? {} };
  throw newBadRequest(
    `error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal ${found} into Go value of type map[string]interface {}`,
  );
}
