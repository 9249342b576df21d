/**
 * Reads the OpenAPI documents of aggregated servers: the path of the OpenAPI 3 document, to which requests are forwarded, and
 * the part of the OpenAPI 2 document about the group and version, which is merged into the document of this server.
 */
import { parseJson, stringifyJson } from '../../../api/codec/json.ts';
import { setMember } from '../../../api/meta/own-member.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';

/** What an aggregated server publishes about one group and version. */
export interface BackendOpenApi {
  /** The path of the document, such as `apis/example.com/v1`. */
  readonly path: string;
  /** The URL of the server's OpenAPI 3 document, with the hash. Empty if the server publishes no usable URL. */
  readonly url: string;
  readonly paths: JsonObject;
  readonly definitions: JsonObject;
  readonly parameters: JsonObject;
}

/** The members of an OpenAPI 2 document that are merged. */
export type OpenApiPart = Pick<BackendOpenApi, 'paths' | 'definitions' | 'parameters'>;

interface Index {
  readonly paths?: Readonly<Record<string, { readonly serverRelativeURL?: unknown } | undefined>>;
}

interface Document {
  readonly paths?: JsonObject;
  readonly definitions?: JsonObject;
  readonly parameters?: JsonObject;
}

/**
 * Reads what a server publishes about a group and version. Returns the previous result while the hash of the document is the
 * same. Rejects if the OpenAPI 2 document cannot be fetched, if its part about the group and version is too large, and if
 * `check` throws for that part.
 */
export async function fetchOpenApi(
  fetchPath: (path: string) => Promise<unknown>,
  { group, version }: { readonly group: string; readonly version: string },
  before: BackendOpenApi | undefined,
  check: (part: OpenApiPart) => void,
): Promise<BackendOpenApi> {
  const path = `apis/${group}/${version}`;
  const index = await fetchPath('/openapi/v3').then(
    (value) => (value ?? {}) as Index,
    (): Index => ({}),
  );
  const url = ownUrl(index.paths?.[path]?.serverRelativeURL, path);
  if (before !== undefined && url !== '' && before.url === url) return before;
  const document = ((await fetchPath('/openapi/v2')) ?? {}) as Document;
  const part = bounded(partOf(document, `/${path}`));
  check(part);
  return { path, url, ...part };
}

/** The maximum number of characters of a document's URL. */
const LONGEST_URL = 1024;

/** Returns the URL if it is that of the server's own document of this path, else `''`. */
function ownUrl(url: unknown, path: string): string {
  if (typeof url !== 'string' || url.length > LONGEST_URL) return '';
  const documentPath = `/openapi/v3/${path}`;
  return url === documentPath || url.startsWith(`${documentPath}?`) ? url : '';
}

/** The maximum size of a part, which every client of the whole document reads. */
const MAX_PART_CHARACTERS = 2 * 1024 * 1024;

/**
 * Throws if the part is too large, is nested too deeply, or has too many values, all of which are visited
 * whenever a document is built.
 */
function bounded<T extends OpenApiPart>(part: T): T {
  const text = stringifyJson(part);
  if (text.length > MAX_PART_CHARACTERS) throw new Error(`the part has more than ${MAX_PART_CHARACTERS} characters`);
  return parseJson(text).value as unknown as T;
}

/** Returns the paths below the prefix, and the definitions and parameters that they refer to, directly or indirectly. */
export function partOf(document: Document, prefix: string): OpenApiPart {
  const paths: JsonObject = {};
  for (const [path, item] of Object.entries(document.paths ?? {})) {
    if (path === prefix || path.startsWith(`${prefix}/`)) paths[path] = item;
  }
  const found = { definitions: {} as JsonObject, parameters: {} as JsonObject };
  const left: JsonValue[] = [paths];
  for (let value = left.pop(); value !== undefined; value = left.pop()) {
    for (const [, kind = '', name = ''] of stringifyJson(value).matchAll(
      /"\$ref":"#\/(definitions|parameters)\/([^"]+)"/g,
    )) {
      if (kind !== 'definitions' && kind !== 'parameters') continue;
      const all = document[kind];
      if (all === undefined || !Object.hasOwn(all, name) || Object.hasOwn(found[kind], name)) continue;
      const target = all[name];
      if (target === undefined) continue;
      setMember(found[kind], name, target);
      left.push(target);
    }
  }
  return { paths, ...found };
}

/** Merges into `document`, which it modifies. A definition or parameter whose name has another meaning there is renamed. */
export function mergeOpenApi(document: JsonObject, part: BackendOpenApi): void {
  const members = {
    paths: membersOf(document, 'paths'),
    definitions: membersOf(document, 'definitions'),
    parameters: membersOf(document, 'parameters'),
  };
  const renamed = new Map<string, string>();
  for (const kind of ['definitions', 'parameters'] as const) {
    for (const [name, value] of Object.entries(part[kind])) {
      const there = members[kind][name];
      if (there === undefined || sameShape(there, value)) continue;
      renamed.set(`#/${kind}/${name}`, `#/${kind}/${freeName(name, members[kind], part[kind])}`);
    }
  }
  const text = (value: JsonValue): JsonValue =>
    JSON.parse(stringifyJson(value), (key, inner: unknown) =>
      key === '$ref' && typeof inner === 'string' ? (renamed.get(inner) ?? inner) : inner,
    ) as JsonValue;
  for (const kind of ['definitions', 'parameters'] as const) {
    for (const [name, value] of Object.entries(part[kind])) {
      if (value === undefined) continue;
      const target = renamed.get(`#/${kind}/${name}`)?.slice(`#/${kind}/`.length) ?? name;
      members[kind][target] ??= text(value);
    }
  }
  for (const [path, item] of Object.entries(part.paths)) {
    if (item !== undefined) members.paths[path] ??= text(item);
  }
}

/** Whether two schemas are equal apart from their descriptions. */
function sameShape(a: JsonValue, b: JsonValue | undefined): boolean {
  const bare = (value: JsonValue | undefined): string =>
    JSON.stringify(value, (key, inner: unknown) =>
      key === 'description' && typeof inner === 'string' ? undefined : inner,
    );
  return bare(a) === bare(b);
}

function freeName(name: string, ...taken: readonly JsonObject[]): string {
  for (let count = 2; ; count += 1) {
    const next = `${name}_v${count}`;
    if (taken.every((one) => !Object.hasOwn(one, next))) return next;
  }
}

function membersOf(document: JsonObject, name: string): JsonObject {
  const members = document[name];
  if (isJsonObject(members)) return members;
  const created: JsonObject = {};
  document[name] = created;
  return created;
}
