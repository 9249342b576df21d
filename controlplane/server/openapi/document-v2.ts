/**
 * The OpenAPI 2 document: one for everything. Made group by group, so that requests are answered in between.
 *
 * Parameters that many operations share are referred to; those of patches stand in place, as clients look there for what a
 * server supports (`dryRun`, `fieldValidation`) and old ones do not follow references.
 */
import { setImmediate } from 'node:timers/promises';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { plainItemV2, plainPaths } from './discovery-paths.ts';
import { pathsOf, type Operation, type PathOperations } from './operations.ts';
import type { ParameterInfo } from './parameters.ts';
import { SchemaWriter } from './schemas.ts';
import { mediaTypesOf, codeText, groupVersionsOf, refer, type OpenApiSource } from './source.ts';

export async function buildDocumentV2(source: OpenApiSource): Promise<JsonObject> {
  const writer = new SchemaWriter(2, source.schema, groupVersionsOf(source));
  const shared = new Map<string, JsonObject>();
  const paths: JsonObject = {};
  let group = '';
  for (const row of source.catalog.resources()) {
    if (row.group !== group) await setImmediate();
    group = row.group;
    for (const path of pathsOf(row)) paths[path.path] = pathItem(source, writer, row, path, shared);
  }
  for (const path of plainPaths(source)) paths[path.path] = plainItemV2(path, writer);
  const bearer = { description: 'Bearer token', type: 'apiKey', name: 'authorization', in: 'header' };
  return {
    swagger: '2.0',
    info: { title: 'Kubernetes', version: source.release },
    paths: Object.fromEntries(Object.entries(paths).sort(([a], [b]) => (a < b ? -1 : 1))),
    definitions: await writer.definitions(),
    parameters: Object.fromEntries([...shared].sort(([a], [b]) => (a < b ? -1 : 1))),
    securityDefinitions: { BearerToken: bearer },
    security: [{ BearerToken: [] }],
  };
}

function pathItem(
  source: OpenApiSource,
  writer: SchemaWriter,
  row: ResourceInfo,
  { parameters, operations }: PathOperations,
  shared: Map<string, JsonObject>,
): JsonObject {
  const item: JsonObject = {};
  for (const operation of operations) item[operation.method] = operationOf(source, writer, row, operation, shared);
  item['parameters'] = parameters.map((parameter) => referTo(parameter, shared));
  return item;
}

function operationOf(
  source: OpenApiSource,
  writer: SchemaWriter,
  row: ResourceInfo,
  operation: Operation,
  shared: Map<string, JsonObject>,
): JsonObject {
  const types = mediaTypesOf(source, row);
  const parameters: JsonObject[] = [];
  if (operation.body !== undefined) {
    const schema = refer(source, writer, row, operation.body);
    parameters.push({ name: 'body', in: 'body', ...(operation.bodyRequired ? { required: true } : {}), schema });
  }
  for (const parameter of operation.parameters) {
    parameters.push(operation.patch ? parameterOf(parameter) : referTo(parameter, shared));
  }
  const schema = operation.answer === undefined ? { type: 'string' } : refer(source, writer, row, operation.answer);
  const responses: JsonObject = {};
  for (const code of operation.codes) responses[code] = { description: codeText(code), schema };
  responses['401'] = { description: 'Unauthorized' };
  const produces =
    operation.answer === undefined ? ['*/*'] : operation.streams ? [...types.answers, ...types.streams] : types.answers;
  return {
    consumes: operation.patch ? [...types.patches] : ['*/*'],
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
  return { uniqueItems: true, type, description, name, in: place, ...(place === 'path' ? { required: true } : {}) };
}

function referTo(parameter: ParameterInfo, shared: Map<string, JsonObject>): JsonObject {
  // The name alone is not enough: `path` is a segment here and a query there, and names of objects name their kind.
  if (parameter.name === 'name') return parameterOf(parameter);
  const key = parameter.in === 'path' ? `${parameter.name}-segment` : parameter.name;
  const known = shared.get(key);
  const definition = parameterOf(parameter);
  if (known === undefined) shared.set(key, definition);
  else if (known['description'] !== definition['description']) return definition;
  return { $ref: `#/parameters/${key}` };
}
