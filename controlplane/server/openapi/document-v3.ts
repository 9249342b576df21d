/** Builds the OpenAPI 3 documents, one for each group and version. Parameters are written in place, as clients expect. */
import { setImmediate } from 'node:timers/promises';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { plainItemV3, plainPaths } from './discovery-paths.ts';
import { documentOf, pathsOf, type Operation, type PathOperations } from './operations.ts';
import type { ParameterInfo } from './parameters.ts';
import type { Part } from './document-v2.ts';
import { CLIENT_VERSIONS } from './registered-versions.ts';
import { CUSTOM_REFERENCES, SchemaWriter } from './schemas.ts';
import {
  builtInRows,
  consumed,
  mediaTypesOf,
  codeText,
  groupVersionsOf,
  optionsOf,
  produced,
  refer,
  type OpenApiSource,
} from './source.ts';

/**
 * Builds the part of the built-in kinds of a group and version, or of paths without a group. Yields to the event loop between
 * resources. `name` is the name of the document: `apis/apps/v1`, `version`.
 */
export async function buildPartV3(source: OpenApiSource, name: string): Promise<Part> {
  const rows = builtInRows(source);
  const writer = new SchemaWriter(3, source.schema, groupVersionsIn(rows, name));
  const paths: JsonObject = {};
  for (const row of rows) {
    if (documentOf(row) !== name) continue;
    await setImmediate();
    for (const path of pathsOf(row, optionsOf(source, row))) paths[path.path] = pathItem(source, writer, row, path);
  }
  for (const path of plainPaths(source)) {
    if (path.document === name) paths[path.path] = plainItemV3(path, writer);
  }
  return { paths, definitions: await writer.definitions() };
}

/**
 * Returns the groups and versions that the options types of a document belong to: the core group and the group of the document.
 */
function groupVersionsIn(rows: readonly ResourceInfo[], name: string): { group: string; version: string }[] {
  const ofDocument = groupVersionsOf(rows).filter((gv) => gv.group !== '' && documentOf(gv) === name);
  return [{ group: '', version: 'v1' }, ...ofDocument];
}

/** Builds the part of a custom resource. `buildSharedV3` builds the definitions that all custom resources share. */
export function buildCustomPartV3(source: OpenApiSource, row: ResourceInfo): Part {
  const writer = new SchemaWriter(3, source.schema, []);
  const paths: JsonObject = {};
  for (const path of pathsOf(row, optionsOf(source, row))) paths[path.path] = pathItem(source, writer, row, path);
  return { paths, definitions: writer.customDefinitions() };
}

const SCALE = 'io.k8s.api.autoscaling.v1.Scale';

/** Builds the definitions of the types to which all custom resources refer, with those of `Scale` if one has a scale. */
export function buildSharedV3(source: OpenApiSource, { withScale }: { withScale: boolean }): Promise<JsonObject> {
  const writer = new SchemaWriter(3, source.schema, CLIENT_VERSIONS);
  for (const name of withScale ? [...CUSTOM_REFERENCES, SCALE] : CUSTOM_REFERENCES) writer.reference(name);
  return writer.definitions();
}

/** Returns the members around the paths and the schemas. */
export function frameV3(
  source: OpenApiSource,
  { isCustom }: { readonly isCustom: boolean },
): { head: JsonObject; components: JsonObject } {
  if (isCustom)
    return { head: { openapi: '3.0.0', info: { title: 'Kubernetes CRD Swagger', version: 'v0.1.0' } }, components: {} };
  return {
    head: { openapi: '3.0.0', info: { title: 'Kubernetes', version: source.release } },
    components: {
      securitySchemes: {
        BearerToken: {
          type: 'apiKey',
          description: 'Bearer Token authentication',
          name: 'authorization',
          in: 'header',
        },
      },
    },
  };
}

function pathItem(
  source: OpenApiSource,
  writer: SchemaWriter,
  row: ResourceInfo,
  { parameters, operations }: PathOperations,
): JsonObject {
  const item: JsonObject = {};
  for (const operation of operations) item[operation.method] = operationOf(source, writer, row, operation);
  item['parameters'] = parameters.map(parameterOf);
  return item;
}

function operationOf(source: OpenApiSource, writer: SchemaWriter, row: ResourceInfo, operation: Operation): JsonObject {
  const types = mediaTypesOf(source, row);
  const content = (of: readonly string[], schema: JsonObject): JsonObject =>
    Object.fromEntries(of.map((type) => [type, { schema }]));
  const schema = operation.answer === undefined ? { type: 'string' } : refer(source, writer, row, operation.answer);
  const produces = produced(types, operation);
  const responses: JsonObject = {};
  for (const code of operation.codes)
    responses[code] = { description: codeText(code), content: content(produces, schema) };
  responses['401'] = { description: 'Unauthorized' };
  const body =
    operation.body === undefined
      ? undefined
      : {
          content: content(
            operation.patch ? types.patches : consumed(types, operation),
            refer(source, writer, row, operation.body),
          ),
          ...(operation.bodyRequired ? { required: true } : {}),
        };
  return {
    tags: [operation.tag],
    description: operation.description,
    operationId: operation.id,
    ...(operation.parameters.length === 0 ? {} : { parameters: operation.parameters.map(parameterOf) }),
    ...(body === undefined ? {} : { requestBody: body }),
    responses,
    'x-kubernetes-action': operation.action,
    'x-kubernetes-group-version-kind': { ...operation.kind },
  };
}

function parameterOf({ name, in: place, type, description }: ParameterInfo): JsonObject {
  return {
    name,
    in: place,
    description: description(),
    ...(place === 'path' ? { required: true } : {}),
    schema: { type, uniqueItems: true },
  };
}
