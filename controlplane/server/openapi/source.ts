/**
 * Defines the inputs of the OpenAPI documents: the served resources, which are the rows of the catalog, and the schemas of
 * custom resources and aggregated servers.
 */
import { typeNameOf } from '../../../api/schema/table.ts';
import type { ResourceInfo, Schema } from '../../../api/schema/schema.ts';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { BackendOpenApi } from '../../registry/aggregation/backend-openapi.ts';
import type { ResourceCatalog } from '../../model/rest.ts';
import { listKindOf, type Operation, type PathOptions, type TypeRef } from './operations.ts';
import type { CustomSchema, SchemaWriter } from './schemas.ts';

/** What the documents are computed from. */
export interface OpenApiSource {
  readonly catalog: ResourceCatalog;
  readonly schema: Schema;
  /** The release in `info.version` (`1.36`). */
  readonly release: string;
  /** Returns the schemas of a custom resource's kind. The result for a row is always the same. */
  readonly customSchema?: (row: ResourceInfo) => CustomSchema | undefined;
  /** Whether a DELETE returns the object instead of a Status. */
  readonly returnsDeleted?: (row: ResourceInfo) => boolean;
  /** The documents of aggregated API servers. */
  readonly aggregated?: {
    openApi(): readonly BackendOpenApi[];
    onChange(listener: () => void): void;
  };
}

/** Returns a reference to the definition of a type, or the schema of any object if the type has no definition. */
export function refer(source: OpenApiSource, writer: SchemaWriter, row: ResourceInfo, type: TypeRef): JsonObject {
  if ('name' in type) return writer.reference(type.name);
  const name = typeNameOf(type.group, type.version, type.kind);
  if (source.schema.struct(name) !== undefined) return writer.reference(name);
  const custom = type.group === row.group ? writer.customOf(row, source.customSchema) : undefined;
  if (custom === undefined) return { type: 'object' };
  if (type.kind === row.kind) return writer.custom(custom);
  return type.kind === listKindOf(row) ? writer.custom(listOf(row, custom, writer)) : { type: 'object' };
}

function listOf(row: ResourceInfo, custom: CustomSchema, writer: SchemaWriter): CustomSchema {
  const item = writer.custom(custom);
  const kind = listKindOf(row);
  const { apiVersion, kind: kindText } = typeTexts(writer.schema);
  const text = (description: string | undefined): JsonObject => ({
    type: 'string',
    ...(description === undefined ? {} : { description }),
  });
  const listMeta = writer.reference('io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta');
  const metadata = { description: `Standard list metadata. More info: ${CONVENTIONS}#types-kinds` };
  const definition: JsonObject = {
    description: `${kind} is a list of ${row.kind}`,
    type: 'object',
    required: ['items'],
    properties: {
      apiVersion: text(apiVersion),
      items: { type: 'array', description: `List of ${row.resource}. More info: ${CONVENTIONS}`, items: item },
      kind: text(kindText),
      metadata: writer.version === 2 ? { ...metadata, ...listMeta } : { ...metadata, allOf: [listMeta] },
    },
    'x-kubernetes-group-version-kind': [{ group: row.group, version: row.version, kind }],
    ...(custom.selectableFields === undefined ? {} : { 'x-kubernetes-selectable-fields': custom.selectableFields }),
  };
  const name = `${custom.name.slice(0, -row.kind.length)}${kind}`;
  return { name, revision: custom.revision, v2: definition, v3: definition };
}

/** The API conventions, to which descriptions of common members refer. */
const CONVENTIONS = 'https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md';

/** Returns the descriptions of the members that every object has. */
export function typeTexts(schema: Schema): { apiVersion: string | undefined; kind: string | undefined } {
  const pod = typeNameOf('', 'v1', 'Pod');
  return { apiVersion: schema.description(pod, 'apiVersion'), kind: schema.description(pod, 'kind') };
}

/** Returns the options of the row's paths. */
export const optionsOf = (source: OpenApiSource, row: ResourceInfo): PathOptions => ({
  returnsDeleted: source.returnsDeleted?.(row),
});

const STRATEGIC_PATCH = 'application/strategic-merge-patch+json';
/** The media types of built-in kinds. */
export const BUILT_IN: MediaTypes = {
  bodies: ['*/*'],
  answers: ['application/json', 'application/yaml', 'application/vnd.kubernetes.protobuf'],
  streams: ['application/json;stream=watch', 'application/vnd.kubernetes.protobuf;stream=watch'],
  patches: [
    'application/json-patch+json',
    'application/merge-patch+json',
    STRATEGIC_PATCH,
    'application/apply-patch+yaml',
  ],
};
/** The media types of custom resources, which do not accept strategic merge patches. */
const CUSTOM: MediaTypes = {
  bodies: ['application/json', 'application/yaml'],
  answers: ['application/json', 'application/yaml'],
  streams: [],
  patches: BUILT_IN.patches.filter((type) => type !== STRATEGIC_PATCH),
};

interface MediaTypes {
  /** The types of bodies other than patches. */
  readonly bodies: readonly string[];
  readonly answers: readonly string[];
  readonly streams: readonly string[];
  readonly patches: readonly string[];
}

/** Returns the media types of a row. Custom resources have neither protobuf nor strategic merge patches. */
export function mediaTypesOf(source: OpenApiSource, row: ResourceInfo): MediaTypes {
  return source.schema.struct(typeNameOf(row.group, row.version, row.kind)) === undefined ? CUSTOM : BUILT_IN;
}

/** Returns the media types of a body that is not a patch. Connections take any. */
export const consumed = ({ bodies }: MediaTypes, { action }: { readonly action: string }): readonly string[] =>
  action === 'connect' ? ['*/*'] : bodies;

/** Returns the media types of a response. */
export function produced(types: MediaTypes, { answer, isText, streams }: Operation): readonly string[] {
  if (isText === true) return ['text/plain', ...types.answers];
  if (answer === undefined) return ['*/*'];
  return streams ? [...types.answers, ...types.streams] : types.answers;
}

const CODE_TEXTS: Readonly<Record<number, string>> = { 200: 'OK', 201: 'Created', 202: 'Accepted' };

/** Returns the description of a status code in the documents. */
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

/** Whether a CustomResourceDefinition has published a schema for the row. */
export function isCustom(source: OpenApiSource, row: ResourceInfo): boolean {
  return source.customSchema?.(row) !== undefined;
}
