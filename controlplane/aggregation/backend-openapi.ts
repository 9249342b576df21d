/**
 * Reads the OpenAPI documents of aggregated servers: the path of the OpenAPI 3 document, to which requests are forwarded, and
 * the part of the OpenAPI 2 document about the group and version, which is merged into the document of this server.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import { type JsonObject, type JsonValue } from '../../api/meta/object.ts';

export interface BackendOpenApi {
  /** `apis/example.com/v1`. */
  readonly path: string;
  /** Includes the hash; `''` if the server has no such document. */
  readonly url: string;
  readonly paths: JsonObject;
  readonly definitions: JsonObject;
  readonly parameters: JsonObject;
}

interface Index {
  readonly paths?: Readonly<Record<string, { readonly serverRelativeURL?: string } | undefined>>;
}

interface Document {
  readonly paths?: JsonObject;
  readonly definitions?: JsonObject;
  readonly parameters?: JsonObject;
}

/** Reuses the previous document while its hash is the same. Throws if the server returns no document. */
export async function fetchOpenApi(
  fetchPath: (path: string) => Promise<unknown>,
  { group, version }: { readonly group: string; readonly version: string },
  before: BackendOpenApi | undefined,
): Promise<BackendOpenApi> {
  const path = `apis/${group}/${version}`;
  const index = await fetchPath('/openapi/v3').then(
    (value) => (value ?? {}) as Index,
    (): Index => ({}),
  );
  const url = index.paths?.[path]?.serverRelativeURL ?? '';
  if (before !== undefined && url !== '' && before.url === url) return before;
  const document = ((await fetchPath('/openapi/v2')) ?? {}) as Document;
  return { path, url, ...partOf(document, `/${path}`) };
}

/** Returns the paths below the prefix, and the definitions that they refer to. */
export function partOf(
  document: Document,
  prefix: string,
): Pick<BackendOpenApi, 'paths' | 'definitions' | 'parameters'> {
  const paths: JsonObject = {};
  for (const [path, item] of Object.entries(document.paths ?? {})) {
    if (path === prefix || path.startsWith(`${prefix}/`)) paths[path] = item;
  }
  const found = { definitions: {} as JsonObject, parameters: {} as JsonObject };
  const take = (value: JsonValue | undefined): void => {
    for (const [, kind = '', name = ''] of stringifyJson(value ?? null).matchAll(
      /"\$ref":"#\/(definitions|parameters)\/([^"]+)"/g,
    )) {
      if (kind !== 'definitions' && kind !== 'parameters') continue;
      const target = document[kind]?.[name];
      if (target === undefined || Object.hasOwn(found[kind], name)) continue;
      found[kind][name] = target;
      take(target);
    }
  };
  take(paths);
  return { paths, ...found };
}

/** Merges into `document`, which it modifies. A definition whose name has another meaning there is renamed. */
export function mergeOpenApi(document: JsonObject, part: BackendOpenApi): void {
  const own = {
    paths: membersOf(document, 'paths'),
    definitions: membersOf(document, 'definitions'),
    parameters: membersOf(document, 'parameters'),
  };
  const renamed = new Map<string, string>();
  for (const kind of ['definitions', 'parameters'] as const) {
    for (const [name, value] of Object.entries(part[kind])) {
      const there = own[kind][name];
      if (there === undefined || sameShape(there, value)) continue;
      renamed.set(`#/${kind}/${name}`, `#/${kind}/${freeName(name, own[kind], part[kind])}`);
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
      own[kind][target] ??= text(value);
    }
  }
  for (const [path, item] of Object.entries(part.paths)) {
    if (item !== undefined) own.paths[path] ??= text(item);
  }
}

/** The descriptions of shared types differ between releases. */
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
  if (typeof members === 'object' && members !== null && !Array.isArray(members)) return members;
  const made: JsonObject = {};
  document[name] = made;
  return made;
}
