/**
 * Builds the OpenAPI 2 document, which describes the whole API. `BaseV2` has the built-in kinds and the aggregated servers.
 * Each custom resource adds a part of its own, so that a change of one definition rebuilds only that part.
 *
 * Operations refer to shared parameters, except for names, whose texts name a kind, and for `dryRun` and `fieldValidation`, by
 * which clients detect the features of a server: old clients do not follow references. The name of a shared parameter contains
 * a hash of it, as in kube-apiserver (k8s.io/kube-openapi/pkg/builder).
 */
import { setImmediate } from 'node:timers/promises';
import { stringifyJson } from '../../../api/codec/json.ts';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { plainItemV2, plainPaths } from './discovery-paths.ts';
import { pathsOf, type Operation, type PathOperations, type TypeRef } from './operations.ts';
import type { ParameterInfo } from './parameters.ts';
import { mergeOpenApi } from '../../registry/aggregation/backend-openapi.ts';
import { REGISTERED_VERSIONS } from './registered-versions.ts';
import { CUSTOM_REFERENCES, SchemaWriter } from './schemas.ts';
import {
  builtInRows,
  consumed,
  mediaTypesOf,
  codeText,
  optionsOf,
  produced,
  refer,
  type OpenApiSource,
} from './source.ts';

/** The members of the document that one resource contributes. */
export interface Part {
  readonly paths: JsonObject;
  readonly definitions: JsonObject;
}

type SharedParameters = Map<string, JsonObject>;

/** The part of the built-in kinds and the aggregated servers, with the parameters that operations refer to. */
export interface BaseV2 extends Part {
  readonly parameters: SharedParameters;
}

/** Builds the part of the built-in kinds and the aggregated servers. Yields to the event loop between groups. */
export async function buildBaseV2(source: OpenApiSource): Promise<BaseV2> {
  const rows = builtInRows(source);
  const writer = new SchemaWriter(2, source.schema, REGISTERED_VERSIONS);
  const parameters: SharedParameters = new Map();
  const paths: JsonObject = {};
  const document = { source, writer, share: shareIn(parameters) };
  let group = '';
  for (const row of rows) {
    if (row.group !== group) await setImmediate();
    group = row.group;
    for (const path of pathsOf(row, optionsOf(source, row))) paths[path.path] = pathItem(document, row, path);
  }
  for (const path of plainPaths(source)) paths[path.path] = plainItemV2(path, writer);
  // Custom resources refer to these types.
  for (const name of [...CUSTOM_REFERENCES]) writer.reference(name);
  const base = { paths, definitions: await writer.definitions(), parameters: Object.fromEntries(parameters) };
  for (const part of source.aggregated?.openApi() ?? []) {
    await setImmediate();
    mergeOpenApi(base, part);
  }
  return { ...base, parameters: new Map(Object.entries(base.parameters)) };
}

/** Returns the part of one row. */
export function buildCustomPartV2(source: OpenApiSource, row: ResourceInfo, parameters: SharedParameters): Part {
  const writer = new SchemaWriter(2, source.schema, []);
  const document = { source, writer, share: shareFrom(parameters) };
  const paths: JsonObject = {};
  for (const path of pathsOf(row, optionsOf(source, row))) paths[path.path] = pathItem(document, row, path);
  return { paths, definitions: writer.customDefinitions() };
}

/** Returns the members before and after the parts. */
export function frameV2(source: OpenApiSource, parameters: SharedParameters): { head: JsonObject; tail: JsonObject } {
  const bearer = { description: 'Bearer Token authentication', type: 'apiKey', name: 'authorization', in: 'header' };
  return {
    head: { swagger: '2.0', info: { title: 'Kubernetes', version: source.release } },
    tail: {
      parameters: Object.fromEntries([...parameters].sort(([a], [b]) => (a < b ? -1 : 1))),
      securityDefinitions: { BearerToken: bearer },
      security: [{ BearerToken: [] }],
    },
  };
}

/** The document that paths are written for. */
interface Document {
  readonly source: OpenApiSource;
  readonly writer: SchemaWriter;
  readonly share: Share;
}

function pathItem(document: Document, row: ResourceInfo, { parameters, operations }: PathOperations): JsonObject {
  const item: JsonObject = {};
  for (const operation of operations) item[operation.method] = operationOf(document, row, operation);
  item['parameters'] = parameters.map((parameter) => referTo(parameter, document.share));
  return item;
}

function operationOf({ source, writer, share }: Document, row: ResourceInfo, operation: Operation): JsonObject {
  const types = mediaTypesOf(source, row);
  const parameters: JsonObject[] = operation.parameters.map((parameter) => referTo(parameter, share));
  if (operation.body !== undefined) {
    const schema = refer(source, writer, row, operation.body);
    const body = { name: 'body', in: 'body', ...(operation.bodyRequired ? { required: true } : {}), schema };
    parameters.unshift(isGeneric(operation.body) ? share(body.name, body) : body);
  }
  const schema = operation.answer === undefined ? { type: 'string' } : refer(source, writer, row, operation.answer);
  const responses: JsonObject = {};
  for (const code of operation.codes) responses[code] = { description: codeText(code), schema };
  responses['401'] = { description: 'Unauthorized' };
  const produces = produced(types, operation);
  return {
    consumes: operation.patch ? [...types.patches] : [...consumed(types, operation)],
    description: operation.description,
    operationId: operation.id,
    ...(parameters.length === 0 ? {} : { parameters }),
    produces: [...produces],
    responses,
    schemes: ['https'],
    tags: [operation.tag],
    'x-kubernetes-action': operation.action,
    'x-kubernetes-group-version-kind': { ...operation.kind },
  };
}

function parameterOf({ name, in: place, type, description }: ParameterInfo): JsonObject {
  return {
    uniqueItems: true,
    type,
    description: description(),
    name,
    in: place,
    ...(place === 'path' ? { required: true } : {}),
  };
}

/** Whether the body has no kind of its own: a patch or options. */
const isGeneric = (body: TypeRef): boolean => 'name' in body && body.name.startsWith('io.k8s.apimachinery.');

/** Returns a reference to the shared parameter, or the parameter itself if the document does not share it. */
type Share = (name: string, definition: JsonObject) => JsonObject;

/** Adds shared parameters that the document does not have yet. */
function shareIn(parameters: SharedParameters): Share {
  return (name, definition) => {
    const key = sharedName(name, definition);
    if (!parameters.has(key)) parameters.set(key, definition);
    return { $ref: `#/parameters/${key}` };
  };
}

const shareFrom =
  (parameters: SharedParameters): Share =>
  (name, definition) => {
    const key = sharedName(name, definition);
    return parameters.has(key) ? { $ref: `#/parameters/${key}` } : definition;
  };

const FNV_OFFSET = 0xcbf29ce484222325n;
const FNV_PRIME = 0x100000001b3n;
const HASH_BYTES = 6;

/** The hashes by the definitions as JSON. */
const hashes = new Map<string, string>();

function sharedName(name: string, definition: JsonObject): string {
  const text = stringifyJson(definition);
  let hash = hashes.get(text);
  if (hash === undefined) hashes.set(text, (hash = hashOf(text)));
  return `${name}-${hash}`;
}

/** Returns the first bytes of the 64-bit FNV-1 hash, as URL-safe base64. */
function hashOf(json: string): string {
  let hash = FNV_OFFSET;
  // Go escapes what could be HTML.
  const text = json.replaceAll(/[<>&]/g, (char) => `\\u00${char.charCodeAt(0).toString(16)}`);
  for (const byte of Buffer.from(text)) hash = BigInt.asUintN(64, hash * FNV_PRIME) ^ BigInt(byte);
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(hash);
  return bytes.subarray(0, HASH_BYTES).toString('base64url');
}

const IN_PLACE: ReadonlySet<string> = new Set(['name', 'dryRun', 'fieldValidation']);

function referTo(parameter: ParameterInfo, share: Share): JsonObject {
  const definition = parameterOf(parameter);
  return IN_PLACE.has(parameter.name) ? definition : share(parameter.name, definition);
}
