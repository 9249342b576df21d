/** Defines the inputs of the documents: the served rows, and the schemas of custom resources and aggregated servers. */
import { typeNameOf } from '../../../api/schema/table.ts';
import type { ResourceInfo, Schema } from '../../../api/schema/schema.ts';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { BackendOpenApi } from '../../aggregation/backend-openapi.ts';
import type { ResourceCatalog } from '../../model/rest.ts';
import type { TypeRef } from './operations.ts';
import type { CustomSchema, SchemaWriter } from './schemas.ts';

export interface OpenApiSource {
  readonly catalog: ResourceCatalog;
  readonly schema: Schema;
  /** The release in `info.version` (`v1.36.2`). */
  readonly release: string;
  /** Returns the schemas of a custom resource's kind. The result for a row is always the same. */
  readonly customSchema?: (row: ResourceInfo) => CustomSchema | undefined;
  /** The documents of aggregated API servers. */
  readonly aggregated?: {
    openApi(): readonly BackendOpenApi[];
    onChange(listener: () => void): void;
  };
}

/** Returns a reference to the definition of a kind. */
export function refer(source: OpenApiSource, writer: SchemaWriter, row: ResourceInfo, type: TypeRef): JsonObject {
  if ('name' in type) return writer.reference(type.name);
  const name = typeNameOf(type.group, type.version, type.kind);
  if (source.schema.struct(name) !== undefined) return writer.reference(name);
  const custom = type.group === row.group ? writer.customOf(row, source.customSchema) : undefined;
  if (custom === undefined) return { type: 'object' };
  if (type.kind === row.kind) return writer.custom(custom);
  return type.kind === `${row.kind}List` ? writer.custom(listOf(row, custom, writer)) : { type: 'object' };
}

function listOf(row: ResourceInfo, custom: CustomSchema, writer: SchemaWriter): CustomSchema {
  const item = writer.custom(custom);
  const text = (description: string): JsonObject => ({ type: 'string', description });
  const definition: JsonObject = {
    description: `${row.kind}List is a list of ${row.kind}`,
    type: 'object',
    required: ['items'],
    properties: {
      apiVersion: text('The group and version of the list.'),
      items: { type: 'array', description: `List of ${row.resource}.`, items: item },
      kind: text('The kind of the list.'),
      metadata: { description: 'Of the list.', ...writer.reference('io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta') },
    },
    'x-kubernetes-group-version-kind': [{ group: row.group, version: row.version, kind: `${row.kind}List` }],
  };
  return { name: `${custom.name}List`, revision: custom.revision, v2: definition, v3: definition };
}

const STRATEGIC_PATCH = 'application/strategic-merge-patch+json';
export const BUILT_IN: MediaTypes = {
  answers: ['application/json', 'application/yaml', 'application/vnd.kubernetes.protobuf'],
  streams: ['application/json;stream=watch', 'application/vnd.kubernetes.protobuf;stream=watch'],
  patches: [
    'application/json-patch+json',
    'application/merge-patch+json',
    STRATEGIC_PATCH,
    'application/apply-patch+yaml',
  ],
};
/** Clients choose the type of a patch by these media types. Custom resources do not accept strategic merge patches. */
const CUSTOM: MediaTypes = {
  answers: ['application/json', 'application/yaml'],
  streams: ['application/json;stream=watch'],
  patches: BUILT_IN.patches.filter((type) => type !== STRATEGIC_PATCH),
};

export interface MediaTypes {
  readonly answers: readonly string[];
  readonly streams: readonly string[];
  readonly patches: readonly string[];
}

export function mediaTypesOf(source: OpenApiSource, row: ResourceInfo): MediaTypes {
  return source.schema.struct(typeNameOf(row.group, row.version, row.kind)) === undefined ? CUSTOM : BUILT_IN;
}

const CODE_TEXTS: Readonly<Record<number, string>> = { 200: 'OK', 201: 'Created', 202: 'Accepted' };

export function codeText(code: number): string {
  return CODE_TEXTS[code] ?? String(code);
}

/** Returns the distinct groups and versions of the rows. */
export function groupVersionsOf(rows: readonly ResourceInfo[]): { group: string; version: string }[] {
  const found = new Map<string, { group: string; version: string }>();
  for (const { group, version } of rows) found.set(`${group}/${version}`, { group, version });
  return [...found.values()];
}

/** Returns the rows of built-in types, whose schemas never change. */
export function builtInRows(source: OpenApiSource): ResourceInfo[] {
  return source.catalog.resources().filter((row) => !isCustom(source, row));
}

export function isCustom(source: OpenApiSource, row: ResourceInfo): boolean {
  return source.customSchema?.(row) !== undefined;
}
