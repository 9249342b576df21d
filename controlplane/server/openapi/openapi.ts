/**
 * Serves `/openapi/v2` and `/openapi/v3`: the schemas of all served resources, for `kubectl explain`, validation in clients and
 * client generators.
 *
 * A document is built on the first request after a change of the catalog, once in each encoding, and kept. Requests that arrive
 * during the build wait for it. Encodings of version 2 that a client has requested are rebuilt in the background after each
 * change. The index of OpenAPI 3 needs no document, because its hashes are those of the inputs. Responses to URLs with a hash
 * may be cached forever.
 */
import { createHash } from 'node:crypto';
import { encodeJson, stringifyJson } from '../../../api/codec/json.ts';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { acceptClauses } from '../accept.ts';
import { Document, RunDocument, sendDocument, type SendableDocument } from '../document.ts';
import { JSON_TYPE } from '../media-type.ts';
import { TEXT_TYPE, reading, type PathHandlers } from '../path-handlers.ts';
import type { ApiRequest } from '../request.ts';
import { plainDocuments } from './discovery-paths.ts';
import { documentOf } from './operations.ts';
import { OpenApiRuns, type Encoding } from './runs.ts';
import { groupVersionsOf, type OpenApiSource } from './source.ts';

/** Registers the paths. Changes of the catalog invalidate the documents. */
export function installOpenApi(paths: PathHandlers, source: OpenApiSource): void {
  const openApi = new OpenApiDocuments(source);
  source.catalog.onChange(() => openApi.invalidate());
  source.aggregated?.onChange(() => openApi.invalidate());
  paths.exact(
    '/openapi/v2',
    reading((request) => openApi.serveV2(request)),
  );
  paths.exact(
    '/openapi/v3',
    reading((request) => openApi.serveIndex(request)),
  );
  paths.tree('/openapi/v3/', (request) => openApi.serveV3(request));
}

class OpenApiDocuments {
  readonly #source: OpenApiSource;
  readonly #runs: OpenApiRuns;
  readonly #documents = new Map<string, Promise<SendableDocument>>();
  readonly #rowDigests = new WeakMap<ResourceInfo, Buffer>();
  /** The encodings of version 2 that clients have requested. */
  readonly #wanted = new Set<Encoding>();
  #rows: ReadonlyMap<string, readonly ResourceInfo[]> | undefined;
  #index: Document | undefined;
  #known: ReadonlySet<string> | undefined;
  #warming = false;

  constructor(source: OpenApiSource) {
    this.#source = source;
    this.#runs = new OpenApiRuns(source);
  }

  invalidate(): void {
    this.#documents.clear();
    this.#rows = undefined;
    this.#index = undefined;
    this.#known = undefined;
    if (this.#wanted.size === 0 || this.#warming) return;
    this.#warming = true;
    setImmediate(() => this.#warm());
  }

  /** Builds the documents that clients are likely to request. */
  #warm(): void {
    this.#warming = false;
    for (const encoding of this.#wanted) {
      // The error is returned to the next client that requests the document.
      this.#documentV2(encoding).catch(() => undefined);
    }
  }

  async serveV2(request: ApiRequest): Promise<void> {
    const encoding = negotiate(request.header('accept'), 'v2');
    if (encoding === undefined) return empty(request, 406);
    this.#wanted.add(encoding);
    const document = await this.#documentV2(encoding);
    await sendDocument(request, document, { negotiated: true, tagged: true });
  }

  #documentV2(encoding: Encoding): Promise<SendableDocument> {
    return this.#kept(
      `v2 ${encoding}`,
      async () => new RunDocument(contentTypeOf('v2', encoding), await this.#runs.documentV2(encoding)),
    );
  }

  async serveIndex(request: ApiRequest): Promise<void> {
    if (this.#index === undefined) {
      const paths: JsonObject = {};
      for (const name of this.#names()) {
        paths[name] = { serverRelativeURL: `/openapi/v3/${name}?hash=${this.#hash(name)}` };
      }
      for (const { path, url } of this.#source.aggregated?.openApi() ?? []) {
        if (url !== '') paths[path] = { serverRelativeURL: url };
      }
      this.#index = new Document(TEXT_TYPE, encodeJson({ paths }));
    }
    await sendDocument(request, this.#index, { negotiated: false, tagged: true });
  }

  async serveV3(request: ApiRequest): Promise<void> {
    const name = request.info.path.slice('/openapi/v3/'.length).replace(/\/$/, '');
    if (!this.#names().has(name)) return empty(request, 404);
    const encoding = negotiate(request.header('accept'), 'v3');
    if (encoding === undefined) return empty(request, 406);
    const hash = this.#hash(name);
    const asked = request.query.get('hash');
    if (asked !== null && asked !== '' && asked !== hash) return redirect(request, `/openapi/v3/${name}?hash=${hash}`);
    const document = await this.#documentV3(name, encoding);
    await sendDocument(request, document, { negotiated: true, tagged: true, immutable: asked === hash });
  }

  #documentV3(name: string, encoding: Encoding): Promise<SendableDocument> {
    return this.#kept(
      `${name} ${encoding}`,
      async () =>
        new RunDocument(contentTypeOf('v3', encoding), await this.#runs.documentV3(name, this.#rowsOf(name), encoding)),
    );
  }

  /** Returns the names of all OpenAPI 3 documents, sorted. */
  #names(): ReadonlySet<string> {
    this.#known ??= new Set(
      [...groupVersionsOf(this.#source.catalog.resources()).map(documentOf), ...plainDocuments(this.#source)].sort(
        (a, b) => (a < b ? -1 : 1),
      ),
    );
    return this.#known;
  }

  #rowsOf(name: string): readonly ResourceInfo[] {
    this.#rows ??= Map.groupBy(this.#source.catalog.resources(), documentOf);
    return this.#rows.get(name) ?? [];
  }

  #hash(name: string): string {
    const digest = createHash('sha512').update(this.#source.release).update(name);
    for (const row of this.#rowsOf(name)) digest.update(this.#digestOf(row));
    return digest.digest('hex').toUpperCase();
  }

  #digestOf(row: ResourceInfo): Buffer {
    let digest = this.#rowDigests.get(row);
    if (digest === undefined) {
      const revision = this.#source.customSchema?.(row)?.revision ?? '';
      digest = createHash('sha512')
        .update(stringifyJson([row, revision]))
        .digest();
      this.#rowDigests.set(row, digest);
    }
    return digest;
  }

  #kept(key: string, build: () => Promise<SendableDocument>): Promise<SendableDocument> {
    let document = this.#documents.get(key);
    if (document === undefined) {
      document = build();
      this.#documents.set(key, document);
      // The waiting requests get the error, and the next request tries again.
      const built = document;
      built.catch(() => {
        if (this.#documents.get(key) === built) this.#documents.delete(key);
      });
    }
    return document;
  }
}

function contentTypeOf(version: 'v2' | 'v3', encoding: Encoding): string {
  return encoding === 'json' ? JSON_TYPE : `application/com.github.proto-openapi.spec.${version}.v1.0+protobuf`;
}

function negotiate(accept: string | undefined, version: 'v2' | 'v3'): Encoding | undefined {
  const binary = `application/com.github.proto-openapi.spec.${version}`;
  for (const { type } of acceptClauses(accept)) {
    if (type === '*/*' || type === 'application/*' || type === JSON_TYPE) return 'json';
    if (type === `${binary}@v1.0+protobuf` || type === `${binary}.v1.0+protobuf`) return 'protobuf';
  }
  return undefined;
}

function empty(request: ApiRequest, status: number): void {
  const headers = request.responseHeaders(TEXT_TYPE);
  delete headers['content-type'];
  request.status = status;
  request.exchange.send(status, headers, undefined);
}

function redirect(request: ApiRequest, location: string): void {
  const headers = request.responseHeaders(JSON_TYPE);
  headers['location'] = location;
  request.status = 301;
  request.exchange.send(301, headers, undefined);
}
